// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Goal: what bench/pipeline judges by. Method: numbers whose quantiles and ratios are known.
#include "bench/common/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace sluice::bench {
namespace {

Numbers UpTo(int last) {
  Numbers numbers(static_cast<size_t>(last));
  std::iota(numbers.begin(), numbers.end(), 1.0);
  return numbers;
}

TEST(StatisticsTest, QuantileIsTheSmallestThatCoversTheShare) {
  EXPECT_EQ(Quantile(UpTo(100), 0.99), 99);
  EXPECT_EQ(Quantile(UpTo(100), 0.991), 100);
  EXPECT_EQ(Quantile(UpTo(100), 1), 100);
  EXPECT_EQ(Quantile({7}, 0.01), 7);
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
}

TEST(StatisticsTest, RatiosOfNothingAreZero) {
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(Mean({1, 2, 6}), 3);
  EXPECT_EQ(Ratio(1, 0), 0);
  EXPECT_EQ(PooledRatio({}, 0.99), 0);
}

TEST(StatisticsTest, RoundsArePooled) { EXPECT_EQ(PooledRatio({{{2, 2}, {1}}, {{4, 4}, {2}}}, 1), 2); }

TEST(StatisticsTest, IntervalCoversTheRatioAndRepeats) {
  const std::vector<RoundPair> rounds = {{{1.0}, {1}}, {{1.2}, {1}}, {{1.4}, {1}}};
  const auto interval = BootstrapInterval(rounds, 0.5, 1000, 7);
  EXPECT_EQ(interval, BootstrapInterval(rounds, 0.5, 1000, 7));
  EXPECT_LE(interval.first, 1.2);
  EXPECT_GE(interval.second, 1.2);
  EXPECT_LT(interval.first, interval.second);
}

TEST(StatisticsTest, IntervalOfEqualRoundsIsAPoint) {
  const RoundPair round = {UpTo(50), UpTo(25)};
  const auto [low, high] = BootstrapInterval({round, round, round}, 0.99, 200, 1);
  EXPECT_EQ(low, high);
  EXPECT_EQ(low, 2);
}

TEST(StatisticsTest, IntervalOfMeansCoversTheRatioAndRepeats) {
  const Numbers above = {1, 2, 3, 4}, below = {2, 2, 2, 2};
  const auto interval = BootstrapMeans(above, below, 1000, 7);
  EXPECT_EQ(interval, BootstrapMeans(above, below, 1000, 7));
  EXPECT_LT(interval.first, 1.25);
  EXPECT_GT(interval.second, 1.25);
  EXPECT_GE(interval.first, 0.5);
  EXPECT_LE(interval.second, 2);
  EXPECT_EQ(BootstrapMeans({}, {}, 10, 1), std::pair(0.0, 0.0));
}

}  // namespace
}  // namespace sluice::bench
