// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/movement.h"

#include <limits>
#include <numeric>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> Counting(int64_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T(0));
  return values;
}

/// Position of a row-major index.
Dims PositionOf(int64_t index, const Dims& dims) {
  Dims position(dims.size());
  for (size_t i = dims.size(); i-- > 0; index /= dims[i]) position[i] = index % dims[i];
  return position;
}

int64_t IndexOf(const Dims& position, const Dims& dims) {
  int64_t index = 0;
  for (size_t i = 0; i < dims.size(); ++i) index = index * dims[i] + position[i];
  return index;
}

template <class T>
void ExpectTransposes(DataType type, const Dims& input, const Dims& permutation) {
  Libraries libraries;
  const TransposeDescription d{.type = type, .input = input, .permutation = permutation};
  ASSERT_OK_AND_ASSIGN(const Dims output, TransposeOutputDims(d));
  const std::vector<T> values = Counting<T>(CountOf(input));
  std::vector<T> expected(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Dims from = PositionOf(static_cast<int64_t>(i), input);
    Dims to;
    for (const int64_t axis : permutation) to.push_back(from[axis]);
    expected[IndexOf(to, output)] = values[i];
  }
  EXPECT_EQ(RunKernel<T>(libraries.fast().PrepareTranspose(d), Inputs(values), expected.size()), expected)
      << DimsToString(input) << DimsToString(permutation);
}

// Goal: transposes of every pattern and element size, with and without whole tiles. Method: against an index walk.
TEST(Transpose, MatchesIndexWalk) {
  ExpectTransposes<float>(DataType::kFp32, {2, 37, 50, 1}, {0, 2, 1, 3});  // Magika's
  ExpectTransposes<float>(DataType::kFp32, {3, 70, 33}, {2, 0, 1});
  ExpectTransposes<float>(DataType::kFp32, {2, 3, 4, 17}, {0, 2, 1, 3});
  ExpectTransposes<int64_t>(DataType::kInt64, {40, 35}, {1, 0});
  ExpectTransposes<uint8_t>(DataType::kUint8, {3, 5, 7}, {2, 1, 0});
  ExpectTransposes<uint16_t>(DataType::kFp16, {6}, {0});
  ExpectTransposes<float>(DataType::kFp32, {}, {});
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Dims input(RandomInt(random, 1, 5)), permutation(input.size());
    for (int64_t& dim : input) dim = random() % 4 == 0 ? 1 : RandomInt(random, 1, seed % 10 == 0 ? 20 : 6);
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
    ExpectTransposes<float>(DataType::kFp32, input, permutation);
  }
}

