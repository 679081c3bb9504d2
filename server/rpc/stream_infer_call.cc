// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/stream_infer_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/access_check.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/message_request.h"
#include "server/rpc/response.h"

namespace sluice::rpc {

/// One message of a stream. Owned by the handle that the backend has, and by the thread that reads it.
class StreamInferCall::Request final : public MessageRequest {
 public:
  Request(std::shared_ptr<StreamInferCall> call, Time now) : call_(std::move(call)) {
    environment_ = &call_->environment_;
    arrival = now;
    deadline = call_->deadline_;
  }
  absl::Status ReadFrom(grpc::ByteBuffer& message) { return Read(message, call_->class_word_); }
  void SetPlace(Place& place) { place_ = &place; }
  static void Start(const std::shared_ptr<Request>& request) {
    // The deleter lets go of the request when it runs: it stays as long as there is a weak handle, which the request
    // has.
    request->Submit(
        std::shared_ptr<server::InferRequest>(request.get(), [held = request](server::InferRequest*) mutable {
          const std::shared_ptr<Request> last = std::move(held);
          last->OnHandleGone();
        }));
  }

 private:
  void Deliver(const absl::Status& status, std::vector<grpc::Slice> response) override {
    Place answer;
    answer.answered = true;
    answer.request_class = request_class;
    answer.status = WithRequestId(status, message_id());
    answer.response = status.ok() ? EncodeStreamResponse(std::move(response))
                                  : EncodeStreamError(ToGrpcStatus(answer.status).error_message(), message_id());
    answer.answered_at = answered_at();
    call_->Deliver(*place_, std::move(answer));
  }

  const std::shared_ptr<StreamInferCall> call_;
  Place* place_ = nullptr;  // the call's, until the response is delivered
};

absl::Status StreamInferCalls::Add(const std::shared_ptr<StreamInferCall>& call) {
  MutexLock lock(mutex_);
  if (ending_) return absl::UnavailableError("the server is shutting down");
  if (calls_.size() >= limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("too many streams: ", limit_, " are open"));
  }
  calls_.emplace(call.get(), call);
  return absl::OkStatus();
}

void StreamInferCalls::Remove(StreamInferCall* call) {
  MutexLock lock(mutex_);
  calls_.erase(call);
}

void StreamInferCalls::EndAll() {
  std::vector<std::shared_ptr<StreamInferCall>> open;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    for (const auto& [call, reference] : calls_) open.push_back(reference.lock());
  }
  for (const std::shared_ptr<StreamInferCall>& call : open) {
    if (call != nullptr) call->End();
  }
}

StreamInferCall::StreamInferCall(CallEnvironment& environment, StreamInferCalls& calls)
    : environment_(environment), calls_(calls) {}

StreamInferCall::~StreamInferCall() = default;

void StreamInferCall::Arm(CallEnvironment& environment, StreamInferCalls& calls, int count) {
  for (int i = 0; i < count; ++i) {
    auto call = std::make_shared<StreamInferCall>(environment, calls);
    StreamInferCall* const raw = call.get();
    raw->self_ = std::move(call);
    environment.Began();
    raw->context_.emplace();
    raw->stream_.emplace(&*raw->context_);
    raw->context_->AsyncNotifyWhenDone(ToQueue(raw->done_tag_));
    environment.infer_service.RequestModelStreamInfer(&*raw->context_, &*raw->stream_, environment.queue.get(),
                                                      environment.queue.get(), ToQueue(raw->arrived_tag_));
  }
}

void StreamInferCall::OnArrived(bool ok) {
  if (!ok) {  // the server is stopping; no done event comes for a call that never was
    stream_.reset();
    context_.reset();
    environment_.Ended();
    const std::shared_ptr<StreamInferCall> last = std::move(self_);
    return;
  }
  if (!environment_.stopping.load(std::memory_order_acquire)) Arm(environment_, calls_, 1);
  absl::Status refusal = Open();
  {
    MutexLock lock(mutex_);
    open_ = true;
    refusal_ = std::move(refusal);
  }
  Continue();
  OnEventOver();
}

absl::Status StreamInferCall::Open() {
  SLUICE_RETURN_IF_ERROR(CheckAccess(environment_.policy.access, server::Protocol::kInference, *context_));
  SLUICE_RETURN_IF_ERROR(calls_.Add(shared_from_this()));
  SLUICE_ASSIGN_OR_RETURN(class_word_, ReadClassMetadata(*context_));
  deadline_ = ReadDeadline(*context_, environment_.clock.Now());
  const auto [first, last] = context_->client_metadata().equal_range("triton_grpc_error");
  errors_end_it_ = first != last && first->second == "true";
  return absl::OkStatus();
}

void StreamInferCall::OnRead(bool ok) {
  if (ok) TakeMessage();
  {
    MutexLock lock(mutex_);
    reading_ = false;
    half_closed_ = half_closed_ || !ok;
  }
  Continue();
  OnEventOver();
}

