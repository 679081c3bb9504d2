// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Every input element joins the result its kept coordinates name.
std::vector<double> Reference(const ReduceDescription& d, const std::vector<float>& input) {
  const size_t rank = d.input.size();
  std::vector<bool> folded(rank, false);
  for (const int64_t axis : d.axes) folded[axis < 0 ? axis + static_cast<int64_t>(rank) : axis] = true;
  int64_t outputs = 1, count = 1;
  for (size_t i = 0; i < rank; ++i) (folded[i] ? count : outputs) *= d.input[i];
  const bool is_max = d.kind == ReduceKind::kMax, is_min = d.kind == ReduceKind::kMin;
  std::vector<double> result(outputs, is_max ? -1e30 : is_min ? 1e30 : d.kind == ReduceKind::kProd ? 1.0 : 0.0);
  for (int64_t index = 0; index < static_cast<int64_t>(input.size()); ++index) {
    int64_t rest = index, output = 0, stride = 1;
    for (size_t i = rank; i-- > 0; rest /= d.input[i]) {
      if (folded[i]) continue;
      output += rest % d.input[i] * stride;
      stride *= d.input[i];
    }
    const double x = input[index];
    double& total = result[output];
    if (is_max) total = std::max(total, x);
    if (is_min) total = std::min(total, x);
    if (d.kind == ReduceKind::kProd) total *= x;
    if (d.kind == ReduceKind::kSum || d.kind == ReduceKind::kMean) total += x;
    if (d.kind == ReduceKind::kSumSquare || d.kind == ReduceKind::kL2) total += x * x;
    if (d.kind == ReduceKind::kL1) total += std::abs(x);
  }
  for (double& total : result) {
    if (d.kind == ReduceKind::kMean) total /= static_cast<double>(count);
    if (d.kind == ReduceKind::kL2) total = std::sqrt(total);
  }
  return result;
}

// Goal: every kind over every set of axes: rows, columns, middles, alternations. Method: seeded random shapes.
TEST(Reduce, MatchesDefinition) {
  Libraries libraries;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ReduceDescription d{.kind = static_cast<ReduceKind>(seed % 8)};
    const int64_t rank = RandomInt(random, 1, 5);
    for (int64_t i = 0; i < rank; ++i) {
      d.input.push_back(random() % 5 == 0 ? 1 : RandomInt(random, 1, seed % 16 < 8 ? 5 : 21));
      if (random() % 2 == 0) d.axes.push_back(random() % 2 == 0 ? i : i - rank);
    }
    const std::vector<float> input = RandomFloats(random, CountOf(d.input));
    const std::vector<double> expected = Reference(d, input);
    ExpectNear(RunKernel<float>(libraries.fast().PrepareReduce(d), Inputs(input), expected.size()), expected, 1e-5,
               DimsToString(d.input) + " over " + DimsToString(d.axes));
    if (seed % 16 >= 8 && HasFailure()) break;
  }
}

// Goal: a long sum does not lose its small terms, in no lane. Method: large values first, then ones that a float total
// of 2^24 would swallow, as a row and as columns.
TEST(Reduce, SumsInDouble) {
  Libraries libraries;
  std::vector<float> values(16 * 1001, 1.0f);
  std::fill(values.begin(), values.begin() + 16, 0x1p24f);
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareReduce({.input = {16016}, .axes = {0}}), Inputs(values), 1),
              ElementsAre(0x1p28f + 16000.0f));
  EXPECT_EQ(RunKernel<float>(libraries.fast().PrepareReduce({.input = {1001, 16}, .axes = {0}}), Inputs(values), 16),
            std::vector<float>(16, 0x1p24f + 1000.0f));
}

