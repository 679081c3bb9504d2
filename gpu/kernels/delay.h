// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu/kernel.h"

namespace sluice::gpu {

/// Occupies the device for `duration` on the device's clock and touches no memory: what tests, calibration and benches
/// use as work of known length. Spans: none. INVALID_ARGUMENT for a negative duration or one above 10 s.
struct DelayDescription {
  absl::Duration duration = {};
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDelay(Device& device, const DelayDescription& description);

}  // namespace sluice::gpu
