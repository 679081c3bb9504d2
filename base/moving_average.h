// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

/// Exponential moving average of a duration; weight 1/8 for each new sample. Lock-free; concurrent Add calls may lose a
/// sample, never corrupt the value. Zero means "nothing measured yet".
class MovingAverage {
 public:
  MovingAverage() = default;
  explicit MovingAverage(absl::Duration initial) : ns_(absl::ToInt64Nanoseconds(initial)) {}
  void Add(absl::Duration sample) {
    const int64_t ns = absl::ToInt64Nanoseconds(sample);
    const int64_t old = ns_.load(std::memory_order_relaxed);
    ns_.store(old == 0 ? ns : old + (ns - old) / 8, std::memory_order_relaxed);
  }
  absl::Duration value() const { return absl::Nanoseconds(ns_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<int64_t> ns_ = 0;
};

}  // namespace sluice
