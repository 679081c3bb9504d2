// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "base/wakeup.h"
#include "gpu/timeline.h"

namespace sluice::gpu {

enum class Engine : uint8_t { kCompute, kHostToDevice, kDeviceToHost };
inline constexpr int kEngineCount = 3;

/// All bounds of a gate; from the config.
struct GateOptions {
  absl::Duration compute_window = absl::Microseconds(60);  ///< Predicted time of units in flight.
  absl::Duration idle_compute_window =
      absl::Microseconds(2000);  ///< The same while no latency-capable model is loaded.
  /// The successor of a unit may be granted, however long, once this much of the predicted time of the only one in
  /// flight is left, so that the device never waits for the host between two units. A unit that is longer than
  /// three quarters of the window may follow two in the same way. 0 turns it off.
  absl::Duration handover;
  int copy_window = 2;                                    ///< Chunks in flight per direction.
  double batch_min_share = 0.05;                          ///< Of compute time over any second; 0 turns the floor off.
  absl::Duration max_owed_wait = absl::Milliseconds(10);  ///< How long an owed unit waits for a quiet moment.
  bool enabled = true;                                    ///< Off: everything is granted inside its window.
};

/// Names a latency request at the gate. 0 is "none". Only the gate reads the value: a place and a use count, so that a
/// token kept too long cannot touch the request that has the place now.
struct GateToken {
  uint32_t value = 0;
  explicit operator bool() const { return value != 0; }
};

struct Grant {
  bool granted = false;
  bool owed = false;                 ///< Granted by the floor, against a token.
  Time retry_at = Time::Infinite();  ///< When to ask again if nothing wakes the asker before.
};

struct GateCounters {
  uint64_t granted = 0, refused = 0, owed_grants = 0, lapsed_tokens = 0, untracked_tokens = 0;
};

/// Holds batch and standard work back while a latency request is in the house (DESIGN.md 6). One per device. Purpose:
/// decide, for each unit or chunk, "now or later". Bounds: kMaxTokens tokens (a request beyond them is counted and
/// gates nothing until it is on the GPU); windows per engine as in GateOptions. Threads: every method from any thread,
/// no lock, no allocation, never blocks: state is atomics. Time is always passed in, so the simulation drives it.
///
/// The rules, in the order they are applied to a unit or chunk:
/// 1. Nothing while a token is on the device, and nothing that is predicted to be over later than the earliest ready_at
///    of an announced token, counting what is in flight on the engine. This includes an empty window and a unit longer
///    than the time that is left; a ready_at that has passed closes the gate until the token enters, is released, or
///    lapses one compute window later.
/// 2. Batch waits while standard does.
/// 3. Its engine's window has room. An empty window takes one unit, however long, and one that is about to become empty
///    (GateOptions::handover) another.
/// Floor: while batch is pending and its last question was refused by rule 1, rule 2 or a window full of standard work
/// alone, it is owed batch_min_share of that time on that engine, at most one second's share; a batch that holds itself
/// up is owed nothing. A unit is owed once the debt covers it (or is at its bound). An owed unit does not wait for
/// standard, has the next room in the window, and waits for rule 1 at most max_owed_wait. What batch is granted pays
/// the debt. Each engine has a debt of its own: chunks that feed units are owed like units.
class Gate {
 public:
  static constexpr int kMaxTokens = 256;
  static constexpr int kMaxWaiters = 64;

  explicit Gate(const GateOptions& options);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Where to record when the gate was closed: from the first token on the device to the last release. Before anything
  /// else is called; it must outlive the gate.
  void SetTimeline(Timeline* timeline) { timeline_ = timeline; }

  // Latency side.
  /// A latency request is complete; its work is predicted to reach the GPU at `ready_at`.
  GateToken Announce(Time now, Time ready_at);
  /// A better prediction for a token that has not entered, or its renewal after it lapsed (it waited in a queue).
  void Reannounce(GateToken token, Time ready_at);
  /// Its work is about to be issued: nothing is granted until Release. Also for a lapsed or empty token's request; an
  /// empty one counts without a place. Does nothing for a token that was released or has entered.
  void EnterDevice(GateToken token);
  /// Its last kernel is over, or it was rejected, expired or cancelled. Idempotent for a token. With an empty token
  /// `entered_device` says whether EnterDevice was called, and the caller calls once. Wakes the waiters.
  void Release(GateToken token, bool entered_device);

  // Standard and batch side.
  /// May one more unit (or chunk) of `engine` start now? Reserves it in the window if so. Not for the latency class. A
  /// prediction of zero means that nobody knows: it counts as a whole compute window.
  Grant TryGrant(Engine engine, RequestClass request_class, absl::Duration predicted, Time now);
  /// Every grant is returned once, with the prediction it was granted for, when the work is over; `measured` is zero
  /// when it was never launched.
  void Complete(Engine engine, RequestClass request_class, absl::Duration predicted, absl::Duration measured, Time now);

  /// Batch has work waiting (or no longer has): the floor only owes while it does.
  void SetBatchPending(bool pending, Time now);
  /// Chooses the compute window. Starts as false.
  void SetLatencyCapable(bool any_latency_model);
  /// One more (or one less) standard execution waits for a grant.
  void SetStandardWaiting(int delta);

  int latency_on_device() const { return on_device_.load(std::memory_order_acquire); }
  /// How often EnterDevice was called: unchanged between two looks at an open gate means no latency work between them.
  uint64_t latency_entries() const { return entries_.load(std::memory_order_acquire); }
  /// The latest `now` of a Complete of `engine`, and what is in flight there.
  Time last_completion(Engine engine) const;
  absl::Duration in_flight_time(Engine engine) const;
  int in_flight_count(Engine engine) const;
  GateCounters counters() const;
  const GateOptions& options() const { return options_; }

