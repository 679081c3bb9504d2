// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "client/random.h"

namespace sluice::client {
namespace {

constexpr double kMostRequests = 10e6;
constexpr std::pair<Arrivals, absl::string_view> kNames[] = {
    {Arrivals::kConstant, "constant"}, {Arrivals::kPoisson, "poisson"}, {Arrivals::kBursty, "bursty"}};
constexpr double kBurstyShape = 1.0 / 16;  // Of coefficient of variation 4.

/// 1 - Uniform() is never zero, so the logarithm is finite.
double Exponential(Random& random) { return -std::log(1.0 - random.Uniform()); }

double Normal(Random& random) {  // Box and Muller.
  const double radius = std::sqrt(2 * Exponential(random));
  return radius * std::cos(2 * std::numbers::pi * random.Uniform());
}

/// Gamma of mean 1 for a shape below 1: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000),
/// by a variable of shape + 1. The standard library's own differs between implementations.
double Gamma(Random& random, double shape) {
  const double d = shape + 1 - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal(random);
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1.0 - random.Uniform()) >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    return d * v * std::pow(1.0 - random.Uniform(), 1 / shape) / shape;
  }
}

}  // namespace

absl::string_view ArrivalsName(Arrivals arrivals) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& name) { return name.first == arrivals; })
      ->second;
}

std::optional<Arrivals> ParseArrivals(absl::string_view word) {
  for (const auto& [arrivals, name] : kNames) {
    if (name == word) return arrivals;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<absl::Duration>> MakeSchedule(double rate_per_second, Arrivals arrivals,
                                                         absl::Duration length, uint64_t seed) {
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
    if (arrivals == Arrivals::kConstant) {
      at = static_cast<double>(i) / rate_per_second;  // Not a sum, which would drift.
    } else {
      const double gap = arrivals == Arrivals::kPoisson ? Exponential(random) : Gamma(random, kBurstyShape);
      at += gap / rate_per_second;
    }
    if (at >= seconds) return schedule;
    schedule.push_back(absl::Nanoseconds(std::llround(at * 1e9)));
  }
}

}  // namespace sluice::client