TEST(Transpose, RefusesWhatIsNoPermutation) {
  // Goal and method: repeated, missing and out-of-range axes are refused.
  Libraries libraries;
  for (const Dims& permutation : {Dims{0, 0}, Dims{0}, Dims{0, 2}, Dims{0, -1}, Dims{0, 1, 1}}) {
    EXPECT_THAT(libraries.fast().PrepareTranspose({.input = {2, 3}, .permutation = permutation}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("permutation")));
  }
  EXPECT_THAT(libraries.fast().PrepareTranspose({.type = DataType::kBytes, .input = {2}, .permutation = {0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("BYTES")));
}

// Goal: inputs keep their order along any axis, empty ones included. Method: by hand.
TEST(Concat, JoinsAlongAnyAxis) {
  Libraries libraries;
  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6};
  EXPECT_THAT(
      RunKernel<float>(libraries.fast().PrepareConcat({.inputs = {{2, 2}, {2, 1}}, .axis = 1}), Inputs(a, b), 6),
      ElementsAre(1, 2, 5, 3, 4, 6));
  EXPECT_THAT(
      RunKernel<float>(libraries.fast().PrepareConcat({.inputs = {{2, 2}, {1, 2}}, .axis = -2}), Inputs(a, b), 6),
      ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(RunKernel<int64_t>(
                  libraries.fast().PrepareConcat({.type = DataType::kInt64, .inputs = {{1}, {0}, {2}}, .axis = 0}),
                  Inputs(std::vector<int64_t>{7}, std::vector<int64_t>{}, std::vector<int64_t>{8, 9}), 3),
              ElementsAre(7, 8, 9));
}

TEST(Concat, RefusesWhatDoesNotFit) {
  // Goal and method: ranks and dimensions that differ, no inputs, an axis out of range.
  Libraries libraries;
  KernelLibrary& library = libraries.fast();
  EXPECT_THAT(library.PrepareConcat({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no inputs")));
  EXPECT_THAT(library.PrepareConcat({.inputs = {{2, 3}, {3, 2}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("differs")));
  EXPECT_THAT(library.PrepareConcat({.inputs = {{2, 3}, {2}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("differs")));
  EXPECT_THAT(library.PrepareConcat({.inputs = {{2, 3}}, .axis = 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("axis")));
}

// Goal: starts and steps of either sign. Method: seeded random slices against an index walk.
TEST(Slice, MatchesIndexWalk) {
  Libraries libraries;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SliceDescription d;
    for (int64_t i = RandomInt(random, 1, 4); i > 0; --i) {
      const int64_t length = RandomInt(random, 1, 8), start = RandomInt(random, 0, length - 1);
      const int64_t step = RandomInt(random, 1, 3) * (random() % 2 == 0 ? 1 : -1);
      const int64_t most = step > 0 ? (length - 1 - start) / step + 1 : start / -step + 1;
      d.input.push_back(length);
      d.starts.push_back(start);
      d.steps.push_back(step);
      d.output.push_back(RandomInt(random, 0, most));
    }
    const std::vector<float> values = Counting<float>(CountOf(d.input));
    std::vector<float> expected;
    for (int64_t o = 0; o < CountOf(d.output); ++o) {
      Dims position = PositionOf(o, d.output);
      for (size_t i = 0; i < position.size(); ++i) position[i] = d.starts[i] + position[i] * d.steps[i];
      expected.push_back(values[IndexOf(position, d.input)]);
    }
    EXPECT_EQ(RunKernel<float>(libraries.fast().PrepareSlice(d), Inputs(values), expected.size()), expected);
  }
}

TEST(Slice, RefusesToLeaveTheInput) {
  // Goal and method: each way to read outside, extreme values included, is refused at Prepare.
  Libraries libraries;
  const auto expect = [&](int64_t start, int64_t step, int64_t count) {
    const SliceDescription d{.input = {5}, .starts = {start}, .steps = {step}, .output = {count}};
    EXPECT_THAT(libraries.fast().PrepareSlice(d), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave")));
  };
  expect(0, 1, 6);
  expect(4, 1, 2);
  expect(-1, 1, 1);
  expect(5, 1, 1);
  expect(0, -1, 2);
  expect(0, 0, 2);
  expect(0, std::numeric_limits<int64_t>::max(), 3);
  expect(4, std::numeric_limits<int64_t>::min(), 3);
  EXPECT_THAT(libraries.fast().PrepareSlice({.input = {5}, .starts = {}, .steps = {1}, .output = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Goal: rows by index along any axis, negative and out-of-range indices. Method: by hand.
TEST(Gather, TakesRowsByIndex) {
  Libraries libraries;
  const std::vector<float> data = Counting<float>(6);  // [3,2] or [2,3]
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareGather({.data = {3, 2}, .indices = {2, 1}}),
                               Inputs(data, std::vector<int64_t>{2, -3}), 4),
              ElementsAre(4, 5, 0, 1));
  const GatherDescription columns{.data = {2, 3}, .index_type = DataType::kInt32, .indices = {2}, .axis = -1};
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareGather(columns), Inputs(data, std::vector<int32_t>{2, 0}), 4),
              ElementsAre(2, 0, 5, 3));
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareGather({.data = {3, 2}, .indices = {}}),
                               Inputs(data, std::vector<int64_t>{1}), 2),
              ElementsAre(2, 3));
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareGather({.data = {3, 2}, .indices = {2}}),
                               Inputs(data, std::vector<int64_t>{INT64_MAX, INT64_MIN}), 4),
              ElementsAre(4, 5, 0, 1));
  EXPECT_THAT(libraries.fast().PrepareGather({.data = {}, .indices = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareGather({.data = {0}, .indices = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareGather({.data = {2}, .index_type = DataType::kFp32, .indices = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("FP32")));
}

// Goal: values repeat along broadcast dimensions. Method: by hand.
TEST(Expand, Repeats) {
  Libraries libraries;
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareExpand({.input = {2, 1}, .output = {2, 2, 3}}),
                               Inputs(std::vector<float>{1, 2}), 12),
              ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(libraries.fast().PrepareExpand({.input = {2}, .output = {3}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareExpand({.input = {2, 2}, .output = {2}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(libraries.fast().PrepareExpand({.input = {2}, .output = {1}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Copy, CopiesBytes) {
  // Goal and method: an odd number of bytes arrives, and no more.
  Libraries libraries;
  const std::vector<uint8_t> bytes = Counting<uint8_t>(77);
  EXPECT_EQ(RunKernel<uint8_t>(libraries.fast().PrepareCopy({.size_bytes = 77}), Inputs(bytes), 77), bytes);
}

// Goal: fill writes every element and nothing else. Method: an odd count of each size; a value of the wrong size.
TEST(Fill, FillsEveryElement) {
  Libraries libraries;
  const float value = 2.5f;
  const auto bytes = std::as_bytes(std::span(&value, 1));
  FillDescription d{.dims = {3}, .value = {bytes.begin(), bytes.end()}};
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareFill(d), {}, 3), ElementsAre(2.5f, 2.5f, 2.5f));
  d.type = DataType::kFp64;
  EXPECT_THAT(libraries.fast().PrepareFill(d), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8 bytes")));
  d.type = DataType::kBytes;
  EXPECT_THAT(libraries.fast().PrepareFill(d), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice::gpu
