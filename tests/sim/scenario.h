// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulation of what decides on one device: three scheduler cores, the gate, the launcher's and the request
// threads' side of them, in virtual time, from one seed.
//
// Fault model. What must be survived, each on or off by seed:
//  - a kernel takes 100 times as long as predicted;
//  - a copy fails: its execution ends in an error;
//  - the completion of a unit or chunk is seen late, by up to 3 ms;
//  - an event never fires until the device is lost;
//  - the device is lost at any time: what is in flight never completes, nothing more is admitted;
//  - the client cancels at any time;
//  - the clock jumps ahead by up to 2 s, and everything due in between happens late;
//  - a model is removed, or the server drains, under load;
//  - predictions are off by up to 60 %.
// Not modelled: wrong arithmetic, memory that runs out, a clock that goes backwards, two threads inside one call (the
// unit tests of the gate and of the class queue have threads), a launch whose status is lost.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "server/scheduler/types.h"

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

enum class Arrivals : uint8_t { kPoisson, kBursts, kTrace };

struct ClassScenario {
  bool present = false;
  Arrivals arrivals = Arrivals::kPoisson;
  absl::Duration mean_gap;
  int thread_count = 1;
  scheduler::CoreOptions options;
  double deadline_chance = 0, timeout_chance = 0, cancel_chance = 0;
  absl::Duration longest_deadline, longest_timeout;
};

struct Scenario {
  uint64_t seed = 0;
  int request_count = 0;
  std::array<ClassScenario, kRequestClassCount> classes;
  std::vector<SimModel> models;
  gpu::GateOptions gate;
  bool latency_capable = true;
  bool hints = false;                  ///< Submit with the caller's own predictions.
  bool checks_computed_share = false;  ///< Of batch, in every second: see MakeFloorScenario.

  double prediction_error = 0;
  double slow_chance = 0;
  double copy_failure_chance = 0;
  double late_event_chance = 0;
  std::vector<absl::Duration> jumps_at;
  std::optional<absl::Duration> hangs_at, lost_at, drains_at, removes_model_at;

  ClassScenario& of(RequestClass request_class) { return classes[static_cast<size_t>(request_class)]; }
  const ClassScenario& of(RequestClass request_class) const { return classes[static_cast<size_t>(request_class)]; }
  bool has_faults() const {
    return slow_chance > 0 || copy_failure_chance > 0 || late_event_chance > 0 || !jumps_at.empty() || hangs_at ||
           lost_at || drains_at || removes_model_at;
  }
};

/// A subset of all features, chosen by the seed. `request_count` 0: chosen too.
Scenario MakeScenario(uint64_t seed, int request_count);

/// No faults: latency or standard work that never ends and never leaves room, and batch that always has work. Batch's
/// share must be what the floor promises, in time that was really computed.
Scenario MakeFloorScenario(uint64_t seed);

std::string Describe(const Scenario& scenario);

}  // namespace sluice::sim
