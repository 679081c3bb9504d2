// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/schedule.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "client/random.h"

namespace sluice::client {
namespace {

constexpr double kMostRequests = 10e6;

}  // namespace

absl::StatusOr<std::vector<absl::Duration>> MakeSchedule(double rate_per_second, bool poisson, absl::Duration length,
                                                         uint64_t seed) {
  const double seconds = absl::ToDoubleSeconds(length);
  if (rate_per_second * seconds > kMostRequests) {
    return absl::ResourceExhaustedError(
        "more than ten million requests in one phase; lower the rate or the phase time");
  }
  std::vector<absl::Duration> schedule;
  schedule.reserve(static_cast<size_t>(rate_per_second * seconds * 1.1) + 1);
  Random random(seed);
  double at = 0;
  for (uint64_t i = 0;; ++i) {
    if (poisson) {
      // Exponential gaps. 1 - u is never zero, so the logarithm is finite.
      at += -std::log(1.0 - random.Uniform()) / rate_per_second;
    } else {
      at = static_cast<double>(i) / rate_per_second;
    }
    if (at >= seconds) return schedule;
    schedule.push_back(absl::Nanoseconds(std::llround(at * 1e9)));
  }
}

}  // namespace sluice::client
