// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/pool.h"

#include <cmath>
#include <limits>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

/// Straight from the definition: every kernel position of every window is looked at.
std::vector<double> Reference(const PoolDescription& d, const std::vector<float>& input, const Dims& output) {
  const size_t rank = d.input.size() - 2;
  std::vector<double> result;
  for (int64_t o = 0; o < CountOf(output); ++o) {
    Dims position(output.size());
    int64_t rest = o;
    for (size_t i = output.size(); i-- > 0; rest /= output[i]) position[i] = rest % output[i];
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    int64_t counted = 0;
    for (int64_t k = 0; k < CountOf(d.kernel); ++k) {
      int64_t left = k, offset = 0, stride = 1;
      bool inside = true, inside_pads = true;
      for (size_t i = rank; i-- > 0; left /= d.kernel[i]) {
        const int64_t x = position[i + 2] * d.strides[i] - d.pads_begin[i] + left % d.kernel[i] * d.dilations[i];
        inside = inside && x >= 0 && x < d.input[i + 2];
        inside_pads = inside_pads && x < d.input[i + 2] + d.pads_end[i];
        offset += x * stride;
        stride *= d.input[i + 2];
      }
      counted += inside || (inside_pads && d.count_include_pad);
      if (!inside) continue;
      const double value = input[(position[0] * d.input[1] + position[1]) * stride + offset];
      sum += value;
      largest = std::max(largest, value);
    }
    result.push_back(d.kind == PoolKind::kMax ? largest : sum / static_cast<double>(counted));
  }
  return result;
}

void ExpectMatchesReference(PoolDescription d, std::mt19937& random) {
  const size_t rank = d.input.size() - 2;
  for (Dims* list : {&d.strides, &d.dilations}) {
    if (list->empty()) list->assign(rank, 1);
  }
  for (Dims* list : {&d.pads_begin, &d.pads_end}) {
    if (list->empty()) list->assign(rank, 0);
  }
  Libraries libraries;
  ASSERT_OK_AND_ASSIGN(const Dims output, PoolOutputDims(d));
  const std::vector<float> input = RandomFloats(random, CountOf(d.input));
  const std::vector<double> expected = Reference(d, input, output);
  for (const auto& [name, library] : libraries.all()) {
    ExpectNear(RunKernel<float>(library->PreparePool(d), Inputs(input), expected.size()), expected, 1e-5,
               name + " " + DimsToString(d.input) + " by " + DimsToString(d.kernel));
    if (library->backend() == Backend::kCuda) continue;
    PoolDescription last = d;
    last.channels_last = true;
    ExpectNear(RunKernel<float>(library->PreparePool(last), Inputs(ChannelsLast(input, d.input)), expected.size()),
               ChannelsLast(expected, output), 1e-5,
               name + " channels last " + DimsToString(d.input) + " by " + DimsToString(d.kernel));
  }
}

// Goal: poolings of real models, and the corners of pads, dilation and rounding. Method: against the definition.
TEST(Pool, MatchesDefinitionOnChosenShapes) {
  std::mt19937 random(1);
  constexpr PoolKind kMax = PoolKind::kMax, kAverage = PoolKind::kAverage;
  const auto check = [&](const PoolDescription& d) { ExpectMatchesReference(d, random); };
  check({.kind = kMax,
         .input = {1, 8, 16, 16},
         .kernel = {3, 3},
         .strides = {2, 2},
         .pads_begin = {1, 1},
         .pads_end = {1, 1}});
  check({.kind = kAverage, .input = {2, 3, 9, 7}, .kernel = {2, 3}, .pads_begin = {1, 0}, .pads_end = {0, 2}});
  check({.kind = kAverage,
         .input = {2, 3, 9, 7},
         .kernel = {2, 3},
         .pads_begin = {1, 0},
         .pads_end = {0, 2},
         .count_include_pad = true});
  check({.kind = kMax, .input = {1, 2, 6, 6}, .kernel = {3, 3}, .strides = {2, 2}, .ceil_mode = true});
  check({.kind = kAverage,
         .input = {1, 2, 6, 6},
         .kernel = {3, 3},
         .strides = {2, 2},
         .ceil_mode = true,
         .count_include_pad = true});
  check({.kind = kMax, .input = {1, 2, 10}, .kernel = {3}, .dilations = {3}});
  check({.kind = kMax, .input = {1, 2, 4, 5, 6}, .kernel = {2, 2, 2}, .strides = {1, 2, 3}});
  check({.kind = kMax, .input = {1, 3, 12, 1}, .kernel = {4, 1}, .strides = {4, 1}});
}

