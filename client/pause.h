// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::client {

/// Blocks the calling thread until `deadline` on MonotonicClock's scale. A condition variable and not a semaphore: the
/// timed wait of libstdc++'s semaphore polls with growing pauses and may be late by half of the time waited.
inline void PauseUntil(Time deadline) {
  Mutex mutex;
  CondVar never_notified;
  MutexLock lock(mutex);
  while (never_notified.WaitUntil(mutex, deadline)) {
  }
}

}  // namespace sluice::client
