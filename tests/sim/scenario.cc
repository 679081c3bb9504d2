// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/random.h"

namespace sluice::sim {
namespace {

using scheduler::ModelLimits;

SimModel MakeModel(uint64_t id, Random random) {
  SimModel model;
  model.id = ModelId(id);
  model.unit_count = static_cast<int>(random.Between(1, 12));
  model.unit_time = random.Between(absl::Microseconds(8), absl::Microseconds(50));
  if (random.Chance(0.1)) model.unit_time = random.Between(absl::Microseconds(80), absl::Microseconds(400));
  model.time_per_row = random.Real(0.05, 0.5);
  model.chunk_count = static_cast<int>(random.Between(1, 4));
  model.chunk_time = random.Between(absl::Microseconds(2), absl::Microseconds(25));
  model.largest_request_rows = random.Chance(0.5) ? 1 : random.Between(2, 12);
  model.shape_bucket_count = random.Chance(0.3) ? 3 : 1;
  ModelLimits& limits = model.limits;
  limits.max_batch_rows = random.Between(1, 16);
  limits.merges_requests = random.Chance(0.6);
  limits.max_concurrent_executions = static_cast<int>(random.Between(1, 3));
  if (random.Chance(0.3)) limits.max_queue_size = static_cast<uint32_t>(random.Between(1, 20));
  if (random.Chance(0.5)) limits.max_queue_delay = random.Between(absl::Microseconds(50), absl::Milliseconds(5));
  if (random.Chance(0.5)) {
    for (int i = 0; i < 2; ++i) limits.preferred_batch_sizes.push_back(random.Between(1, limits.max_batch_rows));
  }
  return model;
}

absl::Duration MeanExecutionTime(const Scenario& scenario) {
  absl::Duration sum;
  for (const SimModel& model : scenario.models) {
    sum += model.UnitTime((1 + model.largest_request_rows) / 2) * model.unit_count;
  }
  return sum / static_cast<double>(scenario.models.size());
}

ClassScenario MakeClass(RequestClass request_class, absl::Duration mean_execution, Random random) {
  ClassScenario made;
  made.present = random.Chance(0.85);
  made.arrivals = static_cast<Arrivals>(random.Between(0, 2));
  // Part of the compute engine that the class asks for; batch often more than there is.
  double load = random.Real(0.05, 0.7);
  if (request_class == RequestClass::kStandard) load = random.Real(0.05, 0.5);
  if (request_class == RequestClass::kBatch) load = random.Real(0.2, 2.5);
  if (random.Chance(0.15)) load = 1.5;
  made.mean_gap = mean_execution / load;
  made.thread_count = static_cast<int>(random.Between(1, 3));
  made.options.request_class = request_class;
  made.options.max_concurrent_executions = made.thread_count;
  made.options.max_requests = static_cast<size_t>(random.Chance(0.3) ? random.Between(2, 16) : 256);
  if (random.Chance(0.3)) made.options.max_bytes = static_cast<size_t>(random.Between(1'000, 100'000));
  if (random.Chance(0.6)) made.deadline_chance = random.Fraction();
  if (random.Chance(0.5)) made.timeout_chance = random.Fraction();
  if (random.Chance(0.5)) made.cancel_chance = random.Real(0.0, 0.3);
  made.longest_deadline = random.Between(absl::Milliseconds(1), absl::Milliseconds(200));
  made.longest_timeout = random.Between(absl::Microseconds(100), absl::Milliseconds(50));
  return made;
}

void AddFaults(Scenario& scenario, Random random) {
  if (random.Chance(0.5)) scenario.prediction_error = random.Real(0.05, 0.6);
  if (random.Chance(0.3)) scenario.slow_chance = random.Real(0.0001, 0.01);
  if (random.Chance(0.25)) scenario.copy_failure_chance = random.Real(0.0005, 0.02);
  if (random.Chance(0.3)) scenario.late_event_chance = random.Real(0.001, 0.05);
  const auto some_time = [&random] { return random.Between(absl::Milliseconds(1), absl::Seconds(2)); };
  if (random.Chance(0.25)) {
    for (int64_t i = random.Between(1, 4); i > 0; --i) scenario.jumps_at.push_back(some_time());
  }
  if (random.Chance(0.15)) scenario.lost_at = some_time();
  if (scenario.lost_at && random.Chance(0.5)) {
    scenario.hangs_at = std::max(*scenario.lost_at - random.Between(absl::Milliseconds(1), absl::Milliseconds(100)),
                                 absl::ZeroDuration());
  }
  if (random.Chance(0.1)) scenario.drains_at = some_time();
  if (random.Chance(0.2)) scenario.removes_model_at = some_time();
  if (random.Chance(0.25)) scenario.allocation_failure_chance = random.Real(0.001, 0.05);
}

}  // namespace

Scenario MakeScenario(uint64_t seed, int request_count) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.request_count = request_count > 0 ? request_count : static_cast<int>(random.Between(500, 6'000));
  for (int64_t id = random.Between(1, 4); id > 0; --id) {
    scenario.models.push_back(MakeModel(static_cast<uint64_t>(id), random.Fork()));
  }
  const absl::Duration mean_execution = MeanExecutionTime(scenario);
  for (const RequestClass request_class : kRequestClasses) {
    scenario.of(request_class) = MakeClass(request_class, mean_execution, random.Fork());
  }
  if (!scenario.classes[0].present && !scenario.classes[1].present) scenario.of(RequestClass::kBatch).present = true;
  if (random.Chance(0.3))
    scenario.gate.compute_window = random.Between(absl::Microseconds(10), absl::Microseconds(300));
  if (random.Chance(0.5)) scenario.gate.handover = random.Between(absl::Microseconds(1), absl::Microseconds(60));
  if (random.Chance(0.3)) scenario.gate.copy_window = static_cast<int>(random.Between(1, 4));
  if (random.Chance(0.4)) scenario.gate.batch_min_share = random.Chance(0.3) ? 0 : random.Real(0.01, 0.3);
  scenario.latency_capable = scenario.of(RequestClass::kLatency).present || random.Chance(0.5);
  scenario.hints = random.Chance(0.3);
  if (random.Chance(0.7)) AddFaults(scenario, random.Fork());
  return scenario;
}

Scenario MakeFloorScenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.request_count = 30'000;
  SimModel model;
  model.id = ModelId(1);
  model.unit_count = 4;
  model.unit_time = absl::Microseconds(60);
  model.chunk_count = 2;
  model.chunk_time = absl::Microseconds(10);
  model.limits.max_concurrent_executions = 4;
  scenario.models.push_back(model);
  // One latency thread, so that the device gets to others between its kernels (with kernels of two always pending it
  // never would, whatever the gate grants), and tokens that do not lapse before the next ones come, so that the gate
  // never opens by itself. With standard in its place as many threads as there are.
  const RequestClass greedy = seed % 2 == 0 ? RequestClass::kStandard : RequestClass::kLatency;
  for (const RequestClass request_class : {greedy, RequestClass::kBatch}) {
    ClassScenario& made = scenario.of(request_class);
    made.present = true;
    made.options.request_class = request_class;
    made.options.max_requests = 64;
    made.mean_gap = random.Between(absl::Microseconds(150), absl::Microseconds(220));
    if (request_class == RequestClass::kBatch) made.mean_gap = absl::Microseconds(500);
    made.thread_count = request_class == RequestClass::kLatency ? 1 : 3;
    made.options.max_concurrent_executions = made.thread_count;
  }
  if (greedy == RequestClass::kLatency) scenario.gate.compute_window = absl::Milliseconds(2);
  scenario.gate.batch_min_share = random.Real(0.03, 0.15);
  scenario.gate.handover = absl::Microseconds(15);
  scenario.prediction_error = 0.2;
  scenario.checks_computed_share = true;
  return scenario;
}

namespace {

SimModel MakePlainModel(uint64_t id, int unit_count, absl::Duration execution_time) {
  SimModel model;
  model.id = ModelId(id);
  model.unit_count = unit_count;
  model.unit_time = execution_time / unit_count;
  model.chunk_time = absl::Microseconds(10);
  model.limits.max_concurrent_executions = 4;
  return model;
}

}  // namespace

Scenario MakeBlockerScenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.request_count = 2'000;
  // One unit that takes seconds, or many: only between units can it be held back or stopped.
  const int slow_unit_count = random.Chance(0.5) ? 1 : static_cast<int>(random.Between(10, 200));
  const absl::Duration slow_time = random.Between(absl::Milliseconds(500), absl::Seconds(3));
  scenario.models = {MakePlainModel(1, 4, absl::Microseconds(240)), MakePlainModel(2, slow_unit_count, slow_time)};
  for (const RequestClass request_class : kRequestClasses) {
    ClassScenario& made = scenario.of(request_class);
    made.present = random.Chance(0.7);
    made.options.request_class = request_class;
    made.mean_gap = random.Between(absl::Milliseconds(2), absl::Milliseconds(20));
    made.thread_count = made.options.max_concurrent_executions = static_cast<int>(random.Between(1, 2));
    made.deadline_chance = 1;
    made.shortest_deadline = made.longest_deadline = absl::Milliseconds(100);
  }
  const auto some_class = [&random] { return kRequestClasses[static_cast<size_t>(random.Between(0, 2))]; };
  scenario.of(some_class()).present = true;
  for (int64_t i = random.Between(2, 6); i > 0; --i) {
    scenario.blockers.push_back(
        {.at = random.Between(absl::ZeroDuration(), absl::Seconds(3)), .request_class = some_class()});
  }
  if (random.Chance(0.3)) {
    scenario.hangs_at = random.Between(absl::Milliseconds(1), absl::Seconds(3));
    scenario.lost_at = *scenario.hangs_at + absl::Seconds(2);
  }
  if (random.Chance(0.3)) scenario.late_event_chance = 0.05;
  scenario.longest_answer = absl::Milliseconds(110);
  return scenario;
}

