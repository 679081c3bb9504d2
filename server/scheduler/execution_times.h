// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/moving_average.h"

namespace sluice::scheduler {

/// What executions of one model have taken, by number of rows. Purpose: predict the next one, never too high on
/// purpose: predictions refuse requests, and a request must not be refused on a guess. Bounds: one average per power
/// of two of rows, kSizes in all; a sample counts as at most kMaxGrowth times its average, so that one stall does not
/// pass for the model's speed. Threads: the owner's; no lock, no clock.
class ExecutionTimes {
 public:
  static constexpr int kSizes = 24;
  static constexpr int kMaxGrowth = 4;
  /// A prediction older than this refuses nobody until it has been measured again.
  static constexpr absl::Duration kLifetime = absl::Seconds(1);

  void Add(int64_t rows, absl::Duration measured, Time now);

  /// Zero when nothing is known. Sizes not measured yet are bounded from below by the nearest one that was: a smaller
  /// size as it is, a larger one in proportion.
  absl::Duration Predict(int64_t rows) const;

  /// The least time that `rows` rows can add to an execution that merges them with others. Zero when nothing is known.
  absl::Duration PredictShare(int64_t rows, int64_t max_batch_rows) const;

  /// May predictions refuse a request now? Once the last measurement is older than kLifetime this is false for one
  /// caller in every kLifetime: that request's execution is the new measurement. Without it a model whose prediction
  /// is too high would refuse every request and so never be measured again.
  bool TrustedNow(Time now);

 private:
  static int SizeIndex(int64_t rows);

  std::array<MovingAverage, kSizes> averages_;
  Time trusted_until_;
};

}  // namespace sluice::scheduler
