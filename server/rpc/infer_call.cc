// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/infer_call.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/response.h"

namespace sluice::rpc {
namespace {

/// A call that once held more slices than this gives their memory back.
constexpr size_t kKeptSlices = 64;

}  // namespace

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
  // The queue owns it from here on, through its tags.
  InferCall* const call = pool->Take().release();
  environment.Began();
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
  if (!environment.stopping.load(std::memory_order_acquire)) Arm(environment, pool_);
  arrival = environment.clock.Now();
  deadline = ReadDeadline();
  environment.observer.OnReceived();
  std::optional<absl::string_view> class_word;
  absl::Status status = ReadMessage();
  if (status.ok()) status = ReadClassMetadata(class_word);
  if (status.ok()) {
    status = ConvertRequest(parsed_, class_word, environment.policy, environment.backend, *this, conversion_);
  }
  if (status.ok()) {
    Submit();
  } else {
    Finish(std::move(status));
    DropMessage();  // this thread alone has read it
  }
  Unref();
}

absl::Status InferCall::ReadMessage() {
  message_bytes_ = message_.Length();
  const grpc::Status dumped = message_.Dump(&slices_);
  message_.Clear();
  if (!dumped.ok()) return absl::InvalidArgumentError("the message could not be read (decompression failed?)");
  chunks_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    chunks_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  return ParseInferRequest(chunks_, parsed_);
}

absl::Status InferCall::ReadClassMetadata(std::optional<absl::string_view>& word) const {
  const auto [first, last] = context_->client_metadata().equal_range("sluice-class");
  if (first == last) return absl::OkStatus();
  if (std::next(first) != last) return absl::InvalidArgumentError("metadata sluice-class is given more than once");
  word = absl::string_view(first->second.data(), first->second.size());
  return absl::OkStatus();
}

