// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gate.h"

#include <vector>

#include "absl/time/time.h"
#include "tests/unit/gpu/lane/gate_fixture.h"

namespace sluice::gpu {
namespace {

// The gate's rules, driven with explicit times: no threads, no clock. Each test
// would fail without the rule it names.

TEST_F(GateTest, NothingIsGrantedWhileALatencyRequestIsOnTheDevice) {
  // Goal: the gate is closed between EnterDevice and Release. Method: ask for
  // every engine and class before, during and after.
  const GateToken token = gate_.Announce(At(0), At(1'000'000));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 0));
  Complete(Engine::kCompute, kBatch, 20, 20);
  gate_.EnterDevice(token);
  EXPECT_EQ(gate_.latency_on_device(), 1);
  for (const RequestClass request_class : {kStandard, kBatch}) {
    EXPECT_FALSE(Granted(Engine::kCompute, request_class, 1, 30));
    EXPECT_FALSE(Granted(Engine::kHostToDevice, request_class, 1, 30));
    EXPECT_FALSE(Granted(Engine::kDeviceToHost, request_class, 1, 30));
  }
  gate_.Release(token, true);
  EXPECT_EQ(gate_.latency_on_device(), 0);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 40));
  EXPECT_TRUE(Granted(Engine::kHostToDevice, kStandard, 20, 40));
  EXPECT_EQ(gate_.counters().refused, 6u);
}

TEST_F(GateTest, AUnitIsGrantedOnlyIfItEndsBeforeTheEarliestReadyTime) {
  // Goal: units finish just before latency work is ready, what is in flight
  // counted. Method: 50 us are left; units of 20 us fit twice, not three times,
  // though the window has room for three.
  const GateToken later = gate_.Announce(At(0), At(500));
  const GateToken token = gate_.Announce(At(0), At(50));
  const GateToken latest = gate_.Announce(At(0), At(600));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 0));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 0));
  const Grant third = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(0));
  EXPECT_FALSE(third.granted);
  EXPECT_EQ(third.retry_at, At(110)) << "when the token lapses, if nothing happens before";
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 10, 0)) << "a shorter one still fits";
  EXPECT_TRUE(Granted(Engine::kHostToDevice, kBatch, 40, 0)) << "the engines have windows of their own";
  EXPECT_FALSE(Granted(Engine::kHostToDevice, kBatch, 20, 0)) << "chunks obey the ready time too";
  gate_.Release(token, false);
  Complete(Engine::kCompute, kBatch, 10, 50);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 50)) << "the next token is not ready for long";
  gate_.Release(later, false);
  gate_.Release(latest, false);
}

TEST_F(GateTest, AnEmptyWindowTakesOneUnitHoweverLong) {
  // Goal: a unit longer than the window runs, alone; but not against an
  // announced token, which it would make useless. Method: a unit of 5 ms with
  // and without a token ready in 1 ms.
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 5000, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 1, 0));
  Complete(Engine::kCompute, kBatch, 5000, 5000);
  const GateToken token = gate_.Announce(At(5000), At(6000));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 5000, 5000));
  gate_.Release(token, false);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 5000, 5000));
}

TEST_F(GateTest, TheComputeWindowBoundsPredictedTime) {
  // Goal: at most 60 us of units in flight; a unit nobody has measured runs
  // alone, however short it may be. Method: fill the window with known units,
  // very short ones and unknown ones.
  EXPECT_TRUE(Granted(Engine::kCompute, kStandard, 30, 0));
  EXPECT_TRUE(Granted(Engine::kCompute, kStandard, 30, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, kStandard, 1, 0));
  EXPECT_EQ(gate_.in_flight_time(Engine::kCompute), Microseconds(60));
  Complete(Engine::kCompute, kStandard, 30, 10);
  Complete(Engine::kCompute, kStandard, 30, 20);
  EXPECT_EQ(gate_.last_completion(Engine::kCompute), At(20));
  int granted = 0;
  while (gate_.TryGrant(Engine::kCompute, kStandard, absl::Nanoseconds(1), At(20)).granted) ++granted;
  EXPECT_EQ(granted, 60) << "each counts as a microsecond";
  EXPECT_EQ(gate_.in_flight_count(Engine::kCompute), 60);
  for (; granted > 0; --granted) {
    gate_.Complete(Engine::kCompute, kStandard, absl::Nanoseconds(1), absl::Nanoseconds(1), At(20));
  }
  EXPECT_TRUE(Granted(Engine::kCompute, kStandard, 0, 20));
  EXPECT_FALSE(Granted(Engine::kCompute, kStandard, 0, 20));
  Complete(Engine::kCompute, kStandard, 0, 20);
  EXPECT_EQ(gate_.in_flight_time(Engine::kCompute), absl::ZeroDuration());
}

