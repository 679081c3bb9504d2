// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/moving_average.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/slot.h"
#include "gpu/timeline.h"
#include "gpu/transfer.h"

namespace sluice::gpu {

/// What was measured of the units or chunks of one engine.
struct UnitTimes {
  uint64_t count = 0;
  absl::Duration least, average, most;
};

/// Collects UnitTimes. Any thread; relaxed counters, so a snapshot may miss the latest.
class UnitMeter {
 public:
  void Add(absl::Duration measured);
  UnitTimes times() const;

 private:
  std::atomic<uint64_t> count_ = 0;
  std::atomic<int64_t> sum_ns_ = 0;
  std::atomic<int64_t> least_ns_ = 0;
  std::atomic<int64_t> most_ns_ = 0;
};

/// What the executions of one lane share. Everything outlives the executions.
struct LaneContext {
  Device* device = nullptr;
  Gate* gate = nullptr;
  const Clock* clock = nullptr;
  RequestClass request_class = RequestClass::kStandard;
  Timeline* timeline = nullptr;  ///< May be null.
  size_t chunk_bytes = TransferTuning().chunk_bytes;
  CopyTimes copy_times;
  std::array<UnitMeter, kEngineCount> meters;
};

enum class StepKind : uint8_t {
  kIssued,   ///< Something was issued; ask again.
  kRefused,  ///< The gate said later.
  kWaiting,  ///< For the device: see Progress::blocking_event.
  kEnded,    ///< Nothing more to issue.
};
struct Step {
  StepKind kind = StepKind::kEnded;
  Time retry_at = Time::Infinite();
};

/// One execution of the standard or batch class on its way through one stream: chunks in, units once the inputs were
/// seen to arrive, chunks out, each asking the gate. Purpose: hold what has been issued and what is left, so that a
/// request thread can drive one and the launcher several. Bounds: kMaxInFlight units or chunks in flight; allocates
/// nothing. Threads: one at a time. Advance and Reap never block while the device answers; after a device error they
/// wait for what was issued. Errors: the first is kept in status(), ends the issuing, and everything already issued is
/// still awaited and returned to the gate.
class Progress {
 public:
  static constexpr size_t kMaxInFlight = 32;

  /// `stop` may be null; once true, units not yet issued are left out and the status is CANCELLED. `request` is only
  /// for the timeline. On the thread that will call Reap.
  void Start(LaneContext& context, Slot& slot, StreamRef stream, const std::atomic<bool>* stop, uint64_t request = 0);
  /// Issues the next thing if the gate grants it.
  Step Advance();
  /// Returns to the gate what is over. True when something was.
  bool Reap();
  /// Issues nothing more; `status` becomes the execution's unless it has failed before.
  void End(absl::Status status);

  bool started() const { return slot_ != nullptr; }
  bool issued_all() const { return phase_ == Phase::kEnding; }
  /// Everything issued has been seen to be over, but for the event `done` itself.
  bool over() const { return phase_ == Phase::kEnding && in_flight_ == 0; }
  bool nothing_in_flight() const { return in_flight_ == 0; }
  /// The event whose completion lets this go on: the oldest in flight. None when only the gate is in the way.
  EventRef blocking_event() const;
  const absl::Status& status() const { return status_; }
  StreamRef stream() const { return stream_; }
  bool done_recorded() const { return done_recorded_; }
  /// When the copies in and out were begun, for the timeline; zero when it was not recording then.
  Time copy_in_at() const { return copy_in_at_; }
  Time copy_out_at() const { return copy_out_at_; }

 private:
  enum class Phase : uint8_t { kCopyIn, kInputsArriving, kUnits, kKernelsRunning, kCopyOut, kEnding };
  struct Mark {
    Engine engine = Engine::kCompute;
    EventRef event;                    ///< None when it could not be recorded: `done` stands in for it.
    MovingAverage* average = nullptr;  ///< Units only.
    size_t size_bytes = 0;             ///< Chunks only.
    absl::Duration predicted;
    Time issued_at;
    uint64_t latency_entries = 0;
    uint32_t index = 0;        ///< Of the unit or chunk in its execution.
    bool undisturbed = false;  ///< No latency work was on the device when it was issued.
  };

  Mark& mark(size_t age) { return marks_[(first_ + age) % kMaxInFlight]; }
  const Mark& mark(size_t age) const { return marks_[(first_ + age) % kMaxInFlight]; }
  Step IssueChunk(Engine engine);
  Step IssueUnit();
  /// Asks the gate and adds a mark when it grants.
  Grant Ask(Mark& wanted);
  Step EndWith(absl::Status status);
  absl::Status RecordInputs();
  absl::Status RecordDone();
  Step Seen(EventRef event, Phase next);
  void TakeBackNewest();
  void CompleteOldest(size_t count);
  bool Recording() const { return context_->timeline != nullptr && context_->timeline->recording(); }
  void RecordOldest(Time start, Time end, absl::Duration measured) const;
  void AwaitAll();

  LaneContext* context_ = nullptr;
  Slot* slot_ = nullptr;
  StreamRef stream_;
  const std::atomic<bool>* stop_ = nullptr;
  Phase phase_ = Phase::kCopyIn;
  ChunkCursor chunks_;
  size_t chunk_index_ = 0;
  size_t next_unit_ = 0;
  bool done_recorded_ = false;
  uint64_t request_ = 0;
  uint64_t track_ = 0;
  Time copy_in_at_, copy_out_at_;
  absl::Status status_;
  std::array<Mark, kMaxInFlight> marks_;  ///< A ring, oldest first: one stream, so they end in this order.
  size_t first_ = 0;
  size_t in_flight_ = 0;
};

/// Waits until everything issued for `slot` on `stream` is over, by its event `done` if that was recorded and can be
/// waited for, by the stream otherwise. Returns the first error met.
absl::Status AwaitDone(Device& device, StreamRef stream, const Slot& slot, bool done_recorded);

}  // namespace sluice::gpu
