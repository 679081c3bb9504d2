// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/infer_call.h"

#include <utility>

#include "server/rpc/access_check.h"
#include "server/rpc/grpc_status.h"

namespace sluice::rpc {

std::unique_ptr<InferCall> InferCallPool::Take() {
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<InferCall> call = std::move(free_.back());
      free_.pop_back();
      return call;
    }
  }
  return std::make_unique<InferCall>(shared_from_this());
}

void InferCallPool::Return(std::unique_ptr<InferCall> call) {
  call->Clear();
  MutexLock lock(mutex_);
  if (!closed_ && free_.size() < limit_) free_.push_back(std::move(call));
}

void InferCallPool::Close() {
  std::vector<std::unique_ptr<InferCall>> kept;
  MutexLock lock(mutex_);
  closed_ = true;
  kept.swap(free_);
}

void InferCall::Arm(CallEnvironment& environment, const std::shared_ptr<InferCallPool>& pool) {
  environment.Began();
  ArmBegun(environment, pool);
}

void InferCall::ArmBegun(CallEnvironment& environment, const std::shared_ptr<InferCallPool>& pool) {
  // The queue owns it from here on, through its tags.
  InferCall* const call = pool->Take().release();
  call->environment_ = &environment;
  call->references_.store(1, std::memory_order_relaxed);
  call->rpc_events_left_.store(2, std::memory_order_relaxed);
  call->context_.emplace();
  call->responder_.emplace(&*call->context_);
  call->context_->AsyncNotifyWhenDone(ToQueue(call->done_tag_));
  environment.infer_service.RequestModelInfer(&*call->context_, &call->message_, &*call->responder_,
                                              environment.queue.get(), environment.queue.get(),
                                              ToQueue(call->arrived_tag_));
}

void InferCall::OnArrived(bool ok) {
  CallEnvironment& environment = *environment_;
  if (!ok) {
    // The server is stopping and no call came: there is no done event for such a call.
    context_.reset();
    environment.Ended();
    Unref();
    return;
  }
  references_.fetch_add(1, std::memory_order_relaxed);  // the RPC's
  // The next call is armed behind this one, which its client waits for; it counts from here, since the server may go as
  // soon as this one is over.
  const std::shared_ptr<InferCallPool> pool = pool_;
  const bool arms = !environment.stopping.load(std::memory_order_acquire);
  if (arms) environment.Began();
  Handle();
  Unref();
  if (arms) ArmBegun(environment, pool);
}

void InferCall::Handle() {
  CallEnvironment& environment = *environment_;
  arrival = environment.clock.Now();
  deadline = ReadDeadline(*context_, arrival);
  environment.observer.OnReceived();
  absl::StatusOr<std::optional<absl::string_view>> class_word = ReadClassMetadata(*context_);
  absl::Status status = CheckAccess(environment.policy.access, server::Protocol::kInference, *context_);
  // The message first: an error of it or behind it carries its id.
  if (status.ok()) status = Read(message_, class_word.ok() ? *class_word : std::nullopt);
  if (status.ok()) status = class_word.status();
  if (!status.ok()) {
    Finish(std::move(status));
    DropMessage();  // this thread alone has read it
    return;
  }
  references_.fetch_add(1, std::memory_order_relaxed);  // the handle's
  Submit(std::shared_ptr<server::InferRequest>(this, [](server::InferRequest* request) {
    auto* const call = static_cast<InferCall*>(request);
    call->OnHandleGone();
    call->Unref();
  }));
}

void InferCall::OnDone(bool /*ok*/) {
  if (context_->IsCancelled()) CancelByClient();
  OnRpcEvent();
}

void InferCall::Deliver(const absl::Status& status, std::vector<grpc::Slice> response) {
  if (status.ok()) {
    response_ = grpc::ByteBuffer(response.data(), response.size());
    responder_->Finish(response_, grpc::Status::OK, ToQueue(written_tag_));
    return;
  }
  const std::optional<std::string> pushback = RetryPushback(status);
  if (pushback.has_value()) context_->AddTrailingMetadata("grpc-retry-pushback-ms", *pushback);
  responder_->FinishWithError(ToGrpcStatus(WithRequestId(status, message_id())), ToQueue(written_tag_));
  // The event may have been handled already, on another thread: nothing of the call may be touched here.
}

void InferCall::OnWritten(bool ok) {
  environment_->observer.OnWritten(request_class, environment_->clock.Now() - answered_at(), ok);
  OnRpcEvent();
}

void InferCall::OnRpcEvent() {
  if (rpc_events_left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  // Both came, in either order: gRPC holds nothing of this call any more. Its part goes now, even if the backend keeps
  // the request, because a server waits for its contexts when it shuts down.
  CallEnvironment& environment = *environment_;
  response_.Clear();
  responder_.reset();
  context_.reset();
  environment.Ended();
  Unref();
}

void InferCall::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::shared_ptr<InferCallPool> pool = pool_;  // outlives the call, which holds it
  pool->Return(std::unique_ptr<InferCall>(this));
}

void InferCall::Clear() {
  MessageRequest::Clear();
  responder_.reset();
  context_.reset();
  message_.Clear();
  response_.Clear();
}

}  // namespace sluice::rpc
