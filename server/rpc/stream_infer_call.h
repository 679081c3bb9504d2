// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

class StreamInferCall;

/// The open ModelStreamInfer calls. Bounds: `limit` calls, more are refused with RESOURCE_EXHAUSTED. Threads: any; no
/// other lock is taken under its own.
class StreamInferCalls {
 public:
  explicit StreamInferCalls(size_t limit) : limit_(limit) {}
  /// Ends every call, now and later ones: each answers what it has read, and reads no more.
  void EndAll();

 private:
  friend class StreamInferCall;
  absl::Status Add(const std::shared_ptr<StreamInferCall>& call);
  void Remove(StreamInferCall* call);

  const size_t limit_;
  Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<StreamInferCall*, std::weak_ptr<StreamInferCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

/// One ModelStreamInfer call: many requests, each parsed, checked and answered by itself, with one response for each.
/// An error is a response like any other, and the stream goes on, unless the client's metadata has triton_grpc_error:
/// true: then the first error ends it. Responses of a class come in the order of its requests; a class never waits for
/// another one's. A request that is refused before it has a class takes its turn behind the request read before it.
/// Bounds: no more is read while `stream_requests` requests are not answered and written; one write at a time.
/// Ownership: itself until its RPC is over and every request answered, then its requests, which the backend may hold
/// longer. Threads: gRPC's events on I/O threads, answers on any; no lock is held while gRPC is called.
class StreamInferCall : public std::enable_shared_from_this<StreamInferCall> {
 public:
  StreamInferCall(CallEnvironment& environment, StreamInferCalls& calls);
  ~StreamInferCall();
  /// Arms `count` calls.
  static void Arm(CallEnvironment& environment, StreamInferCalls& calls, int count);

 private:
  friend class StreamInferCalls;
  class Request;
  /// A request between its arrival and the end of its response's write.
  struct Place {
    std::weak_ptr<Request> request;
    bool answered = false;
    RequestClass request_class = RequestClass::kStandard;  ///< That was used, which a demotion may have lowered.
    absl::Status status;
    std::vector<grpc::Slice> response;
    Time answered_at;
  };

  void OnArrived(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);

  /// Reads the metadata and asks for the first message, or refuses the call.
  absl::Status Open();
  /// Makes the message that was read a request.
  void TakeMessage();
  void Deliver(Place& place, Place answer);
  /// The server drains.
  void End();
  void CancelRequests();
  void Finish(const absl::Status& status);

  /// Starts what can be started: a read, a write, the end.
  void Continue();
  bool MayRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes the response whose turn it is, of the highest class that has one; nothing while another one is written.
  std::optional<grpc::ByteBuffer> TakeResponse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// How the call ends now; nothing while it goes on.
  std::optional<absl::Status> EndNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// An operation's event has been handled, or a request answered: the last one lets go of the call.
  void OnEventOver();

  CallEnvironment& environment_;
  StreamInferCalls& calls_;
  MemberTag<StreamInferCall, &StreamInferCall::OnArrived> arrived_tag_{*this};
  MemberTag<StreamInferCall, &StreamInferCall::OnRead> read_tag_{*this};
  MemberTag<StreamInferCall, &StreamInferCall::OnWritten> written_tag_{*this};
  MemberTag<StreamInferCall, &StreamInferCall::OnFinished> finished_tag_{*this};
  MemberTag<StreamInferCall, &StreamInferCall::OnDone> done_tag_{*this};

  // gRPC's part, which goes when the RPC is over.
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  grpc::ByteBuffer message_;
  std::shared_ptr<StreamInferCall> self_;  // while gRPC has our tags

  // Of the call's metadata, written before the first message is read.
  std::optional<absl::string_view> class_word_;
  Time deadline_;
  bool errors_end_it_ = false;
  RequestClass last_class_ = RequestClass::kStandard;  // of the reading thread

  Mutex mutex_;
  std::array<std::deque<std::unique_ptr<Place>>, kRequestClassCount> places_ ABSL_GUARDED_BY(mutex_);
  size_t place_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  int events_left_ ABSL_GUARDED_BY(mutex_) = 2;  // arrival, done, and the operations under way
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // until the message is a request
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // the first place of write_class_
  size_t write_class_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;  // the client sends no more
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;       // the server drains
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;       // nobody reads what is written
  bool over_ ABSL_GUARDED_BY(mutex_) = false;         // gRPC's part is gone, and the environment may be
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);      // ends the call at once
};

}  // namespace sluice::rpc
