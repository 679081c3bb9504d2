// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "tests/sim/event_loop.h"

namespace sluice::sim {

/// A device in virtual time: one compute engine that runs one unit at a time, and two copy engines. Streams are first
/// in, first out; the compute engine takes the head of the highest-priority stream that has one, never interrupts it,
/// and a stream's next unit follows its last one after a launch gap. Copies run in the order they were issued,
/// whatever their stream. Single-threaded. After Lose (or Hang) nothing completes any more.
class SimDevice {
 public:
  static constexpr absl::Duration kLaunchGap = absl::Microseconds(1);

  struct Unit {
    RequestClass request_class = RequestClass::kBatch;
    absl::Duration predicted;
    bool owed = false;
    absl::Duration duration;    ///< What it really takes.
    absl::Duration seen_after;  ///< How late its completion is noticed.
    absl::AnyInvocable<void()> on_start = [] {};
    absl::AnyInvocable<void(absl::Duration measured)> on_done = [](absl::Duration) {};
  };

  explicit SimDevice(EventLoop& loop) : loop_(loop) {}

  int AddStream(bool high_priority) {
    streams_.emplace_back().high_priority = high_priority;
    return static_cast<int>(streams_.size()) - 1;
  }
  void Launch(int stream, Unit unit);
  void Copy(gpu::Engine engine, Unit chunk);
  void Hang() { hung_ = true; }

  /// Lower-class units that are not owed: what a latency request may find in its way.
  struct LowerWork {
    absl::Duration predicted;
    int unit_count = 0;
  };
  /// All of it that has ended by now.
  LowerWork lower_ended() const {
    return lower_runs_ ? LowerWork{lower_started_.predicted - lower_running_, lower_started_.unit_count - 1}
                       : lower_started_;
  }
  /// All of it that has started.
  LowerWork lower_started() const { return lower_started_; }
  absl::Duration computed(RequestClass request_class) const { return computed_[static_cast<size_t>(request_class)]; }

 private:
  struct Stream {
    bool high_priority = false;
    std::deque<Unit> units;
    Time ready_at;  ///< Of its head; also decides between streams of one priority.
  };

  void RunNext();
  void Finish(Unit unit);

  EventLoop& loop_;
  std::deque<Stream> streams_;  // A vector would copy its units to grow.
  std::array<Time, gpu::kEngineCount> copy_free_at_{};
  bool busy_ = false;
  bool hung_ = false;
  LowerWork lower_started_;
  bool lower_runs_ = false;
  absl::Duration lower_running_;
  std::array<absl::Duration, kRequestClassCount> computed_{};
};

}  // namespace sluice::sim
