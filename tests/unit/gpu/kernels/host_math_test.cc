// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/host_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sluice::gpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Distance in units of the last place of the expected value.
double UlpError(float actual, double expected) {
  const float nearest = static_cast<float>(expected);
  const double unit = std::max<double>(std::nextafter(std::abs(nearest), kInfinity) - std::abs(nearest), 0x1p-149);
  return std::abs(actual - expected) / unit;
}

// Goal: our exponential and hyperbolic tangent are as exact as the header says, over every range. Method: a dense sweep
// of bit patterns against double precision.
TEST(HostMath, IsWithinThreeUnitsOfTheLastPlace) {
  double worst_exp = 0, worst_tanh = 0;
  for (uint32_t bits = 0; bits < 0x42D00000u; bits += 4099) {  // up to 104
    for (const float sign : {1.0f, -1.0f}) {
      const float x = sign * std::bit_cast<float>(bits);
      worst_tanh = std::max(worst_tanh, UlpError(host::Tanh(x), std::tanh(static_cast<double>(x))));
      const double exact = std::exp(static_cast<double>(x));
      if (x < 88.72f && x > -87.3f) worst_exp = std::max(worst_exp, UlpError(host::Exp(x), exact));
      if (x <= -87.3f) {
        ASSERT_NEAR(host::Exp(x), exact, 0x1p-148) << x;
      }
    }
  }
  EXPECT_LE(worst_exp, 3.0);
  EXPECT_LE(worst_tanh, 3.0);
}

// Goal: the ends of the number line. Method: by hand.
TEST(HostMath, HandlesInfinityAndNan) {
  EXPECT_EQ(host::Exp(kInfinity), kInfinity);
  EXPECT_EQ(host::Exp(100.0f), kInfinity);
  EXPECT_EQ(host::Exp(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(host::Exp(kNan)));
  EXPECT_EQ(host::Tanh(kInfinity), 1.0f);
  EXPECT_EQ(host::Tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(host::Tanh(kNan)));
  EXPECT_EQ(host::Exp(0.0f), 1.0f);
}

}  // namespace
}  // namespace sluice::gpu
