// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice::sim {

/// A seeded stream of numbers (SplitMix64). The standard library's distributions differ between libraries; these do
/// not, so that a seed means the same run everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// From `low` to `high`, both possible.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  /// In [0, 1).
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  double Real(double low, double high) { return low + (high - low) * Fraction(); }
  bool Chance(double probability) { return Fraction() < probability; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return absl::Nanoseconds(Between(absl::ToInt64Nanoseconds(low), absl::ToInt64Nanoseconds(high)));
  }
  /// Exponential with this mean: the gaps of Poisson arrivals.
  absl::Duration Exponential(absl::Duration mean) { return mean * -std::log(1.0 - Fraction()); }
  /// An independent stream, so that a feature that is off does not move the others' numbers.
  Random Fork() { return Random(Next()); }

 private:
  uint64_t state_;
};

}  // namespace sluice::sim
