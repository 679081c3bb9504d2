// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/histogram.h"
#include "server/metrics/striped_counters.h"
#include "server/metrics/words.h"

namespace sluice::metrics {

/// Stage histograms of one class on one device.
struct StageCells {
  explicit StageCells(const Edges& edges)
      : histograms{DurationHistogram(edges), DurationHistogram(edges), DurationHistogram(edges),
                   DurationHistogram(edges), DurationHistogram(edges), DurationHistogram(edges),
                   DurationHistogram(edges)} {}
  std::array<DurationHistogram, kStageCount> histograms;
};

/// What is counted for the server as a whole, not per model. Internal to metrics/; owned by Metrics. Threads: the
/// counters are self-synchronised, the rest is constant.
struct ServerCells {
  ServerCells(const std::vector<absl::Duration>& edges_in, const std::vector<std::string>& devices_in)
      : edges(edges_in), devices(devices_in), stages(kClassLabelCount * (devices_in.size() + 1)) {}

  /// Index of (class, device); a device outside the list (none chosen) is the last column.
  size_t CellIndex(size_t class_index, int device) const {
    const bool known = device >= 0 && static_cast<size_t>(device) < devices.size();
    return class_index * (devices.size() + 1) + (known ? static_cast<size_t>(device) : devices.size());
  }

  /// Nanoseconds within [0, one day]. Anything outside means two clocks were mixed: it is counted, and the limit taken,
  /// since one bad sample would spoil a sum for ever.
  int64_t Clamp(absl::Duration duration) {
    constexpr absl::Duration kLongest = absl::Hours(24);
    if (duration >= absl::ZeroDuration() && duration <= kLongest) return absl::ToInt64Nanoseconds(duration);
    clock_errors.Add(0, 1);
    return duration < absl::ZeroDuration() ? 0 : absl::ToInt64Nanoseconds(kLongest);
  }

  const Edges edges;
  const std::vector<std::string> devices;
  std::vector<OnFirstUse<StageCells>> stages;
  StripedCounters rejected{kClassLabelCount * kRejectReasonCount};
  StripedCounters demoted{kClassLabelCount * kDemotionReasonCount};
  StripedCounters expired{kClassLabelCount * kPhaseCount};
  StripedCounters cancelled{kClassLabelCount * kPhaseCount};
  StripedCounters clock_errors{1};
};

}  // namespace sluice::metrics
