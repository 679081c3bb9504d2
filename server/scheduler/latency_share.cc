// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/latency_share.h"

#include <algorithm>

namespace sluice::scheduler {

bool LatencyShare::TryTake(absl::Duration predicted, Time now) {
  if (most_ >= 1) return true;
  const int64_t now_ns = now.nanoseconds();
  const int64_t cost_ns = Cost(predicted);
  int64_t paid_until = paid_until_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t next = std::max(paid_until, now_ns) + cost_ns;
    if (next - now_ns > absl::ToInt64Nanoseconds(kAhead) && paid_until > now_ns) return false;
    if (paid_until_ns_.compare_exchange_weak(paid_until, next, std::memory_order_relaxed)) return true;
  }
}

void LatencyShare::GiveBack(absl::Duration unused) {
  if (most_ >= 1) return;
  paid_until_ns_.fetch_sub(std::max<int64_t>(Cost(unused), 0), std::memory_order_relaxed);
}

double LatencyShare::Used(Time now) const {
  const int64_t ahead = paid_until_ns_.load(std::memory_order_relaxed) - now.nanoseconds();
  return std::max(0.0, static_cast<double>(ahead) / static_cast<double>(absl::ToInt64Nanoseconds(kAhead)));
}

}  // namespace sluice::scheduler
