// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/latency_share.h"

#include <gtest/gtest.h>

#include "base/thread.h"

namespace sluice::scheduler {
namespace {

const Time kStart = Time::Zero() + absl::Seconds(100);

/// Requests of `cost` every `gap` for `length`: how many found room.
int Offer(LatencyShare& share, absl::Duration cost, absl::Duration gap, absl::Duration length, Time start = kStart) {
  int taken = 0;
  for (Time now = start; now < start + length; now = now + gap) taken += share.TryTake(cost, now) ? 1 : 0;
  return taken;
}

// Goal: what stays below the share always finds room. Method: 79 % of the time for 20 s, in one run.
TEST(LatencyShare, BelowItEverythingHasRoom) {
  LatencyShare share(0.8);
  EXPECT_EQ(Offer(share, absl::Microseconds(790), absl::Milliseconds(1), absl::Seconds(20)), 20'000);
}

// Goal: over a long time no more than the share is taken, plus one second's. Method: ask for all of the time, and for
// three times as much, for 20 s.
TEST(LatencyShare, AboveItTheRestHasNone) {
  for (const double load : {1.0, 3.0}) {
    LatencyShare share(0.8);
    const int taken = Offer(share, absl::Milliseconds(1) * load, absl::Milliseconds(1), absl::Seconds(20));
    EXPECT_NEAR(taken * load, 0.8 * 21'000, 10) << load;
  }
}

// Goal: a burst has room at once, after a pause again. Method: requests at one instant until there is no room.
TEST(LatencyShare, BurstsHaveRoomForASecondsShare) {
  LatencyShare share(0.5);
  for (const absl::Duration after : {absl::ZeroDuration(), absl::Seconds(1), absl::Seconds(60)}) {
    int taken = 0;
    while (share.TryTake(absl::Milliseconds(10), kStart + after)) ++taken;
    EXPECT_EQ(taken, 50) << after;
  }
}

// Goal: work longer than all of the room runs by itself. Method: ten seconds' work twice, and something small after it.
TEST(LatencyShare, LongWorkHasRoomWhileNothingElseHas) {
  LatencyShare share(0.8);
  EXPECT_TRUE(share.TryTake(absl::Seconds(10), kStart));
  EXPECT_FALSE(share.TryTake(absl::Seconds(10), kStart));
  // 12.5 s of the device are paid for.
  EXPECT_FALSE(share.TryTake(absl::Microseconds(1), kStart + absl::Seconds(11)));
  EXPECT_TRUE(share.TryTake(absl::Microseconds(1), kStart + absl::Seconds(12)));
}

// Goal: what was not needed is there again. Method: fill it, give half back, fill that.
TEST(LatencyShare, WhatIsGivenBackCanBeTaken) {
  LatencyShare share(0.5);
  EXPECT_EQ(share.Used(kStart), 0);
  EXPECT_TRUE(share.TryTake(absl::Milliseconds(500), kStart));
  EXPECT_DOUBLE_EQ(share.Used(kStart), 1);
  EXPECT_FALSE(share.TryTake(absl::Milliseconds(1), kStart));
  share.GiveBack(absl::Milliseconds(250));
  EXPECT_DOUBLE_EQ(share.Used(kStart), 0.5);
  EXPECT_TRUE(share.TryTake(absl::Milliseconds(250), kStart));
  EXPECT_FALSE(share.TryTake(absl::Milliseconds(1), kStart));
}

// Goal: 1 turns it off. Method: ask for far more than there is.
TEST(LatencyShare, OneIsNoCeiling) {
  LatencyShare share(1);
  EXPECT_EQ(Offer(share, absl::Seconds(1), absl::Milliseconds(1), absl::Seconds(1)), 1000);
  EXPECT_EQ(share.Used(kStart), 0);
}

// Goal: threads never take more than there is between them. Method: four threads take at one instant until there is no
// room.
TEST(LatencyShare, ThreadsShareOneRoom) {
  LatencyShare share(0.8);
  std::atomic<int> taken = 0;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("taker", [&] {
        while (share.TryTake(absl::Microseconds(100), kStart)) taken.fetch_add(1);
      });
    }
  }
  EXPECT_EQ(taken.load(), 8000);
}

}  // namespace
}  // namespace sluice::scheduler
