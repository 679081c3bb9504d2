// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::client {

/// How the gaps between requests are distributed; all have the same mean.
enum class Arrivals : uint8_t {
  kConstant,
  kPoisson,  ///< Exponential: independent users.
  kBursty,   ///< Gamma with a coefficient of variation of 4: most requests come close after another.
};

/// The word in flags and reports: "constant", "poisson", "bursty".
absl::string_view ArrivalsName(Arrivals arrivals);
std::optional<Arrivals> ParseArrivals(absl::string_view word);

/// The intended send times of an open loop, as offsets from the start, ascending, all below `length`. The same
/// arguments give the same schedule on every machine. RESOURCE_EXHAUSTED above ten million requests.
absl::StatusOr<std::vector<absl::Duration>> MakeSchedule(double rate_per_second, Arrivals arrivals,
                                                         absl::Duration length, uint64_t seed);

}  // namespace sluice::client