void StreamInferCall::TakeMessage() {
  {
    MutexLock lock(mutex_);
    if (finishing_) return;  // the stream has its status: nothing more can be answered
  }
  const auto request = std::make_shared<Request>(shared_from_this(), environment_.clock.Now());
  environment_.observer.OnReceived();
  absl::Status status = request->ReadFrom(message_);
  if (status.ok()) last_class_ = request->request_class;
  bool gone = false;
  {
    MutexLock lock(mutex_);
    auto& places = places_[static_cast<size_t>(last_class_)];
    places.push_back(std::make_unique<Place>());
    places.back()->request = request;
    request->SetPlace(*places.back());
    ++place_count_;
    ++unanswered_;
    gone = broken_ || finishing_;
  }
  if (gone) request->CancelByClient();
  if (status.ok()) {
    Request::Start(request);
  } else {
    request->Finish(std::move(status));
  }
}

void StreamInferCall::Deliver(Place& place, Place answer) {
  {
    MutexLock lock(mutex_);
    place = std::move(answer);
  }
  Continue();
  {
    MutexLock lock(mutex_);
    --unanswered_;
    ++events_left_;  // what OnEventOver takes
  }
  OnEventOver();
}

void StreamInferCall::End() {
  {
    MutexLock lock(mutex_);
    if (over_) return;
    ending_ = true;
    ++events_left_;  // what OnEventOver takes
  }
  Continue();
  OnEventOver();
}

bool StreamInferCall::MayRead() const {
  return open_ && !reading_ && !half_closed_ && !ending_ && !broken_ && refusal_.ok() &&
         place_count_ < static_cast<size_t>(environment_.stream_requests);
}

std::optional<grpc::ByteBuffer> StreamInferCall::TakeResponse() {
  if (writing_ || broken_ || !refusal_.ok()) return std::nullopt;
  for (size_t i = 0; i < places_.size(); ++i) {  // latency first
    if (places_[i].empty() || !places_[i].front()->answered) continue;
    Place& place = *places_[i].front();
    if (errors_end_it_ && !place.status.ok()) {
      refusal_ = place.status;
      return std::nullopt;
    }
    writing_ = true;
    write_class_ = i;
    ++events_left_;
    // The place keeps nothing of it: gRPC has it until it is written.
    const std::vector<grpc::Slice> response = std::move(place.response);
    return grpc::ByteBuffer(response.data(), response.size());
  }
  return std::nullopt;
}

std::optional<absl::Status> StreamInferCall::EndNow() const {
  if (!open_ || writing_) return std::nullopt;
  if (!refusal_.ok()) return refusal_;
  if (reading_ && !ending_) return std::nullopt;
  if (place_count_ > 0) return std::nullopt;
  if (half_closed_) return absl::OkStatus();
  if (ending_) return absl::UnavailableError("the server is shutting down");
  return std::nullopt;
}

void StreamInferCall::Continue() {
  bool read = false;
  std::optional<grpc::ByteBuffer> response;
  std::optional<absl::Status> end;
  {
    MutexLock lock(mutex_);
    if (finishing_) return;
    response = TakeResponse();
    end = EndNow();
    if (end.has_value()) {
      finishing_ = true;
      ++events_left_;
    } else if (MayRead()) {
      read = reading_ = true;
      ++events_left_;
    }
  }
  // Each operation is counted, so the call stays until its event; after the last one it may be gone.
  if (end.has_value()) Finish(*end);
  if (read) stream_->Read(&message_, ToQueue(read_tag_));
  if (response.has_value()) stream_->Write(*response, ToQueue(written_tag_));
}

void StreamInferCall::Finish(const absl::Status& status) {
  const std::optional<std::string> pushback = RetryPushback(status);
  if (pushback.has_value()) context_->AddTrailingMetadata("grpc-retry-pushback-ms", *pushback);
  stream_->Finish(ToGrpcStatus(status), ToQueue(finished_tag_));
}

void StreamInferCall::OnWritten(bool ok) {
  std::unique_ptr<Place> written;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
    written = std::move(places_[write_class_].front());
    places_[write_class_].pop_front();
    --place_count_;
  }
  environment_.observer.OnWritten(written->request_class, environment_.clock.Now() - written->answered_at, ok);
  Continue();
  OnEventOver();
}

void StreamInferCall::OnFinished(bool /*ok*/) { OnEventOver(); }

void StreamInferCall::OnDone(bool /*ok*/) {
  {
    MutexLock lock(mutex_);
    broken_ = true;
  }
  // The client is gone, or has the status that ended the call early. Here and not where that is decided, which may be a
  // thread of the backend in the middle of something.
  CancelRequests();
  OnEventOver();
}

void StreamInferCall::CancelRequests() {
  std::vector<std::shared_ptr<Request>> unanswered;
  {
    MutexLock lock(mutex_);
    for (const auto& places : places_) {
      for (const auto& place : places) {
        if (place->answered) continue;
        std::shared_ptr<Request> request = place->request.lock();
        if (request != nullptr) unanswered.push_back(std::move(request));
      }
    }
  }
  for (const std::shared_ptr<Request>& request : unanswered) request->CancelByClient();
}

void StreamInferCall::OnEventOver() {
  {
    MutexLock lock(mutex_);
    if (--events_left_ > 0 || unanswered_ > 0) return;
    over_ = true;
    for (auto& places : places_) places.clear();
  }
  // Nothing of gRPC's and no answer is to come: its part goes now, even if the backend keeps requests.
  calls_.Remove(this);
  CallEnvironment& environment = environment_;
  stream_.reset();
  context_.reset();
  const std::shared_ptr<StreamInferCall> last = std::move(self_);
  environment.Ended();
}

}  // namespace sluice::rpc
