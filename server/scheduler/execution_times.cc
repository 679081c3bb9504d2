// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/execution_times.h"

#include <algorithm>
#include <bit>

namespace sluice::scheduler {

int ExecutionTimes::SizeIndex(int64_t rows) {
  const uint64_t positive = static_cast<uint64_t>(std::max<int64_t>(rows, 1));
  return std::min<int>(std::bit_width(positive) - 1, kSizes - 1);
}

void ExecutionTimes::Add(int64_t rows, absl::Duration measured, Time now) {
  if (measured <= absl::ZeroDuration()) return;
  MovingAverage& average = averages_[SizeIndex(rows)];
  const absl::Duration known = average.value();
  if (known > absl::ZeroDuration()) measured = std::min(measured, known * kMaxGrowth);
  average.Add(measured);
  trusted_until_ = now + kLifetime;
}

absl::Duration ExecutionTimes::Predict(int64_t rows) const {
  const int index = SizeIndex(rows);
  for (int lower = index; lower >= 0; --lower) {
    if (averages_[lower].value() > absl::ZeroDuration()) return averages_[lower].value();
  }
  for (int higher = index + 1; higher < kSizes; ++higher) {
    const absl::Duration known = averages_[higher].value();
    if (known > absl::ZeroDuration()) return known / (int64_t{1} << (higher - index));
  }
  return absl::ZeroDuration();
}

absl::Duration ExecutionTimes::PredictShare(int64_t rows, int64_t max_batch_rows) const {
  rows = std::max<int64_t>(rows, 1);
  if (rows >= max_batch_rows) return Predict(rows);
  // The share in the largest execution that has been measured: merging more never makes a row dearer.
  for (int index = SizeIndex(max_batch_rows); index > SizeIndex(rows); --index) {
    const absl::Duration known = averages_[index].value();
    if (known > absl::ZeroDuration()) return known * static_cast<double>(rows) / static_cast<double>(2LL << index);
  }
  return Predict(rows) * static_cast<double>(rows) / static_cast<double>(std::max(rows, max_batch_rows));
}

bool ExecutionTimes::TrustedNow(Time now) {
  if (now < trusted_until_) return true;
  trusted_until_ = now + kLifetime;
  return false;
}

}  // namespace sluice::scheduler
