// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/message_request.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "server/rpc/response.h"

namespace sluice::rpc {
namespace {

/// A request that once held more slices than this gives their memory back.
constexpr size_t kKeptSlices = 64;

}  // namespace

absl::StatusOr<std::optional<absl::string_view>> ReadClassMetadata(const grpc::ServerContext& context) {
  const auto [first, last] = context.client_metadata().equal_range("sluice-class");
  if (first == last) return std::nullopt;
  if (std::next(first) != last) return absl::InvalidArgumentError("metadata sluice-class is given more than once");
  return absl::string_view(first->second.data(), first->second.size());
}

Time ReadDeadline(const grpc::ServerContext& context, Time arrival) {
  const gpr_timespec raw = context.raw_deadline();
  if (gpr_time_cmp(raw, gpr_inf_future(raw.clock_type)) == 0) return Time::Infinite();
  // As a distance from now: our clock need not be gRPC's.
  const gpr_timespec left = gpr_time_sub(raw, gpr_now(raw.clock_type));
  return arrival + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

absl::Status MessageRequest::Read(grpc::ByteBuffer& message, std::optional<absl::string_view> class_word) {
  message_bytes_ = message.Length();
  const grpc::Status dumped = message.Dump(&slices_);
  message.Clear();
  if (!dumped.ok()) return absl::InvalidArgumentError("the message could not be read (decompression failed?)");
  chunks_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    chunks_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  SLUICE_RETURN_IF_ERROR(ParseInferRequest(chunks_, parsed_, environment_->policy.limits));
  return ConvertRequest(parsed_, class_word, environment_->policy, environment_->backend, *this, conversion_);
}

void MessageRequest::Submit(std::shared_ptr<server::InferRequest> handle) {
  if (cancelled_.load(std::memory_order_acquire)) {
    Finish(absl::CancelledError("the client cancelled the request"));
    return;
  }
  accepted_ = true;
  environment_->observer.OnAccepted(*this);
  handle_ = handle;
  environment_->backend.Submit(std::move(handle));
  // Only now, so that the backend hears of a cancellation after the request. Either CancelByClient sees this store or
  // this thread sees the cancellation: both are sequentially consistent.
  submitted_.store(true, std::memory_order_seq_cst);
  if (cancelled_.load(std::memory_order_seq_cst)) EndCancelled();
}

void MessageRequest::OnHandleGone() {
  Finish(absl::InternalError("the request was dropped without an answer"));
  DropMessage();
}

void MessageRequest::DropMessage() {
  inputs.clear();
  output_regions.clear();
  parsed_.inputs.clear();
  parsed_.raw_inputs.clear();
  conversion_.decoded.clear();
  slices_.clear();
  chunks_.clear();
}

void MessageRequest::CancelByClient() {
  stopped.store(true, std::memory_order_relaxed);
  cancelled_.store(true, std::memory_order_seq_cst);
  // Until it is submitted, the request is being built by the thread that received it; that one will look.
  if (submitted_.load(std::memory_order_seq_cst)) EndCancelled();
}

void MessageRequest::EndCancelled() {
  const std::shared_ptr<server::InferRequest> handle = handle_.lock();
  if (handle != nullptr && !cancel_sent_.exchange(true, std::memory_order_acq_rel))
    environment_->backend.Cancel(handle);
  // The client is gone, so this answer is as good as the backend's own.
  Finish(absl::CancelledError("the client cancelled the request"));
}

bool MessageRequest::IsAtDeadline(Time now) const {
  if (deadline.is_infinite()) return false;
  // gRPC ends a call at its deadline by cancelling it, and a client that gives up at its own deadline cancels a little
  // before ours: ours began later and was rounded up to three digits on the way.
  return now + absl::Milliseconds(2) + (deadline - arrival) / 50 >= deadline;
}

absl::StatusOr<std::vector<grpc::Slice>> MessageRequest::Encode(absl::StatusOr<server::InferResult> result) {
  SLUICE_RETURN_IF_ERROR(result.status());
  const auto in_place = [](const server::ResponseOutput& output, size_t index) { return output.output_index == index; };
  if (!std::equal(result->outputs.begin(), result->outputs.end(), requested_outputs.begin(), requested_outputs.end(),
                  in_place)) {
    return absl::InternalError("the outputs are not the ones that were asked for, in that order");
  }
  const ResponseFacts facts{*model, parsed_.id, request_class, conversion_.timings, output_regions};
  SLUICE_ASSIGN_OR_RETURN(std::vector<grpc::Slice> slices, EncodeResponse(facts, *std::move(result)));
  // Last, so that the time it tells ends where gRPC takes over.
  if (conversion_.timings) slices.push_back(EncodeTotalTime(environment_->clock.Now() - arrival));
  return slices;
}

bool MessageRequest::Finish(absl::StatusOr<server::InferResult> result) {
  if (answered_.exchange(true, std::memory_order_acq_rel)) return false;
  AnsweredCall answer;
  if (result.ok()) answer.timings = result->timings;
  absl::StatusOr<std::vector<grpc::Slice>> response = Encode(std::move(result));
  answered_at_ = environment_->clock.Now();
  absl::Status status = response.status();
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
  if (response.ok()) {
    for (const grpc::Slice& slice : *response) answer.response_bytes += slice.size();
  }
  environment_->observer.OnAnswered(answer);
  Deliver(status, response.ok() ? *std::move(response) : std::vector<grpc::Slice>());
  return true;
}

void MessageRequest::Clear() {
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
  output_regions.clear();
  stopped.store(false, std::memory_order_relaxed);
  environment_ = nullptr;
  // Swapped, not assigned: a string that is assigned an empty one keeps its memory, which was as long as a client
  // liked.
  ParsedRequest none;
  std::swap(parsed_, none);
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
