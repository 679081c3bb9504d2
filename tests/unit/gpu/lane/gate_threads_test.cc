// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/thread.h"
#include "gpu/gate.h"

namespace sluice::gpu {
namespace {

using absl::Microseconds;

/// What the askers together believe to be in flight, kept apart from the gate's
/// own count. Raised after a grant and lowered before its return, so it is
/// never above what the gate has granted.
struct Witness {
  std::array<std::atomic<int64_t>, kEngineCount> in_flight{};
  std::atomic<int64_t> excess = 0;
  std::atomic<uint64_t> grants = 0;
};

void AskManyTimes(Gate& gate, Engine engine, RequestClass request_class, int64_t limit, int rounds, Witness& witness) {
  const MonotonicClock clock{};
  const absl::Duration predicted = Microseconds(20);
  GateWaiter waiter(gate);
  auto& in_flight = witness.in_flight[static_cast<size_t>(engine)];
  for (int granted = 0; granted < rounds;) {
    Grant grant = gate.TryGrant(engine, request_class, predicted, clock.Now());
    if (!grant.granted) {
      waiter.Arm();
      grant = gate.TryGrant(engine, request_class, predicted, clock.Now());
    }
    if (!grant.granted) {
      waiter.WaitUntil(clock.Now(), grant.retry_at);
      continue;
    }
    if (in_flight.fetch_add(1) + 1 > limit) witness.excess.fetch_add(1);
    witness.grants.fetch_add(1);
    ++granted;
    in_flight.fetch_sub(1);
    gate.Complete(engine, request_class, predicted, predicted, clock.Now());
  }
}

TEST(GateThreadsTest, WindowsAreNeverExceededAndEveryGrantComesBack) {
  // Goal: windows are exact under contention, and no asker is left asleep.
  // Method: eight askers on two engines while two threads announce, enter and
  // release; an outside count of grants is compared with the windows. Every
  // asker waits for as long as it takes, so a lost wake-up would hang.
  GateOptions options;
  options.batch_min_share = 0;
  Gate gate(options);
  gate.SetLatencyCapable(true);
  Witness witness;
  std::atomic<int> asking = 8;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 8; ++i) {
      const Engine engine = i % 2 == 0 ? Engine::kCompute : Engine::kHostToDevice;
      const RequestClass request_class = i % 4 < 2 ? RequestClass::kStandard : RequestClass::kBatch;
      threads.emplace_back("asker", [&, engine, request_class] {
        AskManyTimes(gate, engine, request_class, engine == Engine::kCompute ? 3 : 2, 3000, witness);
        asking.fetch_sub(1);
      });
    }
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back("latency", [&, i] {
        const MonotonicClock clock{};
        for (int round = 0; asking.load() > 0; ++round) {
          const Time now = clock.Now();
          const GateToken token = gate.Announce(now, now + Microseconds(round % 200));
          if ((round + i) % 3 != 0) gate.EnterDevice(token);
          gate.Release(token, (round + i) % 3 != 0);
        }
      });
    }
  }
  EXPECT_EQ(witness.excess.load(), 0);
  EXPECT_EQ(witness.grants.load(), 24'000u);
  EXPECT_EQ(gate.counters().granted, 24'000u);
  EXPECT_EQ(gate.latency_on_device(), 0);
  for (const Engine engine : {Engine::kCompute, Engine::kHostToDevice, Engine::kDeviceToHost}) {
    EXPECT_EQ(gate.in_flight_count(engine), 0);
    EXPECT_EQ(gate.in_flight_time(engine), absl::ZeroDuration());
  }
}

TEST(GateThreadsTest, TheLastPlaceInAWindowIsGivenOnce) {
  // Goal: room is decided and taken in one step. Method: four threads ask an
  // open gate without waiting, for a window with room for one, and look whether
  // they hold it alone.
  const MonotonicClock clock{};
  GateOptions options;
  options.compute_window = Microseconds(20);
  Gate gate(options);
  gate.SetLatencyCapable(true);
  Witness witness;
  auto& in_flight = witness.in_flight[0];
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("asker", [&] {
        for (int round = 0; round < 200'000; ++round) {
          if (!gate.TryGrant(Engine::kCompute, RequestClass::kStandard, Microseconds(20), clock.Now()).granted)
            continue;
          if (in_flight.fetch_add(1) > 0) witness.excess.fetch_add(1);
          witness.grants.fetch_add(1);
          in_flight.fetch_sub(1);
          gate.Complete(Engine::kCompute, RequestClass::kStandard, Microseconds(20), Microseconds(20), clock.Now());
        }
      });
    }
  }
  EXPECT_EQ(witness.excess.load(), 0);
  EXPECT_GT(witness.grants.load(), 0u);
}

TEST(GateThreadsTest, TokensOfManyThreadsNeverMixUp) {
  // Goal: a place is never held by two tokens, and no release is lost. Method:
  // four threads take and release tokens twice each; on_device must come back
  // to zero and all places must be free at the end.
  Gate gate(GateOptions{});
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("latency", [&gate, i] {
        const MonotonicClock clock{};
        std::array<GateToken, 8> held;
        for (int round = 0; round < 20'000; ++round) {
          GateToken& token = held[static_cast<size_t>(round) % held.size()];
          gate.Release(token, false);
          const GateToken released = token;
          token = gate.Announce(clock.Now(), clock.Now());
          gate.Release(released, false);
          if ((round + i) % 2 == 0) gate.EnterDevice(token);
          gate.TryGrant(Engine::kDeviceToHost, RequestClass::kStandard, Microseconds(1), clock.Now());
        }
        for (const GateToken token : held) gate.Release(token, false);
      });
    }
  }
  EXPECT_EQ(gate.latency_on_device(), 0);
  EXPECT_EQ(gate.counters().untracked_tokens, 0u);
  std::vector<GateToken> tokens;
  for (int i = 0; i < Gate::kMaxTokens; ++i) tokens.push_back(gate.Announce(Time::Zero(), Time::Infinite()));
  EXPECT_EQ(gate.counters().untracked_tokens, 0u) << "a place was never given back";
}

TEST(GateThreadsTest, WaitersBeyondTheLastPlaceStillGetTheirTurn) {
  // Goal: more waiters than places is slow, not wrong. Method: fill the places,
  // wait with one more.
  const MonotonicClock clock{};
  Gate gate(GateOptions{});
  std::vector<std::unique_ptr<GateWaiter>> waiters;
  for (int i = 0; i < Gate::kMaxWaiters; ++i) waiters.push_back(std::make_unique<GateWaiter>(gate));
  GateWaiter extra(gate);
  gate.EnterDevice({});
  Thread latency("latency", [&gate] { gate.Release({}, true); });
  while (true) {
    extra.Arm();
    if (gate.TryGrant(Engine::kCompute, RequestClass::kStandard, Microseconds(1), clock.Now()).granted) break;
    extra.WaitUntil(clock.Now(), Time::Infinite());
  }
  EXPECT_EQ(gate.in_flight_count(Engine::kCompute), 1);
}

}  // namespace
}  // namespace sluice::gpu
