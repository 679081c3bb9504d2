// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/load_stream.h"

#include <algorithm>
#include <utility>

#include "client/convert.h"
#include "client/errors.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace sluice::client {
namespace {

constexpr char kUnfinished[] = "UNFINISHED";
// Larger answers are not decoded: it would cost the generator more than knowing the class is worth.
constexpr size_t kMostDecodedBytes = 256 * 1024;

}  // namespace

void ServerTimes::Record(const StageTimings& timings) {
  total.Record(timings.total);
  gpu.Record(timings.h2d + timings.compute + timings.d2h);
  queue.Record(timings.queue);
  copy_in.Record(timings.copy_in);
  h2d.Record(timings.h2d);
  gpu_wait.Record(timings.gpu_wait);
  compute.Record(timings.compute);
  d2h.Record(timings.d2h);
}

uint64_t StreamResult::error_count() const {
  uint64_t count = 0;
  for (const auto& [code, number] : errors) count += number;
  return count;
}

LoadStream::LoadStream(const StreamSpec& spec, std::optional<RequestClass> sent_class, const EncodedRequest& request,
                       const std::vector<absl::Duration>* schedule, int max_outstanding,
                       absl::Duration default_deadline, bool timings, bool keep_intervals, const PhaseTimes& times,
                       AsyncClient& client)
    : spec_(spec),
      sent_class_(sent_class),
      request_(request),
      schedule_(schedule),
      most_outstanding_(static_cast<size_t>(schedule != nullptr ? max_outstanding : spec.concurrency)),
      deadline_(spec.deadline.value_or(default_deadline)),
      times_(times),
      client_(client) {
  MutexLock lock(mutex_);
  if (timings) result_.server.emplace();
  if (keep_intervals) interval_.emplace();
}

void LoadStream::Advance(Time now) {
  if (schedule_ != nullptr) {
    MutexLock lock(mutex_);
    while (due_ < schedule_->size() && times_.start + (*schedule_)[due_] <= now) {
      // What is due beyond the cap waits for an answer; each such request is one hit.
      if (outstanding_ + (due_ - sent_) >= most_outstanding_ && Measured(times_.start + (*schedule_)[due_])) {
        ++result_.cap_hits;
      }
      ++due_;
    }
  }
  Pump();
}

Time LoadStream::next_due() const {
  if (schedule_ == nullptr) return Time::Infinite();
  MutexLock lock(mutex_);
  return due_ < schedule_->size() ? times_.start + (*schedule_)[due_] : Time::Infinite();
}

std::optional<Time> LoadStream::Claim(Time now) {
  if (abandoned_ || outstanding_ >= most_outstanding_) return std::nullopt;
  Time intended = now;  // A closed loop means to send at once.
  if (schedule_ != nullptr) {
    if (sent_ >= due_) return std::nullopt;
    intended = times_.start + (*schedule_)[sent_];
  } else {
    if (sending_ended_ || now >= times_.end) return std::nullopt;
    if (spec_.request_limit > 0 && sent_ >= static_cast<size_t>(spec_.request_limit)) return std::nullopt;
  }
  ++sent_;
  ++outstanding_;
  if (Measured(intended)) ++result_.requests;
  return intended;
}

void LoadStream::Pump() {
  // A closed loop fills each slot at most once per call: a slot that fails while this runs waits for the next one.
  for (size_t count = 0; schedule_ != nullptr || count < most_outstanding_; ++count) {
    const Time now = clock_.Now();
    std::optional<Time> intended;
    {
      MutexLock lock(mutex_);
      intended = Claim(now);
    }
    if (!intended.has_value()) return;
    Send(*intended);
  }
}

void LoadStream::Send(Time intended) {
  const Time sent = clock_.Now();
  client_.StartInfer(request_, deadline_, sent_class_,
                     [this, intended, sent](const AsyncAnswer& answer) { OnAnswer(intended, sent, answer); });
}

LoadStream::Details LoadStream::ReadDetails(const AsyncAnswer& answer) const {
  Details details;
  if (!answer.status.ok() || answer.body.Length() > kMostDecodedBytes) return details;
  grpc::ByteBuffer body = answer.body;
  inference::ModelInferResponse response;
  if (!grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(&body, &response).ok()) return details;
  if (sent_class_.has_value()) details.other_class = EffectiveClass(response).value_or(*sent_class_) != *sent_class_;
  details.timings = ReadStageTimings(response);
  return details;
}

void LoadStream::OnAnswer(Time intended, Time sent, const AsyncAnswer& answer) {
  const Details details = ReadDetails(answer);
  const bool ok = answer.status.ok();
  const Time now = clock_.Now();
  std::optional<Time> next;
  {
    MutexLock lock(mutex_);
    ++answered_;
    last_answer_ = std::max(last_answer_, answer.answered);
    if (ok && Measured(answer.answered)) ++result_.answered_in_window;
    if (interval_.has_value()) {
      if (ok) interval_->latency.Record(answer.answered - intended);
      interval_->errors += ok ? 0 : 1;
    }
    if (Measured(intended)) {
      result_.lag.Record(sent - intended);
      if (ok) {
        result_.latency.Record(answer.answered - intended);
        result_.service.Record(answer.answered - sent);
        if (details.other_class) ++result_.other_class;
        if (result_.server.has_value() && details.timings.has_value()) result_.server->Record(*details.timings);
      } else {
        ++result_.errors[abandoned_ ? kUnfinished : CodeName(answer.status.code())];
      }
    }
    // The slot passes to the next request under the lock: a stream with nothing in flight may be destroyed at once.
    --outstanding_;
    if (ok || schedule_ != nullptr) next = Claim(now);
    if (outstanding_ == 0) became_idle_.NotifyAll();
  }
  if (next.has_value()) Send(*next);
}

bool LoadStream::finished() const {
  MutexLock lock(mutex_);
  return spec_.request_limit > 0 && sent_ >= static_cast<size_t>(spec_.request_limit) && outstanding_ == 0;
}

void LoadStream::EndSending() {
  MutexLock lock(mutex_);
  sending_ended_ = true;
}

void LoadStream::Abandon() {
  MutexLock lock(mutex_);
  abandoned_ = true;
  if (schedule_ == nullptr) return;
  for (; sent_ < schedule_->size(); ++sent_) {
    if (!Measured(times_.start + (*schedule_)[sent_])) continue;
    ++result_.requests;
    ++result_.errors[kUnfinished];
  }
}

bool LoadStream::WaitIdle(Time deadline) {
  MutexLock lock(mutex_);
  while (outstanding_ > 0 || (schedule_ != nullptr && sent_ < due_)) {
    if (!became_idle_.WaitUntil(mutex_, deadline)) return outstanding_ == 0 && (schedule_ == nullptr || sent_ >= due_);
  }
  return true;
}

StreamResult LoadStream::TakeResult() {
  MutexLock lock(mutex_);
  Time end = times_.end;
  // A stream that ran out of requests was measured until its last answer, not until the phase's end.
  if (spec_.request_limit > 0 && sent_ >= static_cast<size_t>(spec_.request_limit)) end = std::min(end, last_answer_);
  result_.window = std::max(end - times_.measured_from, absl::ZeroDuration());
  return std::move(result_);
}

IntervalResult LoadStream::TakeInterval() {
  IntervalResult taken;  // made before the lock: answers wait for it
  MutexLock lock(mutex_);
  std::swap(taken, *interval_);
  return taken;
}

uint64_t LoadStream::answered() const {
  MutexLock lock(mutex_);
  return answered_;
}

}  // namespace sluice::client
