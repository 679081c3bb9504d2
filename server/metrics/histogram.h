// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/striped_counters.h"

namespace sluice::metrics {

/// Upper edges of the buckets of every duration histogram, ascending. Immutable.
class Edges {
 public:
  explicit Edges(const std::vector<absl::Duration>& edges);

  size_t size() const { return nanoseconds_.size(); }
  /// Index of the first edge that is not below `ns`; size() when all are (the +Inf bucket).
  size_t BucketOf(int64_t ns) const;
  /// As Prometheus shows them.
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  std::vector<int64_t> nanoseconds_;
  std::vector<double> seconds_;
};

/// 24 edges from 100 us to 10 s, on the thresholds users set targets at, at most a factor 1.7 apart between 0.5 ms and
/// 0.5 s. Each prints short with 16 significant digits, which is how the exposition prints it: 0.0006 or 0.07 would
/// come out as 0.0005999999999999999 and 0.07000000000000001, and le="0.0006" would select nothing.
std::vector<absl::Duration> DefaultEdges();

/// One histogram as read: counts per bucket (not cumulative; the last is +Inf) and the sum of what was observed.
struct HistogramReading {
  std::vector<int64_t> counts;
  double sum_seconds = 0;
  int64_t count() const;
};

/// Counts durations by bucket. Threads: as StripedCounters. The sum is kept in whole nanoseconds, so it is exact.
/// `edges` must outlive it.
class DurationHistogram {
 public:
  explicit DurationHistogram(const Edges& edges) : edges_(edges), counters_(edges.size() + 2) {}
  /// `ns` is not negative (ServerCells::Clamp).
  void Observe(int64_t ns) {
    counters_.Add(edges_.BucketOf(ns), 1);
    counters_.Add(edges_.size() + 1, ns);
  }
  HistogramReading Read() const;

 private:
  const Edges& edges_;
  StripedCounters counters_;  // One per bucket, then the sum.
};

/// Adds `other` to `sum`; both of the same edges.
void AddReading(const HistogramReading& other, HistogramReading& sum);

}  // namespace sluice::metrics