// Goal: any combination. Method: seeded random shapes of both kinds.
TEST(Pool, MatchesDefinitionOnRandomShapes) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    PoolDescription d{.kind = random() % 2 == 0 ? PoolKind::kMax : PoolKind::kAverage};
    d.input = {RandomInt(random, 1, 2), RandomInt(random, 1, 10)};
    const bool dilate = d.kind == PoolKind::kMax;
    for (int64_t i = RandomInt(random, 1, 2); i > 0; --i) {
      d.kernel.push_back(RandomInt(random, 1, 4));
      d.strides.push_back(RandomInt(random, 1, 3));
      d.dilations.push_back(dilate ? RandomInt(random, 1, 2) : 1);
      d.pads_begin.push_back(RandomInt(random, 0, d.kernel.back() - 1));
      d.pads_end.push_back(RandomInt(random, 0, d.kernel.back() - 1));
      d.input.push_back(RandomInt(random, (d.kernel.back() - 1) * d.dilations.back() + 1, 14));
    }
    d.ceil_mode = random() % 2 == 0;
    d.count_include_pad = random() % 2 == 0;
    ExpectMatchesReference(d, random);
  }
}

// Goal: planes are not exchanged. Method: every plane one constant.
TEST(Pool, KeepsPlanesApart) {
  std::vector<float> input, expected;
  for (int64_t plane = 0; plane < 38; ++plane) {
    input.insert(input.end(), 16, static_cast<float>(plane));
    expected.insert(expected.end(), 4, static_cast<float>(plane));
  }
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      const PoolDescription d{.kind = kind, .input = {2, 19, 4, 4}, .kernel = {2, 2}, .strides = {2, 2}};
      EXPECT_EQ(RunKernel<float>(library->PreparePool(d), Inputs(input), expected.size()), expected) << name;
    }
  }
}

// Goal: maxima of bytes, whose lowest value is not -infinity. Method: by hand.
TEST(Pool, TakesMaximumOfBytes) {
  Libraries libraries;
  const PoolDescription d{.type = DataType::kInt8, .input = {1, 1, 4}, .kernel = {2}, .pads_begin = {1}};
  EXPECT_EQ(RunKernel<int8_t>(libraries.fast().PreparePool(d), Inputs(std::vector<int8_t>{-128, -7, -9, 3}), 4),
            (std::vector<int8_t>{-128, -7, -7, 3}));
}

// Goal: global pooling of any spatial rank; NaN is not lost in a maximum. Method: by hand.
TEST(Pool, PoolsGlobally) {
  Libraries libraries;
  const std::vector<float> input = {1, 5, 2, -4, -3, -2, -1, -8};
  const GlobalPoolDescription max{.kind = PoolKind::kMax, .input = {1, 2, 4}};
  EXPECT_EQ(RunKernel<float>(libraries.fast().PrepareGlobalPool(max), Inputs(input), 2), (std::vector<float>{5, -1}));
  const GlobalPoolDescription mean{.kind = PoolKind::kAverage, .input = {1, 2, 2, 2}};
  EXPECT_EQ(RunKernel<float>(libraries.fast().PrepareGlobalPool(mean), Inputs(input), 2),
            (std::vector<float>{1, -3.5}));
  std::vector<float> with_nan(40, 1.0f);
  with_nan[7] = std::numeric_limits<float>::quiet_NaN();
  const GlobalPoolDescription one{.kind = PoolKind::kMax, .input = {1, 1, 40}};
  EXPECT_TRUE(std::isnan(RunKernel<float>(libraries.fast().PrepareGlobalPool(one), Inputs(with_nan), 1).at(0)));
}

// Goal: descriptions that do not fit are refused by name. Method: one thing wrong at a time.
TEST(Pool, RefusesInconsistentDescriptions) {
  Libraries libraries;
  const auto expect = [&](const char* message, const PoolDescription& d) {
    for (const auto& [name, library] : libraries.all()) {
      EXPECT_THAT(library->PreparePool(d), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << name;
    }
  };
  expect("spatial", {.input = {1, 2}, .kernel = {}});
  expect("kernel", {.input = {1, 2, 3}, .kernel = {}});
  expect("kernel", {.input = {1, 2, 3}, .kernel = {0}});
  expect("smaller than the kernel", {.input = {1, 2, 3}, .kernel = {2}, .pads_begin = {2}});
  expect("does not fit input", {.input = {1, 2, 3}, .kernel = {4}});
  expect("must not be empty", {.input = {1, 0, 3}, .kernel = {1}});
  EXPECT_THAT(libraries.fast().PrepareGlobalPool({.input = {2, 3}}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice::gpu
