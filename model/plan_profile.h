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

/// Runs every launch of `slot`, which has memory and launches, on zeros: once to warm up, then measured. A profile in a
/// graph leaves out what the host needs to launch. Load time only: captures, launches and waits.
absl::StatusOr<PlanProfile> ProfileSlot(gpu::Slot& slot);

/// First launches of the units: as many launches in a row as fit `target`, at least one. Of a host device each launch
/// but the stamps, which go with their neighbours, is a unit: a kernel is the smallest thing priority can act between.
std::vector<size_t> CutUnits(gpu::Backend backend, const std::vector<absl::Duration>& launches, absl::Duration target);

}  // namespace sluice::model
