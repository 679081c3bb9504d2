// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu/slot.h"

namespace sluice::model {

/// What a plan takes with nothing else on the device.
struct PlanProfile {
  std::vector<absl::Duration> launches;  ///< One per launch of the slot, stamps included; none is zero.
  absl::Duration whole;                  ///< All of them in a row, as the latency class runs them.
};

/// Tells when a GPU's clocks have risen, from how long runs of one plan take: they stop falling.
class WarmUp {
 public:
  static constexpr int kMostRuns = 50;
  static constexpr absl::Duration kMostTime = absl::Milliseconds(20);
  /// Clocks need about this long to be raised at all, so that equal runs before it prove nothing.
  static constexpr absl::Duration kLeastTime = absl::Milliseconds(2);

  /// Takes one run's time; true when no more are needed.
  bool IsOver(absl::Duration run);

 private:
  int runs_ = 0;
  int steady_runs_ = 0;  ///< In a row, since one was faster than all before it.
  absl::Duration total_;
  absl::Duration least_ = absl::InfiniteDuration();
};

/// Runs every launch of `slot`, which has memory and launches, on zeros: to warm up, then measured. On a GPU
/// the least of several measurements counts, and a profile in a graph leaves out what the host needs to launch. Load
/// time only: captures, launches and waits.
absl::StatusOr<PlanProfile> ProfileSlot(gpu::Slot& slot);

/// First launches of the units: as many launches in a row as fit `target`, at least one. Of a host device each launch
/// but the stamps, which go with their neighbours, is a unit: a kernel is the smallest thing priority can act between.
std::vector<size_t> CutUnits(gpu::Backend backend, const std::vector<absl::Duration>& launches, absl::Duration target);

}  // namespace sluice::model
