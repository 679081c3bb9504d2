// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/failure.h"
#include "tests/sim/planted.h"

namespace sluice::sim {

/// A sum of durations over the last second, in steps of 10 ms.
class SlidingSecond {
 public:
  static constexpr absl::Duration kStep = absl::Milliseconds(10);
  void Add(Time at, absl::Duration amount);
  absl::Duration Sum(Time now);

 private:
  void Forget(Time now);
  std::deque<std::pair<int64_t, absl::Duration>> steps_;
  absl::Duration sum_;
};

/// A Gate whose every answer is compared with what DESIGN.md 6 allows, from books of its own. It knows the truth: which
/// tokens are held, what is in flight, for how long batch was held back. Single-threaded.
///
/// Checked at each answer: nothing is granted against a token unless owed; windows (in flight within the window, or
/// exactly one unit); standard before batch but for the floor; no refusal without a cause; a time to ask again that is
/// not now. Over seconds: batch gets its floor of the time it was held back, and no more than that against others.
/// Seconds with a unit in the way that nobody can interrupt, longer than kLongUnit, are no measure of the gate.
class CheckedGate {
 public:
  static constexpr absl::Duration kLongUnit = absl::Milliseconds(100);

  CheckedGate(const gpu::GateOptions& options, bool latency_capable, Plant plant, const EventLoop& loop,
              Failure& failure);

  gpu::GateToken Announce(Time ready_at);
  void Reannounce(gpu::GateToken token, Time ready_at);
  void EnterDevice(gpu::GateToken token);
  void Release(gpu::GateToken token, bool entered_device);
  gpu::Grant TryGrant(gpu::Engine engine, RequestClass request_class, absl::Duration predicted);
  void Complete(gpu::Engine engine, RequestClass request_class, absl::Duration predicted, absl::Duration measured);
  void SetBatchPending(bool pending);
  void SetStandardWaiting(int delta);
  /// The clock has jumped: seconds that were being measured are no measure of the gate.
  void OnJump() { pending_since_ = loop_.now(); }

  /// Everything has ended: nothing may be left, every place for a token must be free, and the gate's counters must
  /// agree with the books.
  void CheckAtEnd();

  gpu::Gate& gate() { return gate_; }
  absl::Duration window() const;
  const gpu::GateCounters& counted() const { return counted_; }

 private:
  struct Token {
    Time ready_at;
    bool entered = false, counted_as_lapsed = false;
  };
  struct EngineBooks {
    absl::Duration in_flight;
    int in_flight_count = 0;
    int batch_in_flight = 0;
    Time newest_grant, last_completion;
    Time held_since = Time::Infinite();
  };

  EngineBooks& books(gpu::Engine engine) { return books_[static_cast<size_t>(engine)]; }
  Time EarliestReady() const;
  void CountLapsed();
  void CheckPlaces();
  bool HasRoom(gpu::Engine engine, absl::Duration cost) const;
  void CheckGranted(gpu::Engine engine, RequestClass request_class, absl::Duration cost, bool blocked, bool owed);
  void CheckRefused(gpu::Engine engine, RequestClass request_class, absl::Duration cost, bool blocked, Time retry_at);
  void NoteBatchAnswer(gpu::Engine engine, absl::Duration cost, bool granted, bool held_back);
  void NoteLongUnit();
  void CheckFloor();

  const gpu::GateOptions options_;
  const bool latency_capable_;
  const EventLoop& loop_;
  Failure& failure_;
  PlantedGate gate_;

  std::map<uint32_t, Token> tokens_;
  int on_device_ = 0;
  std::array<EngineBooks, gpu::kEngineCount> books_;
  int standard_waiting_ = 0;
  bool batch_pending_ = false;
  gpu::GateCounters counted_;

  // The floor, of the compute engine.
  Time pending_since_ = Time::Infinite();
  Time next_floor_check_;
  absl::Duration longest_batch_unit_, longest_asked_batch_unit_;  ///< Granted; asked for.
  SlidingSecond held_, batch_got_, batch_got_against_others_;
};

}  // namespace sluice::sim
