// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sluice::metrics {

/// Whether a device's standard or batch lane was in use lately: what decides the label `contended`. One per device.
/// Threads: all methods from any thread, lock-free.
class NeighbourActivity {
 public:
  /// A request counts as contended when the lanes were in use at some time from this long before its arrival: a regime,
  /// not an overlap, since an overlap label would select the unlucky requests.
  static constexpr absl::Duration LookBack() { return absl::Milliseconds(100); }

  /// A standard or batch request entered its lane (was queued).
  void Enter() { present_.fetch_add(1, std::memory_order_relaxed); }
  /// It left (was answered). Once per Enter.
  void Leave(Time now) {
    // The time first: a reader that sees the lane empty must also see when it became so.
    int64_t last = last_left_ns_.load(std::memory_order_relaxed);
    while (last < now.nanoseconds() &&
           !last_left_ns_.compare_exchange_weak(last, now.nanoseconds(), std::memory_order_relaxed)) {
    }
    present_.fetch_sub(1, std::memory_order_release);
  }
  /// For a request that arrived at `arrival` and completes now.
  bool Contended(Time arrival) const {
    if (present_.load(std::memory_order_acquire) > 0) return true;
    const int64_t last = last_left_ns_.load(std::memory_order_relaxed);
    return last != kNever && last >= (arrival - LookBack()).nanoseconds();
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;
  std::atomic<int64_t> present_ = 0;
  std::atomic<int64_t> last_left_ns_ = kNever;
};

}  // namespace sluice::metrics
