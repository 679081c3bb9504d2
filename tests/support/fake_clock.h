// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sluice {

/// A clock that moves only when told. Any thread may read and move it. It starts at one second, so that a test may
/// subtract a little without meeting zero.
class FakeClock final : public Clock {
 public:
  FakeClock() = default;
  explicit FakeClock(Time start) : ns_(start.nanoseconds()) {}

  Time Now() const override { return Time::FromNanoseconds(ns_.load(std::memory_order_acquire)); }

  /// Moves the clock forward; a negative duration is ignored, since a clock never goes backwards.
  void Advance(absl::Duration duration) {
    const int64_t delta = absl::ToInt64Nanoseconds(duration);
    if (delta > 0) ns_.fetch_add(delta, std::memory_order_acq_rel);
  }
  /// Moves the clock forward to `time`; a time in the past is ignored.
  void AdvanceTo(Time time) {
    int64_t old = ns_.load(std::memory_order_acquire);
    while (old < time.nanoseconds() && !ns_.compare_exchange_weak(old, time.nanoseconds(), std::memory_order_acq_rel)) {
    }
  }

 private:
  std::atomic<int64_t> ns_ = 1'000'000'000;
};

}  // namespace sluice
