// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace sluice::client {

/// Log-linear histogram of durations. Each power of two is cut into 1,024 equal buckets, so that a quantile is within
/// 0.05 % (three significant digits) of the sample it stands for. Bounds: 1 us to 60 s, values outside are counted at
/// the bound; about 220 KB whatever the number of samples. Smallest, largest and mean are exact. Threads: none of its
/// own, guarded by its owner.
class Histogram {
 public:
  Histogram();

  void Record(absl::Duration value);
  /// Adds everything `other` holds.
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }
  /// Values above 60 s, which were counted as 60 s.
  uint64_t saturated_count() const { return saturated_count_; }
  absl::Duration min() const;
  absl::Duration max() const;
  absl::Duration mean() const;
  /// The smallest recorded value that at least `quantile` of all samples do not exceed; zero when empty. 0 < quantile
  /// <= 1.
  absl::Duration Quantile(double quantile) const;
  /// So many samples are in the bucket of `value` or below it.
  uint64_t CountUpTo(absl::Duration value) const;

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t saturated_count_ = 0;
  int64_t min_ns_ = 0;
  int64_t max_ns_ = 0;
  absl::Duration sum_;
};

}  // namespace sluice::client
