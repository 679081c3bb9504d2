// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <semaphore>

#include "base/clock.h"

namespace sluice {

/// Wakes one waiting thread without taking a lock, so that a latency request's thread never waits for the thread it
/// wakes. Any thread may Notify; one thread at a time may wait. A Notify before the wait is kept (one, not counted).
class Wakeup {
 public:
  void Notify() {
    if (!pending_.exchange(true, std::memory_order_acq_rel)) semaphore_.release();
  }
  /// A Notify is waiting to be taken by a wait. For callers that poll in virtual time.
  bool notified() const { return pending_.load(std::memory_order_acquire); }
  /// Blocks until notified or until `deadline` on MonotonicClock's scale; false when the deadline passed first.
  bool WaitUntil(Time deadline) {
    if (deadline.is_infinite()) {
      semaphore_.acquire();
    } else {
      const auto until = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.nanoseconds()));
      if (!semaphore_.try_acquire_until(until)) return false;
    }
    // An exchange, not a store: it sees what a Notify that came between acquire and here published.
    pending_.exchange(false, std::memory_order_acq_rel);
    return true;
  }

 private:
  std::atomic<bool> pending_ = false;
  std::counting_semaphore<> semaphore_{0};
};

}  // namespace sluice
