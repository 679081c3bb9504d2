// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "base/thread.h"
#include "client/channel.h"
#include "client/types.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice::client {

/// An inference request as it goes over the wire, encoded once and sent any number of times. Copies share the bytes.
class EncodedRequest {
 public:
  /// INVALID_ARGUMENT as BuildInferRequest. The class and deadline in `options` are not part of the message.
  static absl::StatusOr<EncodedRequest> Encode(const std::string& model, std::vector<Tensor> inputs,
                                               const InferOptions& options = {});
  /// The same without a copy of the tensors: the message refers to their memory, and keeps each owner until gRPC has
  /// let go of the last copy of it, which may be after the call's answer.
  static absl::StatusOr<EncodedRequest> EncodeViews(const std::string& model, const std::vector<TensorView>& inputs,
                                                    const InferOptions& options = {});
  const grpc::ByteBuffer& bytes() const { return bytes_; }

 private:
  explicit EncodedRequest(grpc::ByteBuffer bytes) : bytes_(std::move(bytes)) {}
  grpc::ByteBuffer bytes_;
};

/// What came back for one started call.
struct AsyncAnswer {
  absl::Status status;
  Time answered;          ///< When the completion was seen, before anything else was done with it.
  grpc::ByteBuffer body;  ///< The encoded response when the status is OK.
};

/// Many inferences in flight at once, for load generation and for the futures of Client.
/// Purpose: starts prebuilt requests and timers and reports their completion. It polls completion queues of its own:
/// gRPC's callback API sleeps up to 100 ms after a pause, which a measurement would report as the server's tail.
/// Bounds: none on calls in flight, that is the caller's business. Ownership: a request's bytes are shared. Threads:
/// all from any thread, none blocks. Answers are delivered on the client's own threads
/// ("answers"), one at a time per thread; the callback must not block, and may start the next call.
/// Errors: in AsyncAnswer::status. The destructor cancels what is in flight, and waits until all is answered.
class AsyncClient {
 public:
  using OnAnswer = absl::AnyInvocable<void(AsyncAnswer)>;
  using OnTime = absl::AnyInvocable<void(bool expired)>;

  /// What was started. Cancel asks for an early end, which changes nothing once it is over.
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void Cancel() = 0;

   private:
    friend class AsyncClient;
    virtual void Complete(bool ok, Time now) = 0;
  };

  static absl::StatusOr<std::unique_ptr<AsyncClient>> Connect(const ClientOptions& options, int thread_count = 1);
  /// On channels that are open already; `thread_count` is 1 to 16.
  static std::unique_ptr<AsyncClient> Create(std::vector<std::shared_ptr<grpc::Channel>> channels, int thread_count);
  ~AsyncClient();
  AsyncClient(const AsyncClient&) = delete;
  AsyncClient& operator=(const AsyncClient&) = delete;

  /// Starts one call. `on_answer` is called exactly once.
  std::shared_ptr<Operation> StartInfer(const EncodedRequest& request, absl::Duration deadline,
                                        std::optional<RequestClass> request_class, OnAnswer on_answer);
  /// Calls `on_time` at `time`, or earlier with false when it is cancelled; exactly once.
  std::shared_ptr<Operation> StartTimer(Time time, OnTime on_time);
  /// Asks for an early end of everything in flight; each call still gets its one answer.
  void CancelAll();
  /// Calls and timers that are not over.
  size_t outstanding() const;

 private:
  class Call;
  class Timer;

  explicit AsyncClient(std::vector<std::shared_ptr<grpc::Channel>> channels);
  void Poll();
  /// False when the client is going: the operation must be cancelled once it has started.
  bool Register(const std::shared_ptr<Operation>& operation);

  const std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  const MonotonicClock clock_;

  mutable Mutex mutex_;
  CondVar all_over_;
  bool going_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_map<Operation*, std::shared_ptr<Operation>> operations_ ABSL_GUARDED_BY(mutex_);

  std::atomic<uint64_t> next_ = 0;  // Relaxed: only spreads calls over the channels.
  grpc::CompletionQueue queue_;     // Synchronises itself.
  std::vector<Thread> threads_;
};

}  // namespace sluice::client