TEST_F(GateTest, WithoutALatencyModelTheWindowIsTheIdleOne) {
  // Goal: the window depends on the models that are loaded. Method: fill it in
  // both states.
  gate_.SetLatencyCapable(false);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 100, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 100, 0));
  for (int i = 0; i < 20; ++i) Complete(Engine::kCompute, kBatch, 100, 100);
  gate_.SetLatencyCapable(true);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 50, 200));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 50, 200));
}

TEST_F(GateTest, CopyWindowsCountChunksPerDirection) {
  // Goal: two chunks in flight in each direction, however short. Method: three
  // asks per direction.
  for (const Engine engine : {Engine::kHostToDevice, Engine::kDeviceToHost}) {
    EXPECT_TRUE(Granted(engine, kBatch, 1, 0));
    EXPECT_TRUE(Granted(engine, kBatch, 500, 0));
    EXPECT_FALSE(Granted(engine, kBatch, 1, 0));
    Complete(engine, kBatch, 1, 1);
    EXPECT_TRUE(Granted(engine, kBatch, 1, 1));
  }
}

TEST_F(GateTest, ATokenLapsesOneWindowAfterItsReadyTime) {
  // Goal: a request that never comes does not close the gate for ever, but
  // still closes it when it comes after all. Method: ask just before and at
  // ready_at + 60 us, then enter with the lapsed token.
  const GateToken token = gate_.Announce(At(0), At(100));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 90));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 159)) << "a ready time that has passed still closes the gate";
  EXPECT_EQ(gate_.counters().lapsed_tokens, 0u);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 160));
  EXPECT_EQ(gate_.counters().lapsed_tokens, 1u);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 161));
  EXPECT_EQ(gate_.counters().lapsed_tokens, 1u) << "counted once";
  gate_.EnterDevice(token);
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 1, 200));
  gate_.Release(token, true);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 1, 200));
}

TEST_F(GateTest, AReannouncedTokenHasTheNewReadyTime) {
  // Goal: a request that waited in a queue gets its protection back, and a
  // prediction can be corrected. Method: renew after a lapse; then move the
  // time away.
  const GateToken token = gate_.Announce(At(0), At(100));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 200));
  gate_.Reannounce(token, At(250));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 220));
  gate_.Reannounce(token, At(1000));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 220));
  gate_.Release(token, false);
  gate_.Reannounce(token, At(100'000));
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 99'990)) << "a released token announces nothing";
}

TEST_F(GateTest, ReleaseIsIdempotentAndNeverTouchesASuccessor) {
  // Goal: rejection, cancellation and completion may all release one token.
  // Method: release twice, with a second token in the same place in between;
  // enter with a released token.
  const GateToken first = gate_.Announce(At(0), At(100));
  gate_.EnterDevice(first);
  gate_.EnterDevice(first);
  EXPECT_EQ(gate_.latency_on_device(), 1) << "entering twice counts once";
  gate_.Release(first, true);
  gate_.Release(first, true);
  EXPECT_EQ(gate_.latency_on_device(), 0);
  const GateToken second = gate_.Announce(At(0), At(100));
  EXPECT_NE(first.value, second.value);
  gate_.EnterDevice(second);
  gate_.Release(first, true);
  gate_.EnterDevice(first);
  EXPECT_EQ(gate_.latency_on_device(), 1);
  gate_.Release(second, true);
  EXPECT_EQ(gate_.latency_on_device(), 0);
}

TEST_F(GateTest, RequestsBeyondTheLastTokenAreCountedAndGateOnTheDevice) {
  // Goal: token places are bounded and running out of them is safe. Method:
  // take all, take one more.
  std::vector<GateToken> tokens;
  for (int i = 0; i < Gate::kMaxTokens; ++i) tokens.push_back(gate_.Announce(At(0), At(1'000'000)));
  const GateToken none = gate_.Announce(At(0), At(10));
  EXPECT_TRUE(tokens.back());
  EXPECT_FALSE(none);
  EXPECT_EQ(gate_.counters().untracked_tokens, 1u);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 5)) << "it announces nothing";
  gate_.EnterDevice(none);
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 5));
  gate_.Release(none, true);
  EXPECT_EQ(gate_.latency_on_device(), 0);
  for (const GateToken token : tokens) gate_.Release(token, false);
  EXPECT_TRUE(gate_.Announce(At(0), At(10)));
}