 private:
  friend class GateWaiter;

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr int kTokenWords = kMaxTokens / 64;

  /// A place for one token. `owner` is the token's value while held (kEntered added once on the device), 0 when free:
  /// its compare-and-swap decides every race between EnterDevice and Release. `ready_ns` is kNever unless announced.
  struct TokenPlace {
    std::atomic<uint32_t> owner = 0;
    std::atomic<uint32_t> use_count = 0;
    std::atomic<int64_t> ready_ns = kNever;
  };
  struct alignas(64) EngineState {
    std::atomic<uint64_t> in_flight = 0;  ///< Count in the upper 16 bits, predicted nanoseconds below: exact together.
    std::atomic<int64_t> last_completion_ns = 0;
    std::atomic<int64_t> newest_grant_ns = 0;
    // The floor.
    std::atomic<int64_t> debt_ns = 0;
    std::atomic<int64_t> accounted_until_ns = 0;
    std::atomic<int64_t> owed_since_ns = kNever;
    std::atomic<int> batch_in_flight = 0;
    std::atomic<bool> held_back = false;
    std::atomic<int64_t> turn_until_ns = 0;  ///< An owed unit waits for room until then: standard lets it have it.
  };
  struct Floor {
    bool owed = false;
    int64_t owed_at_ns = kNever;     ///< When the debt covers the unit; standard yields then.
    int64_t overdue_at_ns = kNever;  ///< When tokens yield.
  };
  struct Verdict {
    bool refused = false;
    bool against_token = false;     ///< Allowed although a token forbids it, or refused because one does.
    bool against_standard = false;  ///< The same for waiting standard work.
    int64_t time_left_ns = kNever;  ///< Until the engine must be free.
    int64_t retry_ns = kNever;
    Floor floor;
  };
  enum class Room { kReserved, kWindowFull, kTooLate };

  EngineState& state(Engine engine) { return engines_[static_cast<size_t>(engine)]; }
  const EngineState& state(Engine engine) const { return engines_[static_cast<size_t>(engine)]; }
  int64_t Cost(absl::Duration predicted) const;
  int64_t EarliestReady(int64_t now_ns);
  Room Reserve(Engine engine, int64_t cost_ns, int64_t time_left_ns, int64_t now_ns);
  bool AboutToEnd(const EngineState& engine, int64_t in_flight_ns, int64_t now_ns) const;
  int64_t AccountDebt(EngineState& engine, int64_t now_ns) const;
  Floor UpdateFloor(Engine engine, int64_t cost_ns, int64_t now_ns);
  void AddDebt(EngineState& engine, int64_t delta_ns) const;
  Verdict Judge(Engine engine, RequestClass request_class, int64_t cost_ns, int64_t now_ns);
  void HoldBack(EngineState& engine);
  Grant Refuse(int64_t retry_ns);
  void CountIn();
  void CountOut();
  void WakeWaiters();

  const GateOptions options_;
  const int64_t window_ns_;
  const int64_t idle_window_ns_;
  const int64_t handover_ns_;
  const int64_t owed_wait_ns_;
  const int64_t debt_bound_ns_;  ///< One second's share.

  Timeline* timeline_ = nullptr;

  alignas(64) std::atomic<int> on_device_ = 0;
  std::atomic<int64_t> closed_since_ns_ = 0;  ///< For the timeline, only while it records; 0: not known.
  std::atomic<uint64_t> entries_ = 0;
  std::atomic<int> standard_waiting_ = 0;
  std::atomic<bool> latency_capable_ = false;
  std::atomic<bool> batch_pending_ = false;
  alignas(64) std::array<std::atomic<uint64_t>, kTokenWords> claimed_{};  ///< A bit for each place in use.
  std::array<TokenPlace, kMaxTokens> places_;
  std::array<EngineState, kEngineCount> engines_;

  // Waiters: bit i stands for wakeups_[i]. Wakeups live here, so that a late notification never meets a dead one.
  alignas(64) std::atomic<uint64_t> armed_ = 0;
  std::atomic<uint64_t> registered_ = 0;
  std::array<Wakeup, kMaxWaiters> wakeups_;

  alignas(64) std::atomic<uint64_t> granted_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> owed_grants_ = 0;
  std::atomic<uint64_t> lapsed_tokens_ = 0;
  std::atomic<uint64_t> untracked_tokens_ = 0;
};

/// One thread's place to wait for a gate. Usage: after a refusal Arm(), ask once more, and only when refused again
/// WaitUntil(): a change between the two is never missed. Bounds: kMaxWaiters exist; one made beyond them works by
/// asking again every 200 us. One thread waits; any thread may Notify. The gate must outlive it.
class GateWaiter {
 public:
  explicit GateWaiter(Gate& gate);
  ~GateWaiter();
  GateWaiter(const GateWaiter&) = delete;
  GateWaiter& operator=(const GateWaiter&) = delete;

  void Arm();
  /// Until the gate or Notify wakes it or the deadline has passed. `now` is on MonotonicClock's scale.
  void WaitUntil(Time now, Time deadline);
  void Notify() { wakeup_->Notify(); }
  /// The next WaitUntil would return at once.
  bool notified() const { return wakeup_->notified(); }

 private:
  Gate& gate_;
  int index_ = -1;
  Wakeup own_;
  Wakeup* wakeup_ = &own_;
};

}  // namespace sluice::gpu
