// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/simulation.h"

#include <algorithm>
#include <optional>

namespace sluice::sim {

using scheduler::RequestPlace;

Simulation::Simulation(const Scenario& scenario)
    : scenario_(scenario),
      start_(loop_.now()),
      random_(scenario.seed ^ 0x51bce),
      device_side_(
          scenario_, loop_, failure_, random_.Fork(), [this](uint64_t execution) { CheckIssued(execution); },
          [this](uint64_t execution, bool succeeded) { OnEnd(execution, succeeded); }) {
  requests_.resize(1);
  for (const RequestClass request_class : kRequestClasses) {
    auto& made = lanes_[static_cast<size_t>(request_class)];
    made =
        std::make_unique<Lane>(scenario_.of(request_class), request_class, scenario_.plant, failure_, random_.Fork());
    for (int i = 0; i < 16; ++i) made->trace.push_back(made->random.Exponential(made->made.mean_gap));
    for (const SimModel& model : scenario_.models) {
      made->core.AddModel(model.id, model.limits);
      made->checker.OnModelAdded(model.id, model.limits);
    }
  }
}

bool Simulation::Run() {
  for (const RequestClass request_class : kRequestClasses) {
    if (scenario_.of(request_class).present) ScheduleArrivals(lane(request_class));
  }
  ScheduleFaults();
  if (scenario_.checks_computed_share) loop_.After(absl::Milliseconds(50), [this] { CheckComputedShare(); });
  // Far more than any run needs: a run that goes on for ever is a failure too.
  const int64_t most_events = 200'000 + int64_t{500} * scenario_.request_count;
  for (int64_t i = 0; !failure_.found() && loop_.RunOne(); ++i) {
    device_side_.RunNotified();
    for (const auto& each : lanes_) each->checker.CheckCounts(each->core.counts(), loop_.now());
    if (i > most_events) failure_.Report(loop_.now(), "no end after ", i, " events");
  }
  if (!failure_.found()) CheckAtEnd();
  return !failure_.found();
}

void Simulation::ScheduleFaults() {
  for (const absl::Duration at : scenario_.jumps_at) {
    loop_.After(at, [this] {
      loop_.Jump(random_.Between(absl::Milliseconds(1), absl::Seconds(2)));
      device_side_.gate().OnJump();
      for (const auto& each : lanes_) each->checker.OnJump(loop_.now());
      last_jump_ = loop_.now();
    });
  }
  for (const Scenario::Blocker& blocker : scenario_.blockers) {
    loop_.After(blocker.at, [this, blocker] {
      Submit(lane(blocker.request_class),
             {.id = RequestId(requests_.size()), .model = scenario_.models.back().id, .arrival = loop_.now()});
    });
  }
  if (scenario_.hangs_at) loop_.After(*scenario_.hangs_at, [this] { device_side_.Hang(); });
  if (scenario_.lost_at) loop_.After(*scenario_.lost_at, [this] { LoseDevice(); });
  if (scenario_.drains_at) loop_.After(*scenario_.drains_at, [this] { Drain(); });
  if (scenario_.removes_model_at) loop_.After(*scenario_.removes_model_at, [this] { RemoveModel(); });
}

bool Simulation::MayArrive() const {
  return requests_.size() <= static_cast<size_t>(scenario_.request_count) && duration() < scenario_.arrivals_end;
}

void Simulation::ReturnClient(Lane& lane) {
  loop_.After(lane.random.Exponential(lane.made.mean_gap), [this, &lane] {
    if (MayArrive()) Arrive(lane);
  });
}

void Simulation::ScheduleArrivals(Lane& lane) {
  int count = 1;
  absl::Duration gap;
  switch (lane.made.arrivals) {
    case Arrivals::kPoisson:
      gap = lane.random.Exponential(lane.made.mean_gap);
      break;
    case Arrivals::kBursts:
      count = static_cast<int>(lane.random.Between(2, 30));
      gap = lane.made.mean_gap * count;
      break;
    case Arrivals::kTrace:
      gap = lane.trace[lane.trace_next++ % lane.trace.size()];
      break;
    case Arrivals::kClosedLoop:
      for (int i = 0; i < lane.made.client_count; ++i) ReturnClient(lane);
      return;
  }
  loop_.After(gap, [this, &lane, count] {
    for (int i = 0; i < count && !failure_.found(); ++i) {
      if (!MayArrive()) return;
      Arrive(lane);
    }
    ScheduleArrivals(lane);
  });
}

scheduler::QueuedRequest Simulation::MakeRequest(Lane& lane) {
  Random& random = lane.random;
  const size_t model_count = scenario_.models.size() - (scenario_.blockers.empty() ? 0 : 1);
  const SimModel& model =
      scenario_.models[static_cast<size_t>(random.Between(0, static_cast<int64_t>(model_count) - 1))];
  scheduler::QueuedRequest made{.id = RequestId(requests_.size()), .model = model.id, .arrival = loop_.now()};
  made.shape_bucket = static_cast<uint32_t>(random.Between(0, model.shape_bucket_count - 1));
  made.rows = random.Between(1, model.largest_request_rows);
  made.bytes = static_cast<size_t>(random.Between(0, 4'000));
  if (random.Chance(lane.made.deadline_chance)) {
    made.deadline = loop_.now() + random.Between(lane.made.shortest_deadline, lane.made.longest_deadline);
  }
  if (random.Chance(lane.made.timeout_chance)) {
    made.queue_deadline = loop_.now() + random.Between(absl::ZeroDuration(), lane.made.longest_timeout);
  }
  return made;
}

void Simulation::Arrive(Lane& lane) { Submit(lane, MakeRequest(lane)); }

void Simulation::Submit(Lane& lane, const scheduler::QueuedRequest& facts) {
  const Time now = loop_.now();
  requests_.push_back({.request_class = lane.request_class, .token = {}, .arrival = now, .deadline = facts.deadline});
  ++lane.totals.submitted;
  if (lane.request_class == RequestClass::kLatency) {
    // Told before it is queued, so that the gate closes while it is being prepared.
    request(facts.id).token = device_side_.gate().Announce(now + DeviceSide::CopyInTime(facts.rows));
  }
  scheduler::Prediction hint;
  if (scenario_.hints) hint = {.wait = absl::Microseconds(20), .execution = absl::Microseconds(100)};
  const bool had_predictions = scenario_.hints || lane.core.PredictedExecution(facts.model, facts.rows) > hint.wait ||
                               lane.core.PredictedDelay(now) > absl::ZeroDuration();
  const scheduler::Admission admission = lane.core.Submit(facts, now, hint);
  lane.checker.OnSubmit(facts, admission, had_predictions, now);
  if (!admission.admitted()) {
    ++lane.totals.refused;
    Finish(facts.id, Outcome::kRefused);
    return;
  }
  if (lane.random.Chance(lane.made.cancel_chance)) {
    const absl::Duration after = lane.random.Between(absl::ZeroDuration(), absl::Milliseconds(10));
    loop_.After(after, [this, &lane, id = facts.id] { Cancel(lane, id); });
  }
  TryStart(lane);
  ScheduleExpiry(lane);
}

void Simulation::Finish(RequestId id, Outcome outcome) {
  Request& finished = request(id);
  if (finished.outcome != Outcome::kNone) {
    failure_.Report(loop_.now(), "request ", id.value(), " was answered twice");
    return;
  }
  finished.outcome = outcome;
  CheckAnswerTime(id);
  // A token that is with an execution is released there.
  if (finished.execution == 0) {
    device_side_.gate().Release(finished.token, false);
    finished.token = {};
  }
  Lane& own = lane(finished.request_class);
  if (own.made.arrivals == Arrivals::kClosedLoop) ReturnClient(own);
}

/// Whatever the outcome and whatever the device does: an answer comes at most 5 ms after the deadline.
void Simulation::CheckAnswerTime(RequestId id) {
  const Request& answered = request(id);
  if (answered.deadline.is_infinite()) return;
  const absl::Duration late = loop_.now() - std::max(answered.deadline, last_jump_);
  const absl::Duration after = loop_.now() - answered.arrival;
  if (late > absl::Milliseconds(5) || after > scenario_.longest_answer) {
    failure_.Report(loop_.now(), "request ", id.value(), " was answered after ", absl::FormatDuration(after), ", ",
                    absl::FormatDuration(late), " after its deadline");
  }
}

void Simulation::TryStart(Lane& lane) {
  if (lost_) return;
  while (lane.busy_threads < lane.made.thread_count && !failure_.found()) {
    const std::optional<scheduler::Pick> pick = lane.core.PickNext(loop_.now());
    lane.checker.OnPick(pick, loop_.now());
    if (pick.has_value()) {
      Start(lane, *pick);
      continue;
    }
    const Time next = lane.core.NextPick();
    if (next < lane.pick_at) {
      lane.pick_at = next;
      loop_.At(next, [this, &lane] {
        lane.pick_at = Time::Infinite();
        TryStart(lane);
      });
    }
    break;
  }
  ScheduleExpiry(lane);
}

void Simulation::Start(Lane& lane, const scheduler::Pick& pick) {
  ++lane.busy_threads;
  const uint64_t execution = ++last_execution_;
  running_[execution] = {.pick = pick, .request_class = lane.request_class, .started = loop_.now()};
  DeviceSide::Start start{.execution = execution, .request_class = lane.request_class, .rows = pick.rows, .tokens = {}};
  for (const SimModel& model : scenario_.models) {
    if (model.id == pick.model) start.model = &model;
  }
  for (const RequestId id : pick.requests) {
    request(id).execution = execution;
    // Without a token there was no place for one: the gate counts such requests by themselves.
    if (lane.request_class == RequestClass::kLatency) start.tokens.push_back(request(id).token);
  }
  device_side_.Begin(std::move(start));
}

void Simulation::OnEnd(uint64_t execution, bool succeeded) {
  const Running ended = running_.at(execution);
  running_.erase(execution);
  Lane& own = lane(ended.request_class);
  --own.busy_threads;
  const Time now = loop_.now();
  const std::vector<RequestId> unanswered =
      own.core.OnCompleted(ended.pick.execution, now, succeeded ? std::optional(now - ended.started) : std::nullopt);
  own.checker.OnCompleted(ended.pick, unanswered, now);
  for (const RequestId id : unanswered) {
    ++(succeeded ? own.totals.completed : own.totals.failed);
    const bool counts = succeeded && now <= request(id).deadline && duration() <= scenario_.arrivals_end;
    own.totals.completed_in_time += counts;
    Finish(id, succeeded ? Outcome::kCompleted : Outcome::kFailed);
  }
  // From an event of its own, as another thread would: the caller may be in the middle of a round.
  loop_.After(absl::ZeroDuration(), [this, &own] { TryStart(own); });
}

void Simulation::ScheduleExpiry(Lane& lane) {
  const Time next = lane.core.NextExpiry();
  if (next.is_infinite()) return;
  const Time at = std::max({next, lane.last_expiry + absl::Milliseconds(1), loop_.now()});
  if (at >= lane.expire_at) return;
  lane.expire_at = at;
  loop_.At(at, [this, &lane, at] {
    if (lane.expire_at == at) RunExpiry(lane);
  });
}

void Simulation::RunExpiry(Lane& lane) {
  lane.expire_at = Time::Infinite();
  lane.last_expiry = loop_.now();
  const std::vector<scheduler::Expired> expired = lane.core.Expire(loop_.now());
  lane.checker.OnExpired(expired, loop_.now());
  for (const scheduler::Expired& one : expired) {
    if (failure_.found()) return;
    ++lane.totals.expired;
    Finish(one.id, Outcome::kExpired);
    if (one.place == RequestPlace::kExecuting) StopIfUnwanted(one.id);
  }
  ScheduleExpiry(lane);
}

void Simulation::Cancel(Lane& lane, RequestId id) {
  const RequestPlace place = lane.core.Cancel(id);
  lane.checker.OnCancel(id, place, loop_.now());
  if (place == RequestPlace::kUnknown) return;
  ++lane.totals.cancelled;
  Finish(id, Outcome::kCancelled);
  if (place == RequestPlace::kExecuting) StopIfUnwanted(id);
}

bool Simulation::IsWanted(const Running& running) const {
  return std::any_of(running.pick.requests.begin(), running.pick.requests.end(),
                     [this](RequestId each) { return requests_[each.value()].outcome == Outcome::kNone; });
}

/// Once all its requests are answered, nothing more of an execution may be issued.
void Simulation::CheckIssued(uint64_t execution) {
  if (!IsWanted(running_.at(execution))) {
    failure_.Report(loop_.now(), "execution ", execution, " goes on although nobody waits for it");
  }
}

void Simulation::StopIfUnwanted(RequestId id) {
  const uint64_t execution = request(id).execution;
  const auto it = running_.find(execution);
  if (it != running_.end() && !IsWanted(it->second)) device_side_.Stop(execution);
}

void Simulation::Drain() {
  for (const auto& each : lanes_) {
    each->core.SetDraining(true);
    each->checker.OnDraining();
    TryStart(*each);
  }
}

void Simulation::LoseDevice() {
  lost_ = true;
  Drain();
  for (const auto& each : lanes_) {
    const std::vector<RequestId> taken = each->core.TakeQueued();
    each->checker.OnTaken(taken, loop_.now());
    for (const RequestId id : taken) {
      ++each->totals.failed;
      Finish(id, Outcome::kFailed);
    }
    ScheduleExpiry(*each);
  }
  device_side_.Lose();
}

void Simulation::RemoveModel() {
  const ModelId model = scenario_.models.front().id;
  for (const auto& each : lanes_) {
    const std::vector<RequestId> taken = each->core.RemoveModel(model);
    each->checker.OnModelRemoved(model, taken, loop_.now());
    for (const RequestId id : taken) {
      ++each->totals.failed;
      Finish(id, Outcome::kFailed);
    }
  }
}

void Simulation::CheckComputedShare() {
  if (requests_.size() > static_cast<size_t>(scenario_.request_count)) return;
  computed_by_batch_.push_back(device_side_.device().computed(RequestClass::kBatch));
  // The first second starts once batch is there; then every second counts.
  constexpr size_t kSteps = 20;
  if (computed_by_batch_.size() > kSteps + 1) {
    const absl::Duration computed =
        computed_by_batch_.back() - computed_by_batch_[computed_by_batch_.size() - 1 - kSteps];
    const double share = absl::FDivDuration(computed, absl::Seconds(1));
    // Owed units may wait 10 ms at each end of a second, and what was owed before it may be paid in it.
    if (share < scenario_.gate.batch_min_share - 0.002) {
      failure_.Report(loop_.now(), "batch computed ", share, " of one second");
    }
  }
  loop_.After(absl::Milliseconds(50), [this] { CheckComputedShare(); });
}

double Simulation::goodput() const {
  if (scenario_.arrivals_end == absl::InfiniteDuration()) return 0;
  uint64_t in_time = 0;
  for (const auto& each : lanes_) in_time += each->totals.completed_in_time;
  const SimModel& model = scenario_.models.front();
  return absl::FDivDuration(model.unit_time * model.unit_count * in_time, scenario_.arrivals_end);
}

void Simulation::CheckAtEnd() {
  const Time now = loop_.now();
  if (goodput() < scenario_.least_goodput) {
    failure_.Report(now, "goodput is ", goodput(), " of what the device can do, less than ", scenario_.least_goodput);
  }
  if (!device_side_.idle() || !running_.empty()) failure_.Report(now, running_.size(), " executions never ended");
  std::array<ClassTotals, kRequestClassCount> ledger;
  for (size_t id = 1; id < requests_.size(); ++id) {
    const Request& each = requests_[id];
    ClassTotals& totals = ledger[static_cast<size_t>(each.request_class)];
    ++totals.submitted;
    if (each.outcome == Outcome::kNone) failure_.Report(now, "request ", id, " was never answered");
    totals.refused += each.outcome == Outcome::kRefused;
    totals.completed += each.outcome == Outcome::kCompleted;
    totals.expired += each.outcome == Outcome::kExpired;
    totals.cancelled += each.outcome == Outcome::kCancelled;
    totals.failed += each.outcome == Outcome::kFailed;
  }
  for (const auto& each : lanes_) {
    const ClassTotals& counted = each->totals;
    const ClassTotals& truth = ledger[static_cast<size_t>(each->request_class)];
    if (counted.submitted != truth.submitted || counted.refused != truth.refused ||
        counted.completed != truth.completed || counted.expired != truth.expired ||
        counted.cancelled != truth.cancelled || counted.failed != truth.failed ||
        counted.submitted !=
            counted.refused + counted.completed + counted.expired + counted.cancelled + counted.failed) {
      failure_.Report(now, "the counters of ", RequestClassName(each->request_class), " do not add up");
    }
    if (each->core.counts().queued != 0 || each->core.counts().executions != 0) {
      failure_.Report(now, RequestClassName(each->request_class), " has requests left");
    }
  }
  device_side_.gate().CheckAtEnd();
}

}  // namespace sluice::sim