TEST_F(GateTest, BatchWaitsWhileStandardDoes) {
  // Goal: standard is granted before batch. Method: announce that standard
  // waits, ask for both.
  gate_.SetStandardWaiting(1);
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 0));
  EXPECT_TRUE(Granted(Engine::kCompute, kStandard, 20, 0));
  gate_.SetStandardWaiting(-1);
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, 0));
}

TEST(GateDisabledTest, GrantsEverythingInsideItsWindow) {
  // Goal: enabled=false leaves only the windows. Method: a token on the device,
  // standard waiting, a full window.
  GateOptions options;
  options.enabled = false;
  Gate gate(options);
  gate.SetLatencyCapable(true);
  gate.EnterDevice(gate.Announce(At(0), At(0)));
  gate.SetStandardWaiting(1);
  EXPECT_TRUE(gate.TryGrant(Engine::kCompute, kBatch, Microseconds(60), At(0)).granted);
  EXPECT_FALSE(gate.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(0)).granted);
}

TEST(GateTimesTest, ExtremeTimesDoNotOverflow) {
  // Goal: infinite predictions and deadlines are safe. Method: an announcement
  // for never and a unit without end.
  Gate gate(GateOptions{});
  const GateToken token = gate.Announce(At(0), Time::Infinite());
  EXPECT_TRUE(gate.TryGrant(Engine::kCompute, kBatch, absl::InfiniteDuration(), At(0)).granted);
  gate.Complete(Engine::kCompute, kBatch, absl::InfiniteDuration(), absl::InfiniteDuration(), At(1));
  EXPECT_EQ(gate.in_flight_time(Engine::kCompute), absl::ZeroDuration());
  EXPECT_EQ(gate.counters().lapsed_tokens, 0u);
  gate.Release(token, false);
}

/// True when the waiter has been notified: its wait returns before a deadline
/// that is long over.
bool WokenWithoutWaiting(GateWaiter& waiter, Gate&) {
  const MonotonicClock clock{};
  const Time before = clock.Now();
  waiter.WaitUntil(before, before + absl::Seconds(5));
  return clock.Now() - before < absl::Seconds(5);
}

TEST_F(GateTest, AnArmedWaiterIsWokenByWhateverMayOpenTheGate) {
  // Goal: no wake-up is missed. Method: arm, change one thing, wait: a missed
  // one would take 5 s.
  GateWaiter waiter(gate_);
  const GateToken token = gate_.Announce(At(0), At(10));
  gate_.EnterDevice(token);
  waiter.Arm();
  gate_.Release(token, true);
  EXPECT_TRUE(WokenWithoutWaiting(waiter, gate_));
  ASSERT_TRUE(Granted(Engine::kCompute, kStandard, 60, 0));
  waiter.Arm();
  Complete(Engine::kCompute, kStandard, 60, 60);
  EXPECT_TRUE(WokenWithoutWaiting(waiter, gate_));
  gate_.SetStandardWaiting(1);
  waiter.Arm();
  gate_.SetStandardWaiting(-1);
  EXPECT_TRUE(WokenWithoutWaiting(waiter, gate_));
  waiter.Notify();
  EXPECT_TRUE(WokenWithoutWaiting(waiter, gate_));
}

}  // namespace
}  // namespace sluice::gpu