Time InferCall::ReadDeadline() const {
  const gpr_timespec raw = context_->raw_deadline();
  if (gpr_time_cmp(raw, gpr_inf_future(raw.clock_type)) == 0) return Time::Infinite();
  // As a distance from now: our clock need not be gRPC's.
  const gpr_timespec left = gpr_time_sub(raw, gpr_now(raw.clock_type));
  return arrival + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

bool InferCall::IsAtDeadline(Time now) const {
  if (deadline.is_infinite()) return false;
  // gRPC ends a call at its deadline by cancelling it, and a client that gives up at its own deadline cancels a little
  // before ours: ours began later and was rounded up to three digits on the way.
  return now + absl::Milliseconds(2) + (deadline - arrival) / 50 >= deadline;
}

void InferCall::Submit() {
  if (cancelled_.load(std::memory_order_acquire)) {
    Finish(absl::CancelledError("the client cancelled the request"));
    return;
  }
  accepted_ = true;
  environment_->observer.OnAccepted(*this);
  references_.fetch_add(1, std::memory_order_relaxed);  // the handle's
  std::shared_ptr<server::InferRequest> handle(this, [](InferRequest* request) {
    auto* const call = static_cast<InferCall*>(request);
    call->Finish(absl::InternalError("the request was dropped without an answer"));
    call->DropMessage();
    call->Unref();
  });
  handle_ = handle;
  environment_->backend.Submit(std::move(handle));
  // Only now, so that the backend hears of a cancellation after the request. Either OnDone sees this store or this
  // thread sees the cancellation: both are sequentially consistent.
  submitted_.store(true, std::memory_order_seq_cst);
  if (cancelled_.load(std::memory_order_seq_cst)) EndCancelled();
}

void InferCall::DropMessage() {
  inputs.clear();
  parsed_.inputs.clear();
  parsed_.raw_inputs.clear();
  conversion_.decoded.clear();
  slices_.clear();
  chunks_.clear();
}

void InferCall::EndCancelled() {
  const std::shared_ptr<server::InferRequest> handle = handle_.lock();
  if (handle != nullptr && !cancel_sent_.exchange(true, std::memory_order_acq_rel))
    environment_->backend.Cancel(handle);
  // The client is gone, so this answer is as good as the backend's own.
  Finish(absl::CancelledError("the client cancelled the request"));
}

void InferCall::OnDone(bool /*ok*/) {
  if (context_->IsCancelled()) {
    stopped.store(true, std::memory_order_relaxed);
    cancelled_.store(true, std::memory_order_seq_cst);
    // Until it is submitted, the request is being built by the thread that received it; that one will look.
    if (submitted_.load(std::memory_order_seq_cst)) EndCancelled();
  }
  OnRpcEvent();
}

absl::Status InferCall::Encode(absl::StatusOr<server::InferResult> result) {
  SLUICE_RETURN_IF_ERROR(result.status());
  const auto in_place = [](const server::ResponseOutput& output, size_t index) { return output.output_index == index; };
  if (!std::equal(result->outputs.begin(), result->outputs.end(), requested_outputs.begin(), requested_outputs.end(),
                  in_place)) {
    return absl::InternalError("the outputs are not the ones that were asked for, in that order");
  }
  const ResponseFacts facts{*model, parsed_.id, request_class, conversion_.timings};
  SLUICE_ASSIGN_OR_RETURN(std::vector<grpc::Slice> slices, EncodeResponse(facts, *std::move(result)));
  // Last, so that the time it tells ends where gRPC takes over.
  if (conversion_.timings) slices.push_back(EncodeTotalTime(environment_->clock.Now() - arrival));
  response_ = grpc::ByteBuffer(slices.data(), slices.size());
  return absl::OkStatus();
}

bool InferCall::Finish(absl::StatusOr<server::InferResult> result) {
  if (answered_.exchange(true, std::memory_order_acq_rel)) return false;
  AnsweredCall answer;
  if (result.ok()) answer.timings = result->timings;
  absl::Status status = Encode(std::move(result));
  answered_at_ = environment_->clock.Now();
  if (absl::IsCancelled(status) && IsAtDeadline(answered_at_)) {
    status = absl::DeadlineExceededError("the deadline has passed");
  }
  answer.model = model.get();
  answer.request_class = request_class;
  answer.wished_class = conversion_.decision.wished;
  answer.over_latency_share = request_class != conversion_.decision.used;
  answer.submitted = accepted_;
  answer.device_index = device_index;
  answer.code = status.code();
  answer.arrival = arrival;
  answer.duration = answered_at_ - arrival;
  answer.rows = accepted_ ? rows : 0;
  answer.request_bytes = message_bytes_;
  answer.response_bytes = status.ok() ? response_.Length() : 0;
  environment_->observer.OnAnswered(answer);
  if (status.ok()) {
    responder_->Finish(response_, grpc::Status::OK, ToQueue(written_tag_));
    return true;
  }
  const std::optional<std::string> pushback = RetryPushback(status);
  if (pushback.has_value()) context_->AddTrailingMetadata("grpc-retry-pushback-ms", *pushback);
  responder_->FinishWithError(ToGrpcStatus(WithRequestId(status, parsed_.id)), ToQueue(written_tag_));
  // The event may have been handled already, on another thread: nothing of the call may be touched here.
  return true;
}

void InferCall::OnWritten(bool ok) {
  environment_->observer.OnWritten(request_class, environment_->clock.Now() - answered_at_, ok);
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
  id = RequestId();
  device_index = 0;
  model.reset();
  request_class = RequestClass::kStandard;
  arrival = Time();
  deadline = Time::Infinite();
  queue_deadline = Time::Infinite();
  rows = 1;
  bytes = 0;
  shape_bucket = 0;
  inputs.clear();
  requested_outputs.clear();
  stopped.store(false, std::memory_order_relaxed);
  environment_ = nullptr;
  responder_.reset();
  context_.reset();
  message_.Clear();
  response_.Clear();
  parsed_ = ParsedRequest();
  conversion_ = Conversion();
  slices_.clear();
  chunks_.clear();
  if (slices_.capacity() > kKeptSlices) {
    slices_.shrink_to_fit();
    chunks_.shrink_to_fit();
  }
  message_bytes_ = 0;
  accepted_ = false;
  answered_.store(false, std::memory_order_relaxed);
  submitted_.store(false, std::memory_order_relaxed);
  cancelled_.store(false, std::memory_order_relaxed);
  cancel_sent_.store(false, std::memory_order_relaxed);
  handle_.reset();
}

}  // namespace sluice::rpc
