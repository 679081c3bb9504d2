// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace sluice {

/// Wakes one waiting thread without taking a lock, so that a latency request's thread never waits for the thread it
/// wakes. Any thread may Notify; one thread at a time may wait. A Notify before the wait is kept (one, not counted).
/// A futex and not std::counting_semaphore: libstdc++ 12's try_acquire_until polls, sleeping for half of the time
/// waited so far, and sees a Notify only then (measured: 10 ms late after 20 ms, at the median).
class Wakeup {
 public:
  void Notify() {
    if (pending_.exchange(1, std::memory_order_acq_rel) == 0) {
      syscall(SYS_futex, Address(), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  /// A Notify is waiting to be taken by a wait. For callers that poll in virtual time.
  bool notified() const { return pending_.load(std::memory_order_acquire) != 0; }
  /// Blocks until notified or until `deadline` on MonotonicClock's scale; false when the deadline passed first.
  bool WaitUntil(Time deadline) {
    const int64_t ns = deadline.nanoseconds() < 0 ? 0 : deadline.nanoseconds();
    timespec until = {};
    until.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    until.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    while (pending_.exchange(0, std::memory_order_acq_rel) == 0) {
      // The bitset form takes an absolute time on CLOCK_MONOTONIC. It returns at once when pending_ is no longer 0.
      const long result = syscall(SYS_futex, Address(), FUTEX_WAIT_BITSET_PRIVATE, 0,
                                  deadline.is_infinite() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (result == -1 && errno == ETIMEDOUT) return pending_.exchange(0, std::memory_order_acq_rel) != 0;
    }
    return true;
  }

 private:
  uint32_t* Address() { return reinterpret_cast<uint32_t*>(&pending_); }
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> pending_ = 0;
};

}  // namespace sluice
