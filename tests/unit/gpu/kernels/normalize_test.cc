// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/normalize.h"

#include <cmath>

#include "gpu/kernels/softmax.h"
#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

// Goal: softmax and its logarithm along any axis, also where exp alone would overflow. Method: against the formula in
// double, on random values around a large offset.
TEST(Softmax, MatchesFormula) {
  Libraries libraries;
  for (const Dims& dims : {Dims{3, 214}, Dims{2, 5, 7}, Dims{2, 40, 33}, Dims{1, 1}, Dims{17}}) {
    for (int64_t axis = -1; axis < static_cast<int64_t>(dims.size()); ++axis) {
      for (const bool log : {false, true}) {
        std::mt19937 random(static_cast<unsigned>(axis + 2));
        std::vector<float> input = RandomFloats(random, CountOf(dims));
        for (float& x : input) x = x * 10 + 500;
        const size_t place = axis < 0 ? dims.size() - 1 : axis;
        int64_t inner = 1;
        for (size_t i = place + 1; i < dims.size(); ++i) inner *= dims[i];
        std::vector<double> expected;
        for (int64_t i = 0; i < CountOf(dims); ++i) {
          const int64_t first = i / (inner * dims[place]) * inner * dims[place] + i % inner;
          double sum = 0;
          for (int64_t k = 0; k < dims[place]; ++k)
            sum += std::exp(static_cast<double>(input[first + k * inner]) - 500);
          const double shifted = static_cast<double>(input[i]) - 500 - std::log(sum);
          expected.push_back(log ? shifted : std::exp(shifted));
        }
        ExpectNear(RunKernel<float>(libraries.fast().PrepareSoftmax({.dims = dims, .axis = axis, .log = log}),
                                    Inputs(input), expected.size()),
                   expected, 5e-6, DimsToString(dims) + " axis " + std::to_string(axis));
      }
    }
  }
}

TEST(Softmax, RefusesInconsistentDescriptions) {
  // Goal and method: no axis, wrong axis, wrong type.
  Libraries libraries;
  EXPECT_THAT(libraries.fast().PrepareSoftmax({.dims = {}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareSoftmax({.dims = {2}, .axis = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("axis 1")));
  EXPECT_THAT(libraries.fast().PrepareSoftmax({.type = DataType::kInt32, .dims = {2}}),
              StatusIs(absl::StatusCode::kUnimplemented));
}

// Goal: each channel uses its own parameters, with and without activation, at any rank. Method: against the formula.
TEST(BatchNorm, MatchesFormula) {
  Libraries libraries;
  std::mt19937 random(3);
  for (const Dims& dims : {Dims{2, 5}, Dims{2, 5, 7}, Dims{1, 5, 3, 4}}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      const std::vector<float> x = RandomFloats(random, CountOf(dims)), scale = RandomFloats(random, 5),
                               bias = RandomFloats(random, 5), mean = RandomFloats(random, 5);
      const std::vector<float> variance = {0.5f, 1, 2, 0, 0.25f};
      const int64_t area = CountOf(dims) / dims[0] / 5;
      std::vector<double> expected;
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t c = static_cast<int64_t>(i) / area % 5;
        const double y = scale[c] * (static_cast<double>(x[i]) - mean[c]) / std::sqrt(variance[c] + 1e-3) + bias[c];
        expected.push_back(activation == Activation::kRelu ? std::max(0.0, y) : y);
      }
      ExpectNear(RunKernel<float>(
                     libraries.fast().PrepareBatchNorm({.input = dims, .epsilon = 1e-3f, .activation = activation}),
                     Inputs(x, scale, bias, mean, variance), x.size()),
                 expected, 1e-5, DimsToString(dims));
    }
  }
  EXPECT_THAT(libraries.fast().PrepareBatchNorm({.input = {5}}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice::gpu
