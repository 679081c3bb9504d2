// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "client/random.h"

namespace sluice::client {
namespace {

// Goal: quantiles are right to three significant digits over the whole range. Method: a hundred thousand seeded
// samples, log-uniform from 1 us to 60 s, against the sorted samples themselves.
TEST(Histogram, QuantilesAgreeWithSortedSamples) {
  Random random(7);
  Histogram histogram;
  std::vector<double> samples;
  for (int i = 0; i < 100'000; ++i) {
    const double ns = std::exp(std::log(1e3) + random.Uniform() * (std::log(6e10) - std::log(1e3)));
    samples.push_back(std::floor(ns));
    histogram.Record(absl::Nanoseconds(static_cast<int64_t>(ns)));
  }
  std::sort(samples.begin(), samples.end());
  for (const double quantile : {0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    const double exact = samples[static_cast<size_t>(std::ceil(quantile * 100'000 - 1e-9)) - 1];
    const double found = absl::ToDoubleNanoseconds(histogram.Quantile(quantile));
    EXPECT_NEAR(found, exact, exact * 0.0006) << quantile;
  }
  EXPECT_EQ(absl::ToDoubleNanoseconds(histogram.max()), samples.back());
  EXPECT_EQ(absl::ToDoubleNanoseconds(histogram.min()), samples.front());
  EXPECT_EQ(histogram.Quantile(1), histogram.max());
  EXPECT_EQ(histogram.count(), 100'000u);
}

// Goal: the definition of a quantile for few samples. Method: ten known values; rank is the ceiling of q times n.
TEST(Histogram, RanksOfFewSamples) {
  Histogram histogram;
  for (int i = 1; i <= 10; ++i) histogram.Record(absl::Milliseconds(i));
  const auto near = [&](double quantile, double ms) {
    EXPECT_NEAR(absl::ToDoubleMilliseconds(histogram.Quantile(quantile)), ms, ms * 0.001) << quantile;
  };
  near(0.5, 5);
  near(0.51, 6);
  near(0.9, 9);
  near(0.91, 10);
  near(0.99, 10);
  EXPECT_EQ(histogram.mean(), absl::Microseconds(5500));
}

// Goal: values outside the range are counted, not lost, and are visible. Method: both sides of each bound.
TEST(Histogram, ValuesOutsideTheRangeCountAtItsBounds) {
  Histogram histogram;
  histogram.Record(absl::Nanoseconds(-5));
  histogram.Record(absl::Nanoseconds(1));
  histogram.Record(absl::Seconds(60));
  histogram.Record(absl::Seconds(1000));
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.saturated_count(), 1u);
  EXPECT_EQ(histogram.max(), absl::Seconds(1000));
  EXPECT_EQ(histogram.min(), absl::ZeroDuration());
  EXPECT_LE(histogram.Quantile(0.5), absl::Microseconds(2));
  EXPECT_NEAR(absl::ToDoubleSeconds(histogram.Quantile(0.75)), 60, 0.06);
}

// Goal: pooling phases equals recording everything in one. Method: split a sequence over two histograms and merge.
TEST(Histogram, MergeEqualsRecordingTogether) {
  Random random(3);
  Histogram left, right, both;
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration value = absl::Microseconds(random.Next() % 5'000'000);
    (i % 3 == 0 ? left : right).Record(value);
    both.Record(value);
  }
  left.Merge(right);
  left.Merge(Histogram());
  EXPECT_EQ(left.count(), both.count());
  EXPECT_EQ(left.min(), both.min());
  EXPECT_EQ(left.max(), both.max());
  EXPECT_EQ(left.mean(), both.mean());
  for (const double quantile : {0.01, 0.5, 0.99}) EXPECT_EQ(left.Quantile(quantile), both.Quantile(quantile));
}

// Goal: an empty histogram answers zero. Method: ask it everything.
TEST(Histogram, EmptyIsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.99), absl::ZeroDuration());
  EXPECT_EQ(histogram.mean(), absl::ZeroDuration());
  EXPECT_EQ(histogram.max(), absl::ZeroDuration());
}

}  // namespace
}  // namespace sluice::client
