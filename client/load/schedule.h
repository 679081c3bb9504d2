// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::client {

/// The intended send times of an open loop, as offsets from the start, ascending, all below `length`. The same
/// arguments give the same schedule on every machine. RESOURCE_EXHAUSTED above ten million requests.
absl::StatusOr<std::vector<absl::Duration>> MakeSchedule(double rate_per_second, bool poisson, absl::Duration length,
                                                         uint64_t seed);

}  // namespace sluice::client
