// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/expiry.h"

#include <algorithm>
#include <utility>

namespace sluice::scheduler {

ExpiryThread::ExpiryThread(const Clock& clock) : clock_(clock), thread_("expiry", [this] { Run(); }) {}

ExpiryThread::~ExpiryThread() { Stop(); }

int ExpiryThread::Register(NextLimit next_limit, ExpireNow expire) {
  int id = 0;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    sources_.push_back({.id = id, .next_limit = std::move(next_limit), .expire = std::move(expire)});
  }
  wakeup_.Notify();
  return id;
}

void ExpiryThread::Unregister(int id) {
  MutexLock lock(mutex_);
  std::erase_if(sources_, [id](const Source& source) { return source.id == id; });
}

void ExpiryThread::Stop() {
  stopping_.store(true, std::memory_order_release);
  wakeup_.Notify();
  MutexLock lock(stop_mutex_);
  thread_.Join();
}

void ExpiryThread::Run() {
  const MonotonicClock wait_clock;
  while (!stopping_.load(std::memory_order_acquire)) {
    // From here to Arm every poke notifies: a request that comes while the sources are read is not missed.
    Arm(Time::Infinite());
    const Time next = RunSources();
    // The pause bounds the wake-ups when limits are dense; a poke is kept meanwhile.
    const Time until = std::max(next, clock_.Now() + kMinInterval);
    Arm(next.is_infinite() ? next : until);
    if (next.is_infinite()) {
      wakeup_.WaitUntil(next);
    } else {
      wakeup_.WaitUntil(wait_clock.Now() + (until - clock_.Now()));
    }
  }
}

Time ExpiryThread::RunSources() {
  MutexLock lock(mutex_);
  const Time now = clock_.Now();
  Time next = Time::Infinite();
  for (Source& source : sources_) {
    if (source.next_limit() <= now) source.expire(now);
    next = std::min(next, source.next_limit());
  }
  return next;
}

}  // namespace sluice::scheduler
