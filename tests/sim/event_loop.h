// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace sluice::sim {

/// Virtual time and what is to happen in it. Actions run in the order of their times, equal times in the order they
/// were asked for. When time jumps, what was due in between runs late, at the new time.
class EventLoop {
 public:
  using Action = absl::AnyInvocable<void()>;

  Time now() const { return now_; }
  void At(Time when, Action action) {
    events_.push_back({when, ++sequence_, std::move(action)});
    std::push_heap(events_.begin(), events_.end(), Later);
  }
  void After(absl::Duration delay, Action action) { At(now_ + delay, std::move(action)); }
  void Jump(absl::Duration ahead) { now_ = now_ + ahead; }

  /// Runs the next action; false when there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), Later);
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = std::max(now_, event.when);
    event.action();
    return true;
  }

 private:
  struct Event {
    Time when;
    uint64_t sequence;
    Action action;
  };
  static bool Later(const Event& a, const Event& b) {
    return std::pair(a.when, a.sequence) > std::pair(b.when, b.sequence);
  }

  Time now_ = Time::FromNanoseconds(1'000'000'000);
  uint64_t sequence_ = 0;
  std::vector<Event> events_;
};

}  // namespace sluice::sim
