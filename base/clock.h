// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice {

/// A point on the process's monotonic clock, in nanoseconds since an arbitrary epoch. Never wall time: a step of the
/// wall clock must not fire a deadline. Differences are absl::Duration. Trivially copyable.
class Time {
 public:
  constexpr Time() = default;
  static constexpr Time FromNanoseconds(int64_t ns) { return Time(ns); }
  /// Later than every real time: "no deadline".
  static constexpr Time Infinite() { return Time(std::numeric_limits<int64_t>::max()); }
  static constexpr Time Zero() { return Time(0); }

  constexpr int64_t nanoseconds() const { return ns_; }
  constexpr bool is_infinite() const { return ns_ == std::numeric_limits<int64_t>::max(); }

  friend constexpr auto operator<=>(Time, Time) = default;
  /// Saturates: infinite plus anything is infinite, and an infinite duration gives an infinite time.
  friend Time operator+(Time time, absl::Duration duration) {
    if (time.is_infinite() || duration == absl::InfiniteDuration()) return Infinite();
    const int64_t delta = absl::ToInt64Nanoseconds(duration);
    int64_t sum = 0;
    if (__builtin_add_overflow(time.ns_, delta, &sum)) return delta > 0 ? Infinite() : Time(0);
    return Time(sum);
  }
  friend Time operator-(Time time, absl::Duration duration) { return time + -duration; }
  friend absl::Duration operator-(Time a, Time b) {
    if (a.is_infinite()) return absl::InfiniteDuration();
    if (b.is_infinite()) return -absl::InfiniteDuration();
    return absl::Nanoseconds(a.ns_ - b.ns_);
  }

 private:
  explicit constexpr Time(int64_t ns) : ns_(ns) {}
  int64_t ns_ = 0;
};

/// Source of time. Everything outside base/ reads time through one of these, so that tests and the simulation can move
/// it. Now() never goes backwards, never blocks, and may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

/// std::chrono::steady_clock, which is CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  Time Now() const override {
    return Time::FromNanoseconds(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }
};

/// The wall clock, for time stamps that leave the process (logs, statistics). Never for differences or deadlines.
inline absl::Time WallNow() { return absl::Now(); }

}  // namespace sluice
