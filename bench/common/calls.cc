// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_relax.h"
#include "base/status_macros.h"
#include "bench/common/values.h"
#include "client/pause.h"

namespace sluice::bench {
namespace {

constexpr absl::Duration kAnswersMissing = absl::Seconds(30);
/// A sleeping thread wakes some tens of microseconds late.
constexpr absl::Duration kPollAhead = absl::Microseconds(200);

/// Counts answers; told by the threads that give them.
class Answers {
 public:
  explicit Answers(size_t count) : samples_(count) {}

  Sample& sample(size_t index) { return samples_[index]; }
  void Set(size_t index, const absl::StatusOr<server::InferResult>& result, Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    Sample& sample = samples_[index];
    sample.status = result.status();
    sample.answered = now;
    if (result.ok()) sample.timings = result->timings;
    MutexLock lock(mutex_);
    ++answered_;
    changed_.NotifyAll();  // Under the lock: the waiter may destroy this as soon as it has seen the count.
  }
  /// False when fewer than `count` had come by `deadline`.
  bool Await(size_t count, Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (answered_ < count) {
      if (!changed_.WaitUntil(mutex_, deadline) && answered_ < count) return false;
    }
    return true;
  }

 private:
  std::vector<Sample> samples_;
  Mutex mutex_;
  CondVar changed_;
  size_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// One request. Shared with the answers, which outlive their waiter when it gives up.
class Call final : public server::InferRequest {
 public:
  Call(const House& house, const CallSpec& spec, std::shared_ptr<Answers> answers, size_t index)
      : clock_(house.clock()), answers_(std::move(answers)), index_(index) {
    model = spec.model.served;
    request_class = spec.request_class;
    rows = spec.payload->rows();
    bytes = spec.payload->bytes();
    inputs = spec.payload->inputs();
    for (size_t i = 0; spec.wants_outputs && i < model->outputs.size(); ++i) requested_outputs.push_back(i);
  }
  ~Call() override { Answer(absl::InternalError("the request was dropped")); }

  bool Finish(absl::StatusOr<server::InferResult> result) override { return Answer(result); }

 private:
  bool Answer(const absl::StatusOr<server::InferResult>& result) {
    if (finished_.exchange(true)) return false;
    answers_->Set(index_, result, clock_.Now());
    return true;
  }

