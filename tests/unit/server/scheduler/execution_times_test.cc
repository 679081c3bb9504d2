// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/execution_times.h"

#include <gtest/gtest.h>

namespace sluice::scheduler {
namespace {

constexpr Time kNow = Time::FromNanoseconds(1'000'000'000);

TEST(ExecutionTimesTest, KeepsSizesApart) {
  // Goal: a power of two of rows has its own average. Method: two sizes, and rows inside one of them.
  ExecutionTimes times;
  times.Add(1, absl::Milliseconds(1), kNow);
  times.Add(8, absl::Milliseconds(4), kNow);
  EXPECT_EQ(times.Predict(1), absl::Milliseconds(1));
  EXPECT_EQ(times.Predict(8), absl::Milliseconds(4));
  EXPECT_EQ(times.Predict(15), absl::Milliseconds(4));
}

TEST(ExecutionTimesTest, UnmeasuredSizesAreBoundedFromBelow) {
  // Goal: never a guess that is too high. Method: only one size known; ask above, below, and out of range.
  ExecutionTimes times;
  EXPECT_EQ(times.Predict(4), absl::ZeroDuration());
  times.Add(8, absl::Milliseconds(8), kNow);
  EXPECT_EQ(times.Predict(64), absl::Milliseconds(8));
  EXPECT_EQ(times.Predict(2), absl::Milliseconds(2));
  EXPECT_EQ(times.Predict(0), absl::Milliseconds(1));
  EXPECT_EQ(times.Predict(int64_t{1} << 40), absl::Milliseconds(8));
}

TEST(ExecutionTimesTest, OneStallCountsAsAFewTimesTheAverageAtMost) {
  // Goal: an outlier moves the average by a bounded step. Method: 1 ms known, then a sample of 1000 ms.
  ExecutionTimes times;
  times.Add(1, absl::Milliseconds(1), kNow);
  times.Add(1, absl::Seconds(1), kNow);
  EXPECT_LT(times.Predict(1), absl::Microseconds(1'400));
  EXPECT_GT(times.Predict(1), absl::Milliseconds(1));
}

TEST(ExecutionTimesTest, IgnoresWhatIsNoDuration) {
  // Goal: zero and negative samples do not count. Method: only such samples.
  ExecutionTimes times;
  times.Add(1, absl::ZeroDuration(), kNow);
  times.Add(1, -absl::Milliseconds(1), kNow);
  EXPECT_EQ(times.Predict(1), absl::ZeroDuration());
  EXPECT_FALSE(times.TrustedNow(kNow));
}

TEST(ExecutionTimesTest, ShareOfAMergedExecution) {
  // Goal: rows that share a large execution cost their part, never more than alone. Method: 1 and 8 rows known.
  ExecutionTimes times;
  times.Add(1, absl::Milliseconds(2), kNow);
  times.Add(8, absl::Milliseconds(4), kNow);
  EXPECT_EQ(times.PredictShare(1, 8), absl::Milliseconds(4) / 16);
  EXPECT_EQ(times.PredictShare(8, 8), absl::Milliseconds(4));
  EXPECT_EQ(times.PredictShare(20, 8), absl::Milliseconds(4));
}

TEST(ExecutionTimesTest, TrustRunsOutAndLetsOneThrough) {
  // Goal: one distrust per lifetime. Method: explicit times around the edge.
  ExecutionTimes times;
  times.Add(1, absl::Milliseconds(1), kNow);
  EXPECT_TRUE(times.TrustedNow(kNow + ExecutionTimes::kLifetime - absl::Nanoseconds(1)));
  const Time over = kNow + ExecutionTimes::kLifetime;
  EXPECT_FALSE(times.TrustedNow(over));
  EXPECT_TRUE(times.TrustedNow(over));
  EXPECT_FALSE(times.TrustedNow(over + ExecutionTimes::kLifetime));
}

}  // namespace
}  // namespace sluice::scheduler
