// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/message_request.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

class InferCallPool;

/// One ModelInfer call, from being armed to the end of its answer, and the request that the backend sees.
/// Ownership: counts its own references: one while its arrival is awaited or handled, one while its RPC is under way,
/// one for the handle given to the backend; at zero it returns to its pool. gRPC's part (context, responder) goes when
/// the RPC is over, the request's part (message, model) when the backend lets go of the handle too. Threads: arrival,
/// end and cancellation on I/O threads, Finish on any. Errors: a handle that is dropped unanswered answers INTERNAL; a
/// cancelled call is answered by the backend or else by this class, so that the end of a server never waits for a
/// backend.
class InferCall final : public MessageRequest {
 public:
  explicit InferCall(std::shared_ptr<InferCallPool> pool) : pool_(std::move(pool)) {}
  ~InferCall() override = default;

  /// Awaits one request. The call must be fresh from its pool.
  static void Arm(CallEnvironment& environment, const std::shared_ptr<InferCallPool>& pool);

 private:
  friend class InferCallPool;

  void Deliver(const absl::Status& status, std::vector<grpc::Slice> response) override;

  /// The rest of Arm, once the environment counts the call.
  static void ArmBegun(CallEnvironment& environment, const std::shared_ptr<InferCallPool>& pool);

  void OnArrived(bool ok);
  void OnDone(bool ok);
  void OnWritten(bool ok);

  /// Reads what arrived, and submits or answers it.
  void Handle();
  /// One of the two events that end an RPC has come.
  void OnRpcEvent();
  void Unref();
  void Clear();

  const std::shared_ptr<InferCallPool> pool_;

  MemberTag<InferCall, &InferCall::OnArrived> arrived_tag_{*this};
  MemberTag<InferCall, &InferCall::OnDone> done_tag_{*this};
  MemberTag<InferCall, &InferCall::OnWritten> written_tag_{*this};

  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> responder_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer response_;

  std::atomic<int> references_ = 0;
  std::atomic<int> rpc_events_left_ = 0;
};

/// Keeps calls that are over for the next ones. Bounds: `limit` calls. Ownership: shared by the server and its calls,
/// because a backend may hold a request beyond the server's end. Any thread; the lock is held for a push or pop.
class InferCallPool : public std::enable_shared_from_this<InferCallPool> {
 public:
  explicit InferCallPool(size_t limit) : limit_(limit) {}
  std::unique_ptr<InferCall> Take();
  void Return(std::unique_ptr<InferCall> call);
  /// Frees what it keeps and keeps nothing from here on: calls hold the pool, so a pool that kept them would never go.
  void Close();

 private:
  const size_t limit_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<InferCall>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::rpc
