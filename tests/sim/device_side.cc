// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/device_side.h"

#include <algorithm>
#include <utility>

namespace sluice::sim {

using gpu::Engine;

DeviceSide::DeviceSide(const Scenario& scenario, EventLoop& loop, Failure& failure, Random random, OnIssue on_issue,
                       OnEnd on_end)
    : scenario_(scenario),
      loop_(loop),
      failure_(failure),
      random_(random),
      on_issue_(std::move(on_issue)),
      on_end_(std::move(on_end)),
      gate_(scenario.gate, scenario.latency_capable, scenario.plant, loop, failure),
      device_(loop),
      launcher_(gate_.gate(), scenario.plant) {
  for (const RequestClass request_class : kRequestClasses) {
    for (int i = 0; i < scenario.of(request_class).thread_count; ++i) {
      const int stream = device_.AddStream(request_class == RequestClass::kLatency);
      free_streams_[static_cast<size_t>(request_class)].push_back(stream);
      if (request_class == RequestClass::kStandard) {
        standard_[stream] = std::make_unique<Asker>(gate_.gate(), scenario.plant);
      }
    }
  }
}

DeviceSide::Execution* DeviceSide::Find(uint64_t id) {
  const auto it = executions_.find(id);
  return it == executions_.end() ? nullptr : &it->second;
}

std::vector<DeviceSide::Step> DeviceSide::MakeSteps(const SimModel& model, int64_t rows) {
  std::vector<Step> steps;
  const auto add = [&](Engine engine, absl::Duration predicted) {
    Step step{.engine = engine, .predicted = predicted, .duration = predicted, .seen_after = {}};
    if (scenario_.prediction_error > 0) {
      step.duration *= random_.Real(1 - scenario_.prediction_error, 1 + scenario_.prediction_error);
    }
    if (engine == Engine::kCompute && random_.Chance(scenario_.slow_chance)) step.duration *= 100;
    if (random_.Chance(scenario_.late_event_chance)) {
      step.seen_after = random_.Between(absl::ZeroDuration(), absl::Milliseconds(3));
    }
    step.fails = engine != Engine::kCompute && random_.Chance(scenario_.copy_failure_chance);
    steps.push_back(step);
  };
  for (int i = 0; i < model.chunk_count; ++i) add(Engine::kHostToDevice, model.chunk_time);
  for (int i = 0; i < model.unit_count; ++i) add(Engine::kCompute, model.UnitTime(rows));
  for (int i = 0; i < model.chunk_count; ++i) add(Engine::kDeviceToHost, model.chunk_time);
  return steps;
}

void DeviceSide::Begin(Start start) {
  auto& streams = free_streams_[static_cast<size_t>(start.request_class)];
  Execution& execution = executions_[start.execution];
  execution.id = start.execution;
  execution.request_class = start.request_class;
  execution.tokens = std::move(start.tokens);
  execution.stream = streams.back();
  streams.pop_back();
  execution.steps = MakeSteps(*start.model, start.rows);
  const double failure_chance = scenario_.allocation_failure_chance;
  execution.fails_at_once = failure_chance > 0 && random_.Chance(failure_chance);
  // A token may have lapsed while its request waited; now it is known when the work comes.
  const absl::Duration copy_in = CopyInTime(start.rows);
  for (const gpu::GateToken token : execution.tokens) {
    gate_.Reannounce(token, loop_.now() + copy_in + start.model->chunk_time * start.model->chunk_count);
  }
  loop_.After(copy_in, [this, id = start.execution] { Issue(id); });
}

void DeviceSide::Issue(uint64_t id) {
  Execution* execution = Find(id);
  if (execution == nullptr) return;
  if (execution->fails_at_once) {
    End(id, false);
    return;
  }
  execution->issued = true;
  switch (execution->request_class) {
    case RequestClass::kLatency:
      IssueLatency(*execution);
      break;
    case RequestClass::kStandard:
      standard_[execution->stream]->execution = id;
      RunStandard(id);
      break;
    case RequestClass::kBatch:
      active_.push_back(id);
      RunLauncher();
      break;
  }
}

void DeviceSide::IssueLatency(Execution& execution) {
  if (execution.stopped) {
    End(execution.id, false);
    return;
  }
  on_issue_(execution.id);
  execution.entered = true;
  execution.lower_at_entry = device_.lower_ended();
  for (const gpu::GateToken token : execution.tokens) gate_.EnterDevice(token);
  // Latency transfers are made by a kernel of their own: they queue behind no copy.
  absl::Duration copying;
  for (const Step& step : execution.steps) {
    if (step.engine == Engine::kHostToDevice) copying += step.duration;
    execution.failed = execution.failed || step.fails;
  }
  loop_.After(copying, [this, id = execution.id] { LaunchLatencyUnits(id); });
}

void DeviceSide::LaunchLatencyUnits(uint64_t id) {
  Execution* execution = Find(id);
  if (execution == nullptr) return;
  if (execution->failed) {
    End(id, false);
    return;
  }
  const auto is_unit = [](const Step& step) { return step.engine == Engine::kCompute; };
  const auto count = std::count_if(execution->steps.begin(), execution->steps.end(), is_unit);
  int64_t index = 0;
  for (const Step& step : execution->steps) {
    if (!is_unit(step)) continue;
    ++index;
    SimDevice::Unit unit{.request_class = RequestClass::kLatency,
                         .predicted = step.predicted,
                         .duration = step.duration,
                         .seen_after = step.seen_after};
    if (index == 1) unit.on_start = [this, id] { OnFirstLatencyUnit(id); };
    if (index == count) unit.on_done = [this, id](absl::Duration) { OnLastLatencyUnit(id); };
    device_.Launch(execution->stream, std::move(unit));
  }
}

void DeviceSide::OnFirstLatencyUnit(uint64_t id) {
  const Execution* execution = Find(id);
  if (execution == nullptr) return;
  const SimDevice::LowerWork now = device_.lower_started();
  const absl::Duration in_the_way = now.predicted - execution->lower_at_entry.predicted;
  const int unit_count = now.unit_count - execution->lower_at_entry.unit_count;
  // More than a window is in flight as one long unit, or as up to three while one or two hand over to the next.
  const int long_units = gate_.gate().options().handover > absl::ZeroDuration() ? 3 : 1;
  if (in_the_way > gate_.window() && unit_count > long_units) {
    failure_.Report(loop_.now(), "a latency execution waited for ", unit_count, " lower units of ",
                    absl::FormatDuration(in_the_way), ", more than one window");
  }
}

void DeviceSide::OnLastLatencyUnit(uint64_t id) {
  Execution* execution = Find(id);
  if (execution == nullptr) return;
  ReleaseTokens(*execution);
  absl::Duration copying;
  for (const Step& step : execution->steps) {
    if (step.engine == Engine::kDeviceToHost) copying += step.duration;
  }
  loop_.After(copying, [this, id] {
    if (Find(id) != nullptr) End(id, true);
  });
}

void DeviceSide::ReleaseTokens(Execution& execution) {
  for (const gpu::GateToken token : execution.tokens) gate_.Release(token, execution.entered);
  execution.tokens.clear();
}

DeviceSide::Advance DeviceSide::AdvanceOne(Execution& execution, Time& retry_at) {
  if (execution.stopped || execution.failed || execution.next == execution.steps.size()) return Advance::kEnded;
  Step& step = execution.steps[execution.next];
  // Inputs must have been seen to arrive before the first unit is issued, results before they are copied out.
  const bool first_of_engine = execution.next > 0 && execution.steps[execution.next - 1].engine != step.engine;
  if (first_of_engine && execution.seen < execution.next) return Advance::kWaiting;
  const gpu::Grant grant = Ask(execution, step);
  if (!grant.granted) {
    retry_at = std::min(retry_at, grant.retry_at);
    return Advance::kRefused;
  }
  LaunchStep(execution, step, grant.owed);
  return Advance::kIssued;
}

gpu::Grant DeviceSide::Ask(const Execution& execution, Step& step) {
  const bool batch_unit = execution.request_class == RequestClass::kBatch && step.engine == Engine::kCompute;
  if (scenario_.plant == Plant::kUngatedUnit && batch_unit && skips_gate_()) {
    step.ungated = true;
    return {.granted = true};
  }
  return gate_.TryGrant(step.engine, execution.request_class, step.predicted);
}

/// What Ask took.
void DeviceSide::Return(const Execution& execution, const Step& step, absl::Duration measured) {
  if (!step.ungated) gate_.Complete(step.engine, execution.request_class, step.predicted, measured);
}

void DeviceSide::LaunchStep(Execution& execution, const Step& step, bool owed) {
  on_issue_(execution.id);
  const size_t step_index = execution.next++;
  ++execution.in_flight;
  SimDevice::Unit unit{.request_class = execution.request_class,
                       .predicted = step.predicted,
                       .owed = owed,
                       .duration = step.duration,
                       .seen_after = step.seen_after};
  unit.on_done = [this, id = execution.id, step_index](absl::Duration measured) {
    OnStepDone(id, step_index, measured);
  };
  if (step.engine == Engine::kCompute) {
    device_.Launch(execution.stream, std::move(unit));
  } else {
    device_.Copy(step.engine, std::move(unit));
  }
}

void DeviceSide::OnStepDone(uint64_t id, size_t step_index, absl::Duration measured) {
  Execution* execution = Find(id);
  if (execution == nullptr) return;
  const Step& step = execution->steps[step_index];
  --execution->in_flight;
  ++execution->seen;
  execution->failed = execution->failed || step.fails;
  Return(*execution, step, measured);
  if (execution->request_class == RequestClass::kStandard) {
    RunStandard(id);
  } else {
    RunLauncher();
  }
}

void DeviceSide::RunStandard(uint64_t id) {
  Execution& execution = executions_.at(id);
  Asker& asker = *standard_.at(execution.stream);
  asker.asleep = false;
  while (!failure_.found()) {
    Time retry_at = Time::Infinite();
    const Advance advance = AdvanceOne(execution, retry_at);
    if (advance == Advance::kIssued) {
      asker.armed = false;
      continue;
    }
    // Counted from the first refusal until something else is in the way: between two units no batch unit slips in.
    if (asker.counted_as_waiting != (advance == Advance::kRefused)) {
      asker.counted_as_waiting = !asker.counted_as_waiting;
      gate_.SetStandardWaiting(asker.counted_as_waiting ? 1 : -1);
    }
    if (advance == Advance::kEnded && execution.in_flight == 0) {
      asker.execution = 0;
      End(id, !execution.stopped && !execution.failed);
    }
    if (advance != Advance::kRefused) return;
    if (asker.armed) {
      Sleep(asker, retry_at);
      return;
    }
    asker.waiter.Arm();
    asker.armed = true;
  }
}

bool DeviceSide::AdvanceAllBatch(bool& refused, Time& retry_at) {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    const uint64_t id = active_[i];
    Execution& execution = executions_.at(id);
    Advance advance = AdvanceOne(execution, retry_at);
    for (; advance == Advance::kIssued; advance = AdvanceOne(execution, retry_at)) moved = true;
    refused = refused || advance == Advance::kRefused;
    if (advance == Advance::kEnded && execution.in_flight == 0) {
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      End(id, !execution.stopped && !execution.failed);
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

void DeviceSide::RunLauncher() {
  launcher_.asleep = false;
  while (!failure_.found()) {
    ReportPending();
    bool refused = false;
    Time retry_at = Time::Infinite();
    const bool moved = AdvanceAllBatch(refused, retry_at);
    ReportPending();
    if (moved) {
      launcher_.armed = false;
      continue;
    }
    if (!refused) return;
    if (launcher_.armed) {
      Sleep(launcher_, retry_at);
      return;
    }
    launcher_.waiter.Arm();
    launcher_.armed = true;
  }
}

void DeviceSide::ReportPending() {
  const bool pending = std::any_of(active_.begin(), active_.end(), [this](uint64_t id) {
    const Execution& execution = executions_.at(id);
    return !execution.stopped && !execution.failed && execution.next < execution.steps.size();
  });
  if (pending == pending_) return;
  pending_ = pending;
  gate_.SetBatchPending(pending);
}

void DeviceSide::Sleep(Asker& asker, Time retry_at) {
  asker.armed = false;
  asker.asleep = true;
  const uint64_t sleep = ++asker.sleeps;
  if (retry_at.is_infinite()) return;
  loop_.At(retry_at, [this, &asker, sleep] {
    if (asker.asleep && asker.sleeps == sleep) Wake(asker);
  });
}

void DeviceSide::Wake(Asker& asker) {
  asker.asleep = false;
  if (&asker == &launcher_) {
    RunLauncher();
  } else if (asker.execution != 0) {
    RunStandard(asker.execution);
  }
}

void DeviceSide::RunNotified() {
  bool ran = true;
  const auto run = [&](Asker& asker) {
    if (!asker.asleep || !asker.waiter.notified()) return;
    asker.waiter.WaitUntil(loop_.now(), Time::Zero());
    Wake(asker);
    ran = true;
  };
  while (ran && !failure_.found()) {
    ran = false;
    for (auto& [stream, asker] : standard_) run(*asker);
    run(launcher_);
  }
}

void DeviceSide::Stop(uint64_t id) {
  Execution* execution = Find(id);
  if (execution == nullptr || execution->stopped || scenario_.plant == Plant::kUnwantedGoesOn) return;
  execution->stopped = true;
  if (!execution->issued) return;
  // Running it may end it.
  const RequestClass request_class = execution->request_class;
  if (request_class == RequestClass::kStandard) RunStandard(id);
  if (request_class == RequestClass::kBatch) RunLauncher();
}

void DeviceSide::End(uint64_t id, bool succeeded) {
  Execution& execution = executions_.at(id);
  ReleaseTokens(execution);
  free_streams_[static_cast<size_t>(execution.request_class)].push_back(execution.stream);
  executions_.erase(id);
  if (scenario_.plant == Plant::kLostCompletion && loses_end_()) return;
  on_end_(id, succeeded);
}

void DeviceSide::Lose() {
  device_.Hang();
  active_.clear();
  ReportPending();
  while (!executions_.empty()) {
    Execution& execution = executions_.begin()->second;
    if (execution.request_class != RequestClass::kLatency) {
      // Steps complete out of order between engines but in order within one, and one engine is used at a time.
      for (size_t i = execution.next - execution.in_flight; i < execution.next; ++i) {
        const Step& step = execution.steps[i];
        Return(execution, step, absl::ZeroDuration());
      }
      if (execution.request_class == RequestClass::kStandard) {
        Asker& asker = *standard_.at(execution.stream);
        if (asker.counted_as_waiting) gate_.SetStandardWaiting(-1);
        asker.counted_as_waiting = asker.asleep = false;
        asker.execution = 0;
      }
    }
    End(execution.id, false);
  }
}

}  // namespace sluice::sim
