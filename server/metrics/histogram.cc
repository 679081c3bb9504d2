// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/histogram.h"

#include <algorithm>
#include <numeric>

namespace sluice::metrics {

Edges::Edges(const std::vector<absl::Duration>& edges) {
  for (const absl::Duration edge : edges) {
    nanoseconds_.push_back(absl::ToInt64Nanoseconds(edge));
    seconds_.push_back(absl::ToDoubleSeconds(edge));
  }
}

size_t Edges::BucketOf(int64_t ns) const {
  return static_cast<size_t>(std::lower_bound(nanoseconds_.begin(), nanoseconds_.end(), ns) - nanoseconds_.begin());
}

std::vector<absl::Duration> DefaultEdges() {
  std::vector<absl::Duration> edges;
  for (const int64_t us :
       {100,   250,   500,   750,   1000,   1500,   2000,   3000,   5000,   7500,    10000,   15000,
        20000, 30000, 50000, 75000, 100000, 150000, 200000, 300000, 500000, 1000000, 2500000, 10000000}) {
    edges.push_back(absl::Microseconds(us));
  }
  return edges;
}

int64_t HistogramReading::count() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

HistogramReading DurationHistogram::Read() const {
  HistogramReading reading;
  reading.counts.reserve(edges_.size() + 1);
  for (size_t i = 0; i <= edges_.size(); ++i) reading.counts.push_back(counters_.Sum(i));
  reading.sum_seconds = absl::ToDoubleSeconds(absl::Nanoseconds(counters_.Sum(edges_.size() + 1)));
  return reading;
}

void AddReading(const HistogramReading& other, HistogramReading& sum) {
  sum.counts.resize(std::max(sum.counts.size(), other.counts.size()));
  for (size_t i = 0; i < other.counts.size(); ++i) sum.counts[i] += other.counts[i];
  sum.sum_seconds += other.sum_seconds;
}

}  // namespace sluice::metrics
