// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/wakeup.h"

namespace sluice::scheduler {

/// Ends requests whose limit has passed, whatever the devices do. Purpose: one thread for the process that sleeps until
/// the earliest limit of all registered queues and then runs their expiry.
/// Bounds: one entry per registered queue; wakes by itself at most once in kMinInterval, so a limit takes effect
/// within kMinInterval plus the time that the callbacks take.
/// Ownership: what the callbacks refer to must outlive the thread or be taken off with Unregister.
/// Threads and blocking: Register, Unregister and Stop from any thread but a callback; they wait for a callback that
/// is running. Poke from any thread, without a lock, never blocks. Errors: none.
class ExpiryThread {
 public:
  static constexpr absl::Duration kMinInterval = absl::Milliseconds(1);

  /// Called on the expiry thread under its own lock (which Poke never takes): must not block on a device or register.
  using NextLimit = absl::AnyInvocable<Time()>;
  using ExpireNow = absl::AnyInvocable<void(Time now)>;

  /// `clock` outlives this. Waiting is in real time, for as long as `clock` says; a test that moves its own clock
  /// pokes.
  explicit ExpiryThread(const Clock& clock);
  ~ExpiryThread();

  int Register(NextLimit next_limit, ExpireNow expire);
  /// When it returns, the callbacks are not running and never will again.
  void Unregister(int id);

  /// A queue has a request with this limit now. Cheap unless it is the earliest.
  void Poke(Time limit) {
    if (limit < armed_until()) wakeup_.Notify();
  }

  /// Ends the thread; callbacks no longer run. Idempotent.
  void Stop();

 private:
  struct Source {
    int id = 0;
    NextLimit next_limit;
    ExpireNow expire;
  };

  Time armed_until() const { return Time::FromNanoseconds(armed_until_ns_.load(std::memory_order_acquire)); }
  void Arm(Time until) { armed_until_ns_.store(until.nanoseconds(), std::memory_order_release); }
  void Run();
  Time RunSources();

  const Clock& clock_;
  Wakeup wakeup_;
  /// The thread wakes by itself no later than this; Poke compares.
  std::atomic<int64_t> armed_until_ns_{Time::Infinite().nanoseconds()};
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::vector<Source> sources_ ABSL_GUARDED_BY(mutex_);
  int last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Mutex stop_mutex_;
  Thread thread_ ABSL_GUARDED_BY(stop_mutex_);  ///< Last: it uses all of the above.
};

}  // namespace sluice::scheduler
