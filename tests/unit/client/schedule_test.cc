// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace sluice::client {
namespace {

// Goal: one seed is one schedule, so that phases and reruns are comparable. Method: make it twice, and with another
// seed.
TEST(Schedule, SameSeedSameTimes) {
  const auto first = MakeSchedule(50, Arrivals::kPoisson, absl::Seconds(10), 1);
  const auto again = MakeSchedule(50, Arrivals::kPoisson, absl::Seconds(10), 1);
  const auto other = MakeSchedule(50, Arrivals::kPoisson, absl::Seconds(10), 2);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
}

// Goal: Poisson arrivals: right rate, ascending, exponential gaps. Method: 20,000 arrivals; the share of gaps above the
// mean is exp(-1) for an exponential.
TEST(Schedule, PoissonHasExponentialGaps) {
  const auto schedule = MakeSchedule(1000, Arrivals::kPoisson, absl::Seconds(20), 5);
  ASSERT_TRUE(schedule.ok());
  EXPECT_NEAR(static_cast<double>(schedule->size()), 20'000, 600);
  EXPECT_TRUE(std::is_sorted(schedule->begin(), schedule->end()));
  EXPECT_LT(schedule->back(), absl::Seconds(20));
  size_t above = 0;
  for (size_t i = 1; i < schedule->size(); ++i) {
    if ((*schedule)[i] - (*schedule)[i - 1] > absl::Milliseconds(1)) ++above;
  }
  EXPECT_NEAR(static_cast<double>(above) / static_cast<double>(schedule->size()), 0.3679, 0.02);
}

// Goal: bursty arrivals: the same rate, and gaps whose standard deviation is four times their mean. Method: moments of
// 400,000 gaps; the fourth moment of such a distribution is large, so the bounds are wide.
TEST(Schedule, BurstyHasTheSameRateAndVariesFourTimesAsMuch) {
  const auto schedule = MakeSchedule(1000, Arrivals::kBursty, absl::Seconds(400), 3);
  ASSERT_TRUE(schedule.ok());
  EXPECT_TRUE(std::is_sorted(schedule->begin(), schedule->end()));
  double sum = 0, squares = 0;
  for (size_t i = 1; i < schedule->size(); ++i) {
    const double gap = absl::ToDoubleMilliseconds((*schedule)[i] - (*schedule)[i - 1]);
    sum += gap;
    squares += gap * gap;
  }
  const auto count = static_cast<double>(schedule->size() - 1);
  const double mean = sum / count;
  EXPECT_NEAR(mean, 1, 0.04);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean) / mean, 4, 0.2);
}

// Goal: constant arrivals are evenly spaced from zero. Method: four per second for one second.
TEST(Schedule, ConstantIsEvenlySpaced) {
  const auto schedule = MakeSchedule(4, Arrivals::kConstant, absl::Seconds(1), 9);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(*schedule, (std::vector<absl::Duration>{absl::ZeroDuration(), absl::Milliseconds(250),
                                                    absl::Milliseconds(500), absl::Milliseconds(750)}));
}

// Goal: memory is bounded. Method: a rate and time whose product is above ten million.
TEST(Schedule, TooManyRequestsAreRefused) {
  EXPECT_EQ(MakeSchedule(1e6, Arrivals::kPoisson, absl::Seconds(11), 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::client
