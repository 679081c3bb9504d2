// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gate.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sluice::gpu {
namespace {

// The gate's rules, driven with explicit times: no threads, no clock. Each test
// would fail without the rule it names.

using absl::Microseconds;
using absl::Milliseconds;

constexpr RequestClass kStandard = RequestClass::kStandard;
constexpr RequestClass kBatch = RequestClass::kBatch;

Time At(int64_t microseconds) { return Time::FromNanoseconds(1'000'000'000 + microseconds * 1000); }

/// A gate with a latency-capable model, so that the window is 60 us.
class GateTest : public ::testing::Test {
 protected:
  GateTest() : GateTest(GateOptions()) {}
  explicit GateTest(const GateOptions& options) : gate_(options) {
    gate_.SetLatencyCapable(true);
    gate_.SetBatchPending(true, At(0));
  }
  bool Granted(Engine engine, RequestClass request_class, int64_t predicted_us, int64_t now_us) {
    return gate_.TryGrant(engine, request_class, Microseconds(predicted_us), At(now_us)).granted;
  }
  void Complete(Engine engine, RequestClass request_class, int64_t predicted_us, int64_t now_us) {
    gate_.Complete(engine, request_class, Microseconds(predicted_us), Microseconds(predicted_us), At(now_us));
  }

  Gate gate_;
};

class GateWithoutFloorTest : public GateTest {
 protected:
  static GateOptions Options() {
    GateOptions options;
    options.batch_min_share = 0;
    return options;
  }
  GateWithoutFloorTest() : GateTest(Options()) {}
};

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

/// Batch units of 20 us against a latency request that never leaves the device:
/// asks when told, returns each unit as over at once, and reports what was
/// granted in each second.
std::vector<absl::Duration> GrantedPerSecond(Gate& gate, int seconds) {
  std::vector<absl::Duration> granted(static_cast<size_t>(seconds));
  Time now = At(0);
  while (true) {
    const Grant grant = gate.TryGrant(Engine::kCompute, kBatch, Microseconds(20), now);
    if (grant.granted) {
      now = now + Microseconds(20);
      gate.Complete(Engine::kCompute, kBatch, Microseconds(20), Microseconds(20), now);
    } else {
      EXPECT_GT(grant.retry_at, now) << "an asker that obeys must not spin";
      now = std::max(grant.retry_at, now + absl::Nanoseconds(1));
    }
    const auto second = static_cast<size_t>(absl::ToInt64Seconds(now - At(0)));
    if (second >= granted.size()) return granted;
    if (grant.granted) granted[second] += Microseconds(20);
  }
}

TEST_F(GateTest, BatchGetsItsShareOfEverySecondAgainstLatency) {
  // Goal: the floor: 5 % of compute time, not less and hardly more, while
  // latency work never ends. Method: simulate.
  gate_.EnterDevice({});
  const std::vector<absl::Duration> granted = GrantedPerSecond(gate_, 5);
  for (const absl::Duration share : granted) {
    // The first owed units wait 10 ms, which a second may end with.
    EXPECT_GE(share, Milliseconds(49));
    EXPECT_LE(share, Milliseconds(52));
  }
  EXPECT_GT(gate_.counters().owed_grants, 10'000u);
}

TEST_F(GateWithoutFloorTest, AShareOfZeroTurnsTheFloorOff) {
  // Goal: with batch_min_share 0 a closed gate stays closed. Method: ask for a
  // minute of gate time.
  gate_.EnterDevice({});
  for (int64_t us = 0; us < 60'000'000; us += 10'000) {
    const Grant grant = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(1), At(us));
    ASSERT_FALSE(grant.granted);
    ASSERT_TRUE(grant.retry_at.is_infinite());
  }
}

TEST_F(GateTest, AnOwedUnitWaitsForAQuietMomentFirst) {
  // Goal: debt alone does not break a token: 10 ms pass first, and a quiet
  // moment ends the wait. Method: a 20 us unit is owed after 400 us; ask
  // around 10.4 ms.
  const GateToken token = gate_.Announce(At(0), At(10));
  gate_.EnterDevice(token);
  const Grant first = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(0));
  EXPECT_FALSE(first.granted);
  EXPECT_GE(first.retry_at, At(10'400));
  EXPECT_LE(first.retry_at, At(10'401));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 5'000));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 10'399));
  const Grant owed = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(10'402));
  EXPECT_TRUE(owed.granted);
  EXPECT_TRUE(owed.owed);
  EXPECT_EQ(gate_.counters().owed_grants, 1u);
  Complete(Engine::kCompute, kBatch, 20, 10'422);
  gate_.Release(token, true);
  const Grant quiet = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(10'430));
  EXPECT_TRUE(quiet.granted);
  EXPECT_FALSE(quiet.owed) << "no token was in the way";
}

TEST_F(GateTest, WhatBatchIsGrantedPaysItsDebt) {
  // Goal: units granted in quiet moments count, so that batch is owed nothing
  // where it gets its share anyway. Method: latency on the device 9 of every 10
  // ms, batch asks all the time; no token is ever broken.
  for (int64_t round = 0; round < 100; ++round) {
    const int64_t start = round * 10'000;
    const GateToken token = gate_.Announce(At(start), At(start));
    gate_.EnterDevice(token);
    for (int64_t us = 0; us < 9'000; us += 20) EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, start + us));
    gate_.Release(token, true);
    for (int64_t us = 9'000; us < 10'000; us += 20) {
      EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, start + us));
      Complete(Engine::kCompute, kBatch, 20, start + us + 20);
    }
  }
  EXPECT_EQ(gate_.counters().owed_grants, 0u);
}

class GateWithLongOwedWaitTest : public GateTest {
 protected:
  static GateOptions Options() {
    GateOptions options;
    options.max_owed_wait = absl::Seconds(10);
    return options;
  }
  GateWithLongOwedWaitTest() : GateTest(Options()) {}
};

TEST_F(GateWithLongOwedWaitTest, DebtIsBoundedByOneSecondsShare) {
  // Goal: after 11 s behind a closed gate batch is owed 50 ms, not 550. Method:
  // ask twice a second until the wait is over, then count what is granted at
  // that moment.
  gate_.EnterDevice({});
  const int64_t end = 11'000'000;
  for (int64_t us = 0; us < 10'000'000; us += 500'000) EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, us));
  int granted = 0;
  while (granted < 100'000 && Granted(Engine::kCompute, kBatch, 20, end)) {
    ++granted;
    Complete(Engine::kCompute, kBatch, 20, end);
  }
  EXPECT_EQ(granted, 2'500);
}

TEST_F(GateTest, AnOwedUnitIsGrantedAgainstAnAnnouncedToken) {
  // Goal: tokens that are announced without end, but never enter, do not starve
  // batch either, and it is counted. Method: renew a token so that a unit never
  // fits before it.
  const GateToken token = gate_.Announce(At(0), At(10));
  for (int64_t us = 0; us < 10'400; us += 50) {
    gate_.Reannounce(token, At(us + 10));
    EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, us));
  }
  gate_.Reannounce(token, At(10'412));
  const Grant grant = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(10'402));
  EXPECT_TRUE(grant.granted);
  EXPECT_TRUE(grant.owed);
  EXPECT_EQ(gate_.counters().owed_grants, 1u);
  EXPECT_EQ(gate_.counters().lapsed_tokens, 0u);
}

TEST_F(GateTest, AUnitThatWasNeverLaunchedIsNotPaidFor) {
  // Goal: a grant given back unused leaves the debt as it was. Method: the
  // bounded debt covers 2,500 units; return the first unused.
  gate_.EnterDevice({});
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 0));
  const int64_t minute = 60'000'000;
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 20, minute));
  gate_.Complete(Engine::kCompute, kBatch, Microseconds(20), absl::ZeroDuration(), At(minute));
  EXPECT_EQ(gate_.in_flight_count(Engine::kCompute), 0);
  int granted = 0;
  while (granted < 10'000 && Granted(Engine::kCompute, kBatch, 20, minute)) {
    ++granted;
    Complete(Engine::kCompute, kBatch, 20, minute);
  }
  EXPECT_EQ(granted, 2'500);
}

TEST_F(GateTest, BatchThatHoldsItselfUpIsOwedNothing) {
  // Goal: only time behind latency or standard work is owed. Method: a second
  // in which batch's own window is full or it has no work, then latency work;
  // the unit must wait the whole time again.
  EXPECT_TRUE(Granted(Engine::kCompute, kBatch, 60, 0));
  for (int64_t us = 0; us < 500'000; us += 100) EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, us));
  Complete(Engine::kCompute, kBatch, 60, 500'000);
  gate_.SetBatchPending(false, At(500'000));
  const GateToken token = gate_.Announce(At(500'000), At(500'000));
  gate_.EnterDevice(token);
  gate_.SetBatchPending(true, At(900'000));
  const Grant grant = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(900'000));
  EXPECT_FALSE(grant.granted);
  EXPECT_GE(grant.retry_at, At(910'400));
}

TEST_F(GateTest, WithoutPendingWorkNothingIsOwed) {
  // Goal: SetBatchPending(false) stops the floor's clock. Method: refused, idle
  // for 40 ms, then asked again.
  gate_.EnterDevice({});
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 0));
  gate_.SetBatchPending(false, At(10));
  EXPECT_TRUE(gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(20)).retry_at.is_infinite());
  gate_.SetBatchPending(true, At(40'000));
  const Grant grant = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(40'000));
  EXPECT_FALSE(grant.granted);
  EXPECT_GE(grant.retry_at, At(50'389)) << "10 us of the 400 had been counted";
}

TEST_F(GateTest, EachEngineOwesItsOwnShare) {
  // Goal: a batch without its inputs gets the chunks that feed it, and chunks
  // do not pay for units. Method: let both engines owe, take a chunk, then a
  // unit.
  gate_.EnterDevice({});
  EXPECT_FALSE(Granted(Engine::kHostToDevice, kBatch, 20, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 0));
  int chunks = 0;
  for (; Granted(Engine::kHostToDevice, kBatch, 20, 10'402); ++chunks) {
    Complete(Engine::kHostToDevice, kBatch, 20, 10'402);
  }
  int units = 0;
  for (; Granted(Engine::kCompute, kBatch, 20, 10'402); ++units) Complete(Engine::kCompute, kBatch, 20, 10'402);
  EXPECT_EQ(chunks, 26) << "5 % of 10.4 ms";
  EXPECT_EQ(units, 26);
}

TEST_F(GateTest, DebtIsForgottenAfterASecondWithoutWork) {
  // Goal: the floor is about one second: a batch that comes back later starts
  // anew. Method: owed 20 us, then idle for 5 s; the unit must wait as if it
  // were the first.
  gate_.EnterDevice({});
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, kBatch, 20, 5'000));
  gate_.SetBatchPending(false, At(5'000));
  gate_.SetBatchPending(true, At(5'000'000));
  const Grant grant = gate_.TryGrant(Engine::kCompute, kBatch, Microseconds(20), At(5'000'000));
  EXPECT_FALSE(grant.granted);
  EXPECT_GE(grant.retry_at, At(5'010'400));
}

TEST_F(GateTest, BatchGetsItsShareAgainstStandard) {
  // Goal: standard that always asks first does not starve batch. Method: a
  // second of standard units of 20 us, each asked for the moment one ends and
  // before batch asks; batch asks after it.
  absl::Duration batch_time;
  gate_.SetStandardWaiting(1);
  int standard_in_flight = 0;
  int batch_in_flight = 0;
  for (int64_t us = 0; us < 1'000'000; us += 20) {
    if (batch_in_flight > 0) {
      Complete(Engine::kCompute, kBatch, 20, us);
      --batch_in_flight;
    } else if (standard_in_flight > 0) {
      Complete(Engine::kCompute, kStandard, 20, us);
      --standard_in_flight;
    }
    while (Granted(Engine::kCompute, kStandard, 20, us)) ++standard_in_flight;
    if (Granted(Engine::kCompute, kBatch, 20, us)) {
      ++batch_in_flight;
      batch_time += Microseconds(20);
    }
  }
  EXPECT_GE(batch_time, Milliseconds(48));
  EXPECT_LE(batch_time, Milliseconds(55));
  EXPECT_EQ(gate_.counters().owed_grants, 0u) << "no token was broken";
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
