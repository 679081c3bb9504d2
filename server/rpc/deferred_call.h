// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <atomic>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/rpc/access_check.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

/// One call of repository control, which another thread answers later. Ownership: shared by its RPC and by whoever is
/// to answer; gRPC's part goes when the RPC is over, since the end of a server waits for that. Threads: arrival and end
/// on I/O threads, Answer on any. Errors: a call whose client gives up, or that the end of the server cancels, is
/// answered here, and what was begun for it is told by `abandoned`.
template <class Request, class Response>
class DeferredCall final : public std::enable_shared_from_this<DeferredCall<Request, Response>> {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  struct Method {
    /// Awaits the next call of this method.
    void (*request)(CallEnvironment&, grpc::ServerContext*, Request*, Writer*, void* tag);
    /// Sees to it that the call is answered. Must not block. May take what is in the request: nobody reads it again.
    void (*begin)(server::InferenceBackend&, Request&, const std::shared_ptr<DeferredCall>&);
  };

  static void Arm(CallEnvironment& environment, const Method& method) {
    const std::shared_ptr<DeferredCall> call(new DeferredCall(environment, method));
    call->self_ = call;
    environment.Began();
    call->context_->AsyncNotifyWhenDone(ToQueue(call->done_tag_));
    method.request(environment, &*call->context_, &call->request_, &*call->writer_, ToQueue(call->arrived_tag_));
  }

  /// Once; later answers are dropped. `response` counts when `status` is OK.
  void Answer(const absl::Status& status, const Response& response = Response()) {
    if (answered_.exchange(true, std::memory_order_acq_rel)) return;
    if (status.ok()) {
      writer_->Finish(response, grpc::Status::OK, ToQueue(finished_tag_));
    } else {
      writer_->FinishWithError(ToGrpcStatus(status), ToQueue(finished_tag_));
    }
    // The event may have been handled already, on another thread: nothing of the RPC may be touched here.
  }

  /// Set when nobody waits for the answer any more.
  std::shared_ptr<const std::atomic<bool>> abandoned() { return {this->shared_from_this(), &abandoned_}; }

 private:
  DeferredCall(CallEnvironment& environment, const Method& method) : environment_(environment), method_(method) {
    context_.emplace();
    writer_.emplace(&*context_);
  }

  void OnArrived(bool ok) {
    if (!ok) {  // the server is stopping; no done event comes for a call that never was
      events_left_.store(1, std::memory_order_relaxed);
      OnEventOver();
      return;
    }
    if (!environment_.stopping.load(std::memory_order_acquire)) Arm(environment_, method_);
    // Of its own: the events that an answer brings may end the RPC before begin returns.
    const std::shared_ptr<DeferredCall> self = this->shared_from_this();
    const absl::Status access = CheckAccess(environment_.policy.access, server::Protocol::kModelRepository, *context_);
    access.ok() ? method_.begin(environment_.backend, request_, self) : Answer(access);
  }

  void OnDone(bool /*ok*/) {
    if (context_->IsCancelled()) {
      abandoned_.store(true, std::memory_order_release);
      Answer(absl::CancelledError("the client cancelled the call"));
    }
    OnEventOver();
  }

  void OnFinished(bool /*ok*/) { OnEventOver(); }

  void OnEventOver() {
    if (events_left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const std::shared_ptr<DeferredCall> self = std::move(self_);
    writer_.reset();
    context_.reset();
    environment_.Ended();
  }

  CallEnvironment& environment_;  // valid while the RPC is under way
  const Method method_;
  MemberTag<DeferredCall, &DeferredCall::OnArrived> arrived_tag_{*this};
  MemberTag<DeferredCall, &DeferredCall::OnDone> done_tag_{*this};
  MemberTag<DeferredCall, &DeferredCall::OnFinished> finished_tag_{*this};
  std::optional<grpc::ServerContext> context_;
  std::optional<Writer> writer_;
  Request request_;
  std::shared_ptr<DeferredCall> self_;  // the RPC's
  std::atomic<int> events_left_ = 2;    // done, and that the answer is written
  std::atomic<bool> answered_ = false;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace sluice::rpc
