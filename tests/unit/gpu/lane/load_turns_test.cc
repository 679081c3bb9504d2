// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A load's work at the gate: behind latency requests, before batch, and never for ever.
#include "gpu/load_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

constexpr absl::Duration kPredicted = absl::Microseconds(20);

GateOptions OptionsWith(absl::Duration most_wait) {
  GateOptions options;
  options.max_owed_wait = most_wait;
  return options;
}

class LoadTurnsTest : public ::testing::Test {
 protected:
  LoadTurnsTest() { gate_.SetLatencyCapable(true); }
  /// A latency request that is on the device until it is released.
  GateToken Enter() {
    const GateToken token = gate_.Announce(clock_.Now(), clock_.Now());
    gate_.EnterDevice(token);
    return token;
  }

  const MonotonicClock clock_;
  // Long: the wait is over when a test says so, not when a slow machine has taken a while.
  Gate gate_{OptionsWith(absl::Seconds(100))};
  GateTurns turns_{gate_, clock_};
};

TEST_F(LoadTurnsTest, RunsAtOnceOnAQuietDeviceAndTakesRoom) {
  int in_flight = -1;
  const absl::StatusOr<bool> alone = turns_.Run(kPredicted, [&] {
    in_flight = gate_.in_flight_count(Engine::kCompute);
    return absl::OkStatus();
  });
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(*alone);
  EXPECT_EQ(in_flight, 1) << "batch must see it";
  EXPECT_EQ(gate_.in_flight_count(Engine::kCompute), 0);
}

TEST_F(LoadTurnsTest, WaitsForTheLatencyRequestAndKeepsBatchWaiting) {
  // Goal: nothing of a load begins beside a latency request, and batch does not take the window that the load waits
  // for. Method: released only once the load has been refused; batch asks while it waits.
  const GateToken token = Enter();
  std::atomic<bool> released = false;
  std::thread releaser([&] {
    while (gate_.counters().refused < 2) std::this_thread::yield();
    EXPECT_FALSE(gate_.TryGrant(Engine::kCompute, RequestClass::kBatch, kPredicted, clock_.Now()).granted);
    released = true;
    gate_.Release(token, true);
  });
  bool ran_after_release = false;
  const absl::StatusOr<bool> alone = turns_.Run(kPredicted, [&] {
    ran_after_release = released;
    return absl::OkStatus();
  });
  releaser.join();
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(*alone);
  EXPECT_TRUE(ran_after_release);
  EXPECT_TRUE(gate_.TryGrant(Engine::kCompute, RequestClass::kBatch, kPredicted, clock_.Now()).granted)
      << "nobody waits any more";
}

TEST_F(LoadTurnsTest, SaysWhenALatencyRequestCameNear) {
  const absl::StatusOr<bool> alone = turns_.Run(kPredicted, [&] {
    gate_.Release(Enter(), true);
    return absl::OkStatus();
  });
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(*alone);
}

TEST_F(LoadTurnsTest, RunsAllTheSameWhenTheDeviceIsNeverQuiet) {
  // Goal: loads end. Method: a token that is never released, and a wait of a millisecond.
  Gate gate(OptionsWith(absl::Milliseconds(1)));
  GateTurns turns(gate, clock_);
  const GateToken token = gate.Announce(clock_.Now(), clock_.Now());
  gate.EnterDevice(token);
  bool ran = false;
  const absl::StatusOr<bool> alone = turns.Run(kPredicted, [&] {
    ran = true;
    return absl::OkStatus();
  });
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(ran);
  EXPECT_FALSE(*alone);
  EXPECT_EQ(gate.in_flight_count(Engine::kCompute), 0) << "what was not granted must not be given back";
}

TEST_F(LoadTurnsTest, HandsOnTheErrorAndGivesTheRoomBack) {
  const absl::StatusOr<bool> alone = turns_.Run(kPredicted, [] { return absl::InternalError("launch"); });
  EXPECT_EQ(alone.status(), absl::InternalError("launch"));
  EXPECT_EQ(gate_.in_flight_count(Engine::kCompute), 0);
}

TEST_F(LoadTurnsTest, TurnsAreShortWhileLatencyRequestsCome) {
  FakeClock clock;
  GateTurns turns(gate_, clock);
  EXPECT_EQ(turns.LongestTurn(), absl::InfiniteDuration());
  gate_.Release(Enter(), true);
  EXPECT_EQ(turns.LongestTurn(), gate_.options().compute_window);
  clock.Advance(GateTurns::kTrafficGap - absl::Nanoseconds(1));
  EXPECT_EQ(turns.LongestTurn(), gate_.options().compute_window);
  clock.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(turns.LongestTurn(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace sluice::gpu