Scenario MakeOverloadScenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.request_count = 1'000'000;
  scenario.arrivals_end = absl::Seconds(5);
  constexpr std::array kUnitCounts = {1, 10, 100, 400};
  const int unit_count = kUnitCounts[static_cast<size_t>(random.Between(0, 3))];
  scenario.models = {MakePlainModel(1, unit_count, absl::Milliseconds(20))};
  const RequestClass request_class = kRequestClasses[static_cast<size_t>(random.Between(0, 2))];
  ClassScenario& made = scenario.of(request_class);
  made.present = true;
  made.arrivals = Arrivals::kClosedLoop;
  made.client_count = 16;
  made.mean_gap = random.Between(absl::Milliseconds(1), absl::Milliseconds(10));
  made.options.request_class = request_class;
  made.thread_count = made.options.max_concurrent_executions = static_cast<int>(random.Between(1, 3));
  made.deadline_chance = 1;
  made.shortest_deadline = made.longest_deadline = absl::Milliseconds(100);
  if (random.Chance(0.7)) scenario.prediction_error = random.Real(0.0, 0.2);
  scenario.least_goodput = 0.85;
  return scenario;
}

Scenario MakeScenarioOf(ScenarioKind kind, uint64_t seed, int request_count) {
  switch (kind) {
    case ScenarioKind::kGeneral:
      break;
    case ScenarioKind::kFloor:
      return MakeFloorScenario(seed);
    case ScenarioKind::kBlocker:
      return MakeBlockerScenario(seed);
    case ScenarioKind::kOverload:
      return MakeOverloadScenario(seed);
  }
  return MakeScenario(seed, request_count);
}

std::string Describe(const Scenario& scenario) {
  std::string text = absl::StrCat("seed ", scenario.seed, ": ", scenario.request_count, " requests, ",
                                  scenario.models.size(), " models");
  for (const RequestClass request_class : kRequestClasses) {
    const ClassScenario& made = scenario.of(request_class);
    if (!made.present) continue;
    absl::StrAppend(&text, ", ", RequestClassName(request_class), " every ", absl::FormatDuration(made.mean_gap),
                    " on ", made.thread_count, " threads");
  }
  const auto fault = [&text](bool on, const char* name) {
    if (on) absl::StrAppend(&text, ", ", name);
  };
  fault(scenario.slow_chance > 0, "slow kernels");
  fault(scenario.copy_failure_chance > 0, "failing copies");
  fault(scenario.allocation_failure_chance > 0, "failing allocations");
  fault(scenario.late_event_chance > 0, "late events");
  fault(!scenario.jumps_at.empty(), "clock jumps");
  fault(scenario.hangs_at.has_value(), "hang");
  fault(scenario.lost_at.has_value(), "device lost");
  fault(scenario.drains_at.has_value(), "drain");
  fault(scenario.removes_model_at.has_value(), "model removed");
  return text;
}

}  // namespace sluice::sim
