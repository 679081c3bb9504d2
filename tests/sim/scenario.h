// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulation of what decides on one device: three scheduler cores, the gate, the launcher's and the request
// threads' side of them, in virtual time, from one seed.
//
// Fault model. What must be survived, each on or off by seed:
//  - a kernel takes 100 times as long as predicted;
//  - a copy fails: its execution ends in an error;
//  - an execution gets no memory (or no slot in time): it ends in an error before anything is issued;
//  - the completion of a unit or chunk is seen late, by up to 3 ms;
//  - an event never fires until the device is lost;
//  - the device is lost at any time: what is in flight never completes, nothing more is admitted;
//  - the client cancels at any time;
//  - the clock jumps ahead by up to 2 s, and everything due in between happens late;
//  - a model is removed, or the server drains, under load;
//  - predictions are off by up to 60 %.
// Not modelled: wrong arithmetic, requests that wait for response memory (the core's unit tests do), a clock that goes
// backwards, two threads inside one call (the unit tests of the gate and of the class queue have threads), a launch
// whose status is lost.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "server/scheduler/types.h"
#include "tests/sim/planted.h"

namespace sluice::sim {

struct SimModel {
  ModelId id;
  int unit_count = 1;
  absl::Duration unit_time;  ///< Predicted, for one row.
  double time_per_row = 0;   ///< What each further row adds, as a part of unit_time.
  int chunk_count = 1;       ///< Per direction.
  absl::Duration chunk_time;
  int64_t largest_request_rows = 1;
  uint32_t shape_bucket_count = 1;
  scheduler::ModelLimits limits;

  /// In whole nanoseconds, as the gate counts.
  absl::Duration UnitTime(int64_t rows) const {
    return absl::Trunc(unit_time * (1.0 + time_per_row * static_cast<double>(rows - 1)), absl::Nanoseconds(1));
  }
};

/// kClosedLoop: clients that wait for each answer, and then mean_gap at the mean.
enum class Arrivals : uint8_t { kPoisson, kBursts, kTrace, kClosedLoop };

struct ClassScenario {
  bool present = false;
  Arrivals arrivals = Arrivals::kPoisson;
  absl::Duration mean_gap;
  int client_count = 0;  ///< Of a closed loop.
  int thread_count = 1;
  scheduler::CoreOptions options;
  double deadline_chance = 0, timeout_chance = 0, cancel_chance = 0;
  absl::Duration shortest_deadline, longest_deadline, longest_timeout;
};

struct Scenario {
  uint64_t seed = 0;
  Plant plant = Plant::kNone;
  int request_count = 0;
  absl::Duration arrivals_end = absl::InfiniteDuration();
  std::array<ClassScenario, kRequestClassCount> classes;
  std::vector<SimModel> models;
  gpu::GateOptions gate;
  bool latency_capable = true;
  bool hints = false;                  ///< Submit with the caller's own predictions.
  bool checks_computed_share = false;  ///< Of batch, in every second: see MakeFloorScenario.
  /// A request of the last model, which no other request is for, without a deadline.
  struct Blocker {
    absl::Duration at;
    RequestClass request_class = RequestClass::kBatch;
  };
  std::vector<Blocker> blockers;
  absl::Duration longest_answer = absl::InfiniteDuration();  ///< For a request that has a deadline.
  /// What requests that complete in time take alone, as a part of the time for which requests arrive.
  double least_goodput = 0;

  double prediction_error = 0;
  double slow_chance = 0;
  double copy_failure_chance = 0;
  double allocation_failure_chance = 0;
  double late_event_chance = 0;
  std::vector<absl::Duration> jumps_at;
  std::optional<absl::Duration> hangs_at, lost_at, drains_at, removes_model_at;

  ClassScenario& of(RequestClass request_class) { return classes[static_cast<size_t>(request_class)]; }
  const ClassScenario& of(RequestClass request_class) const { return classes[static_cast<size_t>(request_class)]; }
};

/// A subset of all features, chosen by the seed. `request_count` 0: chosen too.
Scenario MakeScenario(uint64_t seed, int request_count);

enum class ScenarioKind : uint8_t { kGeneral, kFloor, kBlocker, kOverload };
inline constexpr std::array<absl::string_view, 4> kScenarioWords = {"general", "floor", "blocker", "overload"};
inline absl::string_view ScenarioWord(ScenarioKind kind) { return kScenarioWords[static_cast<size_t>(kind)]; }

/// No faults: latency or standard work that never ends and never leaves room, and batch that always has work. Batch's
/// share must be what the floor promises, in time that was really computed.
Scenario MakeFloorScenario(uint64_t seed);

/// Requests with deadlines of 100 ms behind executions that take seconds, on a device that may hang: each is answered
/// within 110 ms.
Scenario MakeBlockerScenario(uint64_t seed);

/// 16 clients that wait for each answer, 20 ms of work for each request, deadlines of 100 ms: three times what the
/// device can do. 85 % of its time must go to requests that complete.
Scenario MakeOverloadScenario(uint64_t seed);

/// `request_count` is for the general kind.
Scenario MakeScenarioOf(ScenarioKind kind, uint64_t seed, int request_count);

std::string Describe(const Scenario& scenario);

}  // namespace sluice::sim
