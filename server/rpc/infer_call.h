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
#include "server/infer_request.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/convert.h"
#include "server/rpc/infer_parser.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

class InferCallPool;

/// One ModelInfer call, from being armed to the end of its answer, and the request that the backend sees.
/// Bounds: the message's size, and what ParseInferRequest allows beside it. Ownership: counts its own references: one
/// while its arrival is awaited or handled, one while its RPC is under way, one for the handle given to the backend; at
/// zero it returns to its pool. gRPC's part (context, responder) goes when the RPC is over, the request's part
/// (message, model) when the backend lets go of the handle too. Threads: arrival, end and cancellation on I/O threads,
/// Finish on any. Errors: a handle that is dropped unanswered answers INTERNAL; a cancelled call is answered by the
/// backend or else by this class, so that the end of a server never waits for a backend.
class InferCall final : public server::InferRequest {
 public:
  explicit InferCall(std::shared_ptr<InferCallPool> pool) : pool_(std::move(pool)) {}
  ~InferCall() override = default;

  /// Awaits one request. The call must be fresh from its pool.
  static void Arm(CallEnvironment& environment, const std::shared_ptr<InferCallPool>& pool);

  bool Finish(absl::StatusOr<server::InferResult> result) override;

 private:
  friend class InferCallPool;

  void OnArrived(bool ok);
  void OnDone(bool ok);
  void OnWritten(bool ok);

  absl::Status ReadMessage();
  absl::Status ReadClassMetadata(std::optional<absl::string_view>& word) const;
  Time ReadDeadline() const;
  /// Whether a cancellation at `now` is the deadline's doing.
  bool IsAtDeadline(Time now) const;
  void Submit();
  /// The backend needs the inputs no more: they go now, since a client may take for ever to read the answer. What an
  /// answer under way on another thread reads stays.
  void DropMessage();
  /// Tells the backend, and answers in case that it does not.
  void EndCancelled();
  /// Encodes into response_; an error of that becomes the answer.
  absl::Status Encode(absl::StatusOr<server::InferResult> result);
  /// One of the two events that end an RPC has come.
  void OnRpcEvent();
  void Unref();
  /// Everything of the last request, so that the object can serve another.
  void Clear();

  const std::shared_ptr<InferCallPool> pool_;
  CallEnvironment* environment_ = nullptr;  // valid while the RPC is under way

  MemberTag<InferCall, &InferCall::OnArrived> arrived_tag_{*this};
  MemberTag<InferCall, &InferCall::OnDone> done_tag_{*this};
  MemberTag<InferCall, &InferCall::OnWritten> written_tag_{*this};

  // gRPC's part. The message's slices must not move once it is parsed: short ones keep their bytes inside themselves.
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> responder_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer response_;
  std::vector<grpc::Slice> slices_;
  std::vector<Bytes> chunks_;
  size_t message_bytes_ = 0;

  ParsedRequest parsed_;
  Conversion conversion_;
  Time answered_at_;

  std::atomic<int> references_ = 0;
  std::atomic<int> rpc_events_left_ = 0;
  std::atomic<bool> answered_ = false;
  bool accepted_ = false;                  // written before the backend gets the handle
  std::atomic<bool> submitted_ = false;    // the request is complete: other threads may read it, and handle_
  std::atomic<bool> cancelled_ = false;    // the client is gone
  std::atomic<bool> cancel_sent_ = false;  // the backend knows
  std::weak_ptr<server::InferRequest> handle_;
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