// Goal: integers, bytes, NaN and empty folds. Method: by hand.
TEST(Reduce, HandlesOtherTypesAndEdges) {
  Libraries libraries;
  KernelLibrary& library = libraries.fast();
  using Longs = std::vector<int64_t>;
  const auto longs = [&](ReduceKind kind, const Longs& input) {
    const Dims dims = {static_cast<int64_t>(input.size())};
    return RunKernel<int64_t>(
        library.PrepareReduce({.kind = kind, .type = DataType::kInt64, .input = dims, .axes = {-1}}), Inputs(input), 1);
  };
  EXPECT_THAT(longs(ReduceKind::kSum, {INT64_MAX, 1}), ElementsAre(INT64_MIN));
  EXPECT_THAT(longs(ReduceKind::kProd, {2, -3, 4}), ElementsAre(-24));
  EXPECT_THAT(longs(ReduceKind::kMean, {-3, -4}), ElementsAre(-3));
  EXPECT_THAT(longs(ReduceKind::kMax, {-3, -4}), ElementsAre(-3));
  EXPECT_THAT(longs(ReduceKind::kL1, {-3, 4}), ElementsAre(7));
  EXPECT_THAT(longs(ReduceKind::kProd, {}), ElementsAre(1));
  EXPECT_THAT(RunKernel<int8_t>(
                  library.PrepareReduce({.kind = ReduceKind::kMin, .type = DataType::kInt8, .input = {3}, .axes = {0}}),
                  Inputs(std::vector<int8_t>{5, -128, 7}), 1),
              ElementsAre(-128));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(RunKernel<float>(library.PrepareReduce({.kind = ReduceKind::kMin, .input = {3}, .axes = {0}}),
                                          Inputs(std::vector<float>{1, nan, 2}), 1)
                             .at(0)));
  EXPECT_THAT(RunKernel<float>(library.PrepareReduce({.input = {2, 0}, .axes = {1}}), Inputs(std::vector<float>{}), 2),
              ElementsAre(0, 0));
  EXPECT_THAT(RunKernel<float>(library.PrepareReduce({.input = {}, .axes = {}}), Inputs(std::vector<float>{3}), 1),
              ElementsAre(3));
}

TEST(Reduce, RefusesInconsistentDescriptions) {
  // Goal and method: axes repeated or out of range, nothing to take a maximum of, types without the kind.
  Libraries libraries;
  KernelLibrary& library = libraries.fast();
  EXPECT_THAT(library.PrepareReduce({.input = {2, 3}, .axes = {1, -1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(library.PrepareReduce({.input = {2, 3}, .axes = {2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("axis 2")));
  EXPECT_THAT(library.PrepareReduce({.kind = ReduceKind::kMax, .input = {2, 0}, .axes = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no elements")));
  EXPECT_THAT(library.PrepareReduce({.type = DataType::kInt8, .input = {2}, .axes = {0}}),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(ReduceOutputDims({.input = {2, 3, 4}, .axes = {1}}, true), IsOkAndHolds(Dims{2, 1, 4}));
  EXPECT_THAT(ReduceOutputDims({.input = {2, 3, 4}, .axes = {-1, 0}}, false), IsOkAndHolds(Dims{3}));
}

// Goal: which of equal values, which axis, and NaN. Method: by hand.
TEST(ArgReduce, FindsIndices) {
  Libraries libraries;
  const std::vector<float> input = {1, 7, 7, 4, 2, 0};  // [2,3]
  const auto run = [&](ArgReduceDescription d, size_t count) {
    d.input = {2, 3};
    return RunKernel<int64_t>(libraries.fast().PrepareArgReduce(d), Inputs(input), count);
  };
  EXPECT_THAT(run({.axis = 1}, 2), ElementsAre(1, 0));
  EXPECT_THAT(run({.axis = -1, .select_last_index = true}, 2), ElementsAre(2, 0));
  EXPECT_THAT(run({.axis = 0}, 3), ElementsAre(1, 0, 0));
  EXPECT_THAT(run({.min = true, .axis = 1}, 2), ElementsAre(0, 2));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      RunKernel<int64_t>(libraries.fast().PrepareArgReduce({.input = {3}}), Inputs(std::vector<float>{1, nan, 9}), 1),
      ElementsAre(1));
  EXPECT_THAT(libraries.fast().PrepareArgReduce({.input = {2, 0}, .axis = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareArgReduce({.input = {}}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice::gpu
