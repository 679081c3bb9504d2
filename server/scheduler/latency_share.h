// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sluice::scheduler {

/// How much of one device's time latency requests may ask for (DESIGN.md 6: the ceiling): any client can say that its
/// requests are of the latency class, and everything else waits for those. Predicted device time is paid for at `most`
/// seconds of it a second, up to one second ahead: the generic cell rate algorithm (ITU-T I.371), whose whole state is
/// one time. So a burst has room, and what comes for longer than that at a higher rate does not. Threads: all methods
/// from any thread, lock-free; `now` of different threads may be a little out of order.
class LatencyShare {
 public:
  static constexpr absl::Duration kAhead = absl::Seconds(1);

  /// 0 < most; 1 and above: there is always room.
  explicit LatencyShare(double most) : most_(most) {}

  /// Takes room for work that is predicted to take so long. False when there is none. Work for which there would never
  /// be room has some while nothing else has taken any.
  bool TryTake(absl::Duration predicted, Time now);
  /// Part of what was taken is not needed: the work was merged with other work, or never started.
  void GiveBack(absl::Duration unused);
  /// The part of the room that is taken, 0 to 1, or more by work that is longer than all of it.
  double Used(Time now) const;

 private:
  int64_t Cost(absl::Duration predicted) const { return absl::ToInt64Nanoseconds(predicted / most_); }

  const double most_;
  std::atomic<int64_t> paid_until_ns_ = 0;  ///< On the scale of Time.
};

}  // namespace sluice::scheduler