  const Clock& clock_;
  const std::shared_ptr<Answers> answers_;
  const size_t index_;
  std::atomic<bool> finished_ = false;
};

void Send(House& house, std::shared_ptr<Call> call, Time intended, Answers& answers, size_t index) {
  Sample& sample = answers.sample(index);
  sample.intended = intended;
  sample.submitted = call->arrival = house.clock().Now();
  house.Submit(std::move(call));
}

void WaitFor(House& house, Time start) {
  if (!house.polls()) return client::PauseUntil(start);
  if (start - house.clock().Now() > kPollAhead) client::PauseUntil(start - kPollAhead);
  while (house.clock().Now() < start) CpuRelax();
}

}  // namespace

Payload::Payload(const HouseModel& model, int64_t rows) : rows_(rows) {
  const server::ServedModel& served = *model.served;
  const server::PreparedPlan& plan = model.instance->plans(0).front();
  for (size_t i = 0; i < served.inputs.size(); ++i) {
    row_bytes_.push_back(model.instance->InputRowBytes(plan, i));
    bytes_ += row_bytes_.back() * static_cast<size_t>(rows);
    server::RequestInput& input = inputs_.emplace_back();
    input.shape = served.shape_buckets.front()[i];
    if (served.max_batch_size >= 1) input.shape.insert(input.shape.begin(), rows);
  }
}

Payload Payload::Repeated(const HouseModel& model, int64_t rows) {
  Payload payload(model, rows);
  for (size_t i = 0; i < payload.inputs_.size(); ++i) {
    std::vector<std::byte>& row = payload.memory_.emplace_back(payload.row_bytes_[i]);
    FillInput(model.served->inputs[i], row);
  }
  for (size_t i = 0; i < payload.inputs_.size(); ++i) {
    payload.inputs_[i].pieces.assign(static_cast<size_t>(rows), server::Bytes(payload.memory_[i]));
  }
  return payload;
}

absl::StatusOr<Payload> Payload::Pinned(const HouseModel& model, int64_t rows, gpu::Device& device) {
  Payload payload(model, rows);
  for (size_t i = 0; i < payload.inputs_.size(); ++i) {
    const size_t size_bytes = payload.row_bytes_[i] * static_cast<size_t>(rows);
    SLUICE_ASSIGN_OR_RETURN(gpu::PinnedBuffer buffer, device.AllocatePinned(size_bytes));
    const gpu::PinnedSpan span = buffer;
    FillInput(model.served->inputs[i], {span.data, size_bytes});
    payload.inputs_[i].pieces.push_back(server::Bytes(span.data, size_bytes));
    payload.pinned_.push_back(std::move(buffer));
  }
  return payload;
}

absl::StatusOr<Sample> CallOnce(House& house, const CallSpec& spec) {
  const auto answers = std::make_shared<Answers>(1);
  auto call = std::make_shared<Call>(house, spec, answers, 0);
  Send(house, std::move(call), house.clock().Now(), *answers, 0);
  answers->Await(1, Time::Infinite());
  SLUICE_RETURN_IF_ERROR(answers->sample(0).status);
  return answers->sample(0);
}

absl::StatusOr<OpenLoopResult> RunOpenLoop(House& house, const CallSpec& spec, Time start,
                                           const std::vector<absl::Duration>& schedule, absl::Duration warmup) {
  const auto answers = std::make_shared<Answers>(schedule.size());
  // Made before: at its start a request only has to be handed over.
  std::vector<std::shared_ptr<Call>> calls;
  for (size_t i = 0; i < schedule.size(); ++i) {
    calls.push_back(std::make_shared<Call>(house, spec, answers, i));
  }
  for (size_t i = 0; i < schedule.size(); ++i) {
    WaitFor(house, start + schedule[i]);
    Send(house, std::move(calls[i]), start + schedule[i], *answers, i);
  }
  if (!answers->Await(schedule.size(), house.clock().Now() + kAnswersMissing)) {
    return absl::DeadlineExceededError("answers are missing long after the last request");
  }
  OpenLoopResult result;
  result.submitted = result.answered = schedule.size();
  for (size_t i = 0; i < schedule.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(answers->sample(i).status);
    if (schedule[i] >= warmup) result.samples.push_back(answers->sample(i));
  }
  return result;
}

ClosedLoop::ClosedLoop(House& house, const CallSpec& spec, int concurrency)
    : house_(house),
      spec_(spec),
      statuses_(static_cast<size_t>(concurrency)),
      by_thread_(static_cast<size_t>(concurrency)) {
  for (size_t i = 0; i < statuses_.size(); ++i) {
    threads_.emplace_back(absl::StrCat("caller-", i), [this, i] { Run(statuses_[i], by_thread_[i]); });
  }
}

void ClosedLoop::Run(absl::Status& status, std::vector<Time>& answers) {
  while (!stop_.load(std::memory_order_relaxed)) {
    submitted_.fetch_add(1, std::memory_order_relaxed);
    const absl::StatusOr<Sample> sample = CallOnce(house_, spec_);
    if (!sample.ok()) {
      status = sample.status();
      return;
    }
    answers.push_back(sample->answered);
  }
}

absl::Status ClosedLoop::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  threads_.clear();  // joins
  if (answers_.empty()) {
    for (const std::vector<Time>& answers : by_thread_) answers_.insert(answers_.end(), answers.begin(), answers.end());
    std::sort(answers_.begin(), answers_.end());
  }
  for (const absl::Status& status : statuses_) SLUICE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

double ClosedLoop::RowsPerSecond(Time from, Time to) const {
  const auto first = std::lower_bound(answers_.begin(), answers_.end(), from);
  const auto end = std::upper_bound(first, answers_.end(), to);
  if (end - first < 2) return 0;
  const double seconds = absl::ToDoubleSeconds(*(end - 1) - *first);
  const auto rows = static_cast<double>(end - first - 1) * static_cast<double>(spec_.payload->rows());
  return seconds > 0 ? rows / seconds : 0;
}

}  // namespace sluice::bench
