// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/expiry.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/wakeup.h"
#include "tests/support/fake_clock.h"

namespace sluice::scheduler {
namespace {

/// One queue's worth of limits, as the thread sees it.
struct Source {
  Time next() const { return Time::FromNanoseconds(next_ns.load()); }
  void Set(Time time) { next_ns.store(time.nanoseconds()); }
  int Register(ExpiryThread& thread) {
    return thread.Register([this] { return next(); },
                           [this](Time now) {
                             expired_at_ns.store(now.nanoseconds());
                             Set(Time::Infinite());
                             expired.Notify();
                           });
  }
  std::atomic<int64_t> next_ns{Time::Infinite().nanoseconds()};
  std::atomic<int64_t> expired_at_ns = 0;
  Wakeup expired;
};

TEST(ExpiryThreadTest, WakesByItselfAtTheLimit) {
  // Goal: no event is needed when the limit was known. Method: register with a limit 2 ms ahead on the real clock and
  // wait for the callback; it hangs if the thread does not wake, and must not come early.
  const MonotonicClock clock;
  Source source;
  ExpiryThread thread(clock);
  const Time limit = clock.Now() + absl::Milliseconds(2);
  source.Set(limit);
  source.Register(thread);
  ASSERT_TRUE(source.expired.WaitUntil(Time::Infinite()));
  EXPECT_GE(source.expired_at_ns.load(), limit.nanoseconds());
}

TEST(ExpiryThreadTest, PokeBringsAnEarlierLimitForward) {
  // Goal: a limit earlier than what the thread sleeps for takes effect. Method: it sleeps for an hour, then a limit
  // that has passed on a clock that stands still.
  FakeClock clock;
  Source far, near;
  ExpiryThread thread(clock);
  far.Set(clock.Now() + absl::Hours(1));
  far.Register(thread);
  near.Register(thread);
  near.Set(clock.Now());
  thread.Poke(clock.Now());
  ASSERT_TRUE(near.expired.WaitUntil(Time::Infinite()));
  EXPECT_EQ(far.expired_at_ns.load(), 0) << "not due";
  clock.Advance(absl::Hours(1));
  thread.Poke(Time::Zero());
  ASSERT_TRUE(far.expired.WaitUntil(Time::Infinite()));
}

TEST(ExpiryThreadTest, PokesRacingWithTheReadOfTheSourcesAreNotLost) {
  // Goal: the window between reading the sources and going to sleep loses nothing. Method: many times, set a limit that
  // has passed while the thread is just going round, and wait for it.
  FakeClock clock;
  Source source;
  ExpiryThread thread(clock);
  source.Register(thread);
  for (int i = 0; i < 2'000; ++i) {
    source.Set(clock.Now());
    thread.Poke(clock.Now());
    ASSERT_TRUE(source.expired.WaitUntil(Time::Infinite()));
  }
}

TEST(ExpiryThreadTest, UnregisteredSourcesAreNotCalled) {
  // Goal: Unregister ends the calls. Method: both are due; only the one still registered is called.
  FakeClock clock;
  Source gone, kept;
  ExpiryThread thread(clock);
  const int id = gone.Register(thread);
  kept.Register(thread);
  thread.Unregister(id);
  gone.Set(clock.Now());
  kept.Set(clock.Now());
  thread.Poke(Time::Zero());
  ASSERT_TRUE(kept.expired.WaitUntil(Time::Infinite()));
  EXPECT_EQ(gone.expired_at_ns.load(), 0);
}

TEST(ExpiryThreadTest, StopIsIdempotentAndEndsTheCalls) {
  // Goal: Stop joins, twice is fine, and later pokes do nothing. Method: stop, make a source due, poke.
  FakeClock clock;
  Source source;
  ExpiryThread thread(clock);
  source.Register(thread);
  thread.Stop();
  thread.Stop();
  source.Set(clock.Now());
  thread.Poke(Time::Zero());
  EXPECT_EQ(source.expired_at_ns.load(), 0);
}

}  // namespace
}  // namespace sluice::scheduler
