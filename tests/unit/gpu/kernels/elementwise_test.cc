// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/elementwise.h"

#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> RunUnary(const UnaryDescription& d, const std::vector<T>& input) {
  Libraries libraries;
  return RunKernel<T>(libraries.fast().PrepareUnary(d), Inputs(input), input.size());
}

// Goal: every kind computes its function. Method: random values against the standard library in double.
TEST(Unary, MatchesStandardLibrary) {
  std::mt19937 random(1);
  std::vector<float> input = RandomFloats(random, 1003);
  for (float& x : input) x *= 6;
  const auto check = [&](UnaryKind kind, bool positive, const std::function<double(double)>& function) {
    std::vector<float> values = input;
    std::vector<double> expected;
    for (float& x : values) {
      if (positive) x = std::abs(x) + 1e-3f;
      expected.push_back(function(x));
    }
    const UnaryDescription d{.kind = kind, .dims = {17, 59}, .alpha = 0.1f, .beta = 0.4f, .low = -1, .high = 2};
    ExpectNear(RunUnary(d, values), expected, 1e-6, "kind " + std::to_string(static_cast<int>(kind)));
  };
  const auto clamp01 = [](double x) { return std::min(1.0, std::max(0.0, x)); };
  check(UnaryKind::kAbs, false, [](double x) { return std::abs(x); });
  check(UnaryKind::kCeil, false, [](double x) { return std::ceil(x); });
  check(UnaryKind::kClip, false, [](double x) { return std::min(2.0, std::max(-1.0, x)); });
  check(UnaryKind::kCos, false, [](double x) { return std::cos(x); });
  check(UnaryKind::kErf, false, [](double x) { return std::erf(x); });
  check(UnaryKind::kExp, false, [](double x) { return std::exp(x); });
  check(UnaryKind::kFloor, false, [](double x) { return std::floor(x); });
  check(UnaryKind::kGelu, false, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  check(UnaryKind::kGeluTanh, false,
        [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
  check(UnaryKind::kHardSigmoid, false, [&](double x) { return clamp01(0.1f * x + 0.4f); });
  check(UnaryKind::kHardSwish, false, [&](double x) { return x * clamp01(x / 6 + 0.5); });
  check(UnaryKind::kIdentity, false, [](double x) { return x; });
  check(UnaryKind::kLeakyRelu, false, [](double x) { return x < 0 ? 0.1f * x : x; });
  check(UnaryKind::kLog, true, [](double x) { return std::log(x); });
  check(UnaryKind::kNeg, false, [](double x) { return -x; });
  check(UnaryKind::kReciprocal, true, [](double x) { return 1 / x; });
  check(UnaryKind::kRelu, false, [](double x) { return std::max(0.0, x); });
  check(UnaryKind::kSigmoid, false, [](double x) { return 1 / (1 + std::exp(-x)); });
  check(UnaryKind::kSign, false, [](double x) { return (x > 0) - (x < 0); });
  check(UnaryKind::kSin, false, [](double x) { return std::sin(x); });
  check(UnaryKind::kSqrt, true, [](double x) { return std::sqrt(x); });
  check(UnaryKind::kTanh, false, [](double x) { return std::tanh(x); });
}

// Goal: integers, truth values, and the lowest integer. Method: by hand.
TEST(Unary, HandlesOtherTypes) {
  const Dims three = {3};
  EXPECT_THAT(RunUnary<int64_t>({.kind = UnaryKind::kNeg, .type = DataType::kInt64, .dims = three}, {5, INT64_MIN, 0}),
              ElementsAre(-5, INT64_MIN, 0));
  EXPECT_THAT(RunUnary<int8_t>({.kind = UnaryKind::kAbs, .type = DataType::kInt8, .dims = three}, {-5, -128, 7}),
              ElementsAre(5, -128, 7));
  EXPECT_THAT(
      RunUnary<int32_t>({.kind = UnaryKind::kClip, .type = DataType::kInt32, .dims = three, .low = -1e300, .high = 4},
                        {-9, 4, 5}),
      ElementsAre(-9, 4, 4));
  EXPECT_THAT(RunUnary<uint8_t>({.kind = UnaryKind::kNot, .type = DataType::kBool, .dims = three}, {0, 1, 7}),
              ElementsAre(1, 0, 0));
  EXPECT_THAT(RunUnary<double>({.kind = UnaryKind::kTanh, .type = DataType::kFp64, .dims = {1}}, {0.25}),
              ElementsAre(::testing::DoubleEq(std::tanh(0.25))));
  Libraries libraries;
  EXPECT_THAT(libraries.fast().PrepareUnary({.kind = UnaryKind::kExp, .type = DataType::kInt32}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("INT32")));
  EXPECT_THAT(libraries.fast().PrepareUnary({.kind = UnaryKind::kNot, .type = DataType::kFp32}),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(libraries.fast().PrepareUnary({.kind = UnaryKind::kClip, .low = 2, .high = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("low 2")));
  EXPECT_THAT(libraries.fast().PrepareUnary({.dims = {-1}}), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Goal: in place gives the same. Method: one buffer as input and output, longer than any vector.
TEST(Unary, WorksInPlace) {
  Libraries libraries;
  std::vector<float> values(100), expected;
  for (size_t i = 0; i < values.size(); ++i) expected.push_back(-(values[i] = static_cast<float>(i)));
  const auto kernel = libraries.fast().PrepareUnary({.kind = UnaryKind::kNeg, .dims = {100}});
  const GuardedBuffer buffer = GuardedBuffer::Of(values);
  RunOver(kernel, {&buffer, &buffer});
  EXPECT_EQ(buffer.Values<float>(), expected);
}

template <class To, class From>
std::vector<To> Cast(DataType from, DataType to, const std::vector<From>& input) {
  Libraries libraries;
  return RunKernel<To>(
      libraries.fast().PrepareCast({.from = from, .to = to, .dims = {static_cast<int64_t>(input.size())}}),
      Inputs(input), input.size());
}

// Goal: conversions between every kind of type, and what does not fit. Method: by hand.
TEST(Cast, ConvertsValues) {
  EXPECT_THAT((Cast<int64_t, float>(DataType::kFp32, DataType::kInt64, {1.9f, -1.9f, kNan, 1e30f, -1e30f})),
              ElementsAre(1, -1, 0, INT64_MAX, INT64_MIN));
  EXPECT_THAT((Cast<uint8_t, float>(DataType::kFp32, DataType::kUint8, {255.9f, 256.0f, -3.0f})),
              ElementsAre(255, 255, 0));
  EXPECT_THAT((Cast<int32_t, double>(DataType::kFp64, DataType::kInt32, {2147483647.5, -0.5})),
              ElementsAre(INT32_MAX, 0));
  EXPECT_THAT((Cast<int8_t, int64_t>(DataType::kInt64, DataType::kInt8, {257, -1})), ElementsAre(1, -1));
  EXPECT_THAT((Cast<float, uint8_t>(DataType::kBool, DataType::kFp32, {0, 1, 9})), ElementsAre(0.0f, 1.0f, 1.0f));
  EXPECT_THAT((Cast<uint8_t, float>(DataType::kFp32, DataType::kBool, {0.0f, -0.0f, 0.25f, kNan})),
              ElementsAre(0, 0, 1, 1));
  EXPECT_THAT((Cast<int64_t, int32_t>(DataType::kInt32, DataType::kInt64, {-5})), ElementsAre(-5));
  Libraries libraries;
  EXPECT_THAT(libraries.fast().PrepareCast({.from = DataType::kBytes, .to = DataType::kFp32}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("BYTES")));
}

// Goal: half precision exactly. Method: all 65,536 values survive the way to float and back; rounding cases by hand.
TEST(Cast, ConvertsHalfPrecision) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<float> floats = Cast<float>(DataType::kFp16, DataType::kFp32, all);
  const std::vector<uint16_t> back = Cast<uint16_t>(DataType::kFp32, DataType::kFp16, floats);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool nan = (i & 0x7c00u) == 0x7c00u && (i & 0x3ffu) != 0;
    ASSERT_EQ(std::isnan(floats[i]), nan) << i;
    if (!nan) {
      ASSERT_EQ(back[i], all[i]) << i;
    }
  }
  EXPECT_EQ(floats[0x3c00], 1.0f);
  EXPECT_EQ(floats[0x0001], 0x1p-24f);
  EXPECT_EQ(floats[0xfbff], -65504.0f);
  EXPECT_THAT((Cast<uint16_t, float>(DataType::kFp32, DataType::kFp16,
                                     {65519.0f, 65520.0f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 0x1p-25f, 0x1.8p-25f})),
              ElementsAre(0x7bff, 0x7c00, 0x3c00, 0x3c02, 0, 1));
  // Rounding to float first would land on the tie and go down.
  EXPECT_THAT((Cast<uint16_t, double>(DataType::kFp64, DataType::kFp16, {1.0 + 0x1p-11 + 0x1p-40})),
              ElementsAre(0x3c01));
}

/// Every operand pair broadcast the slow way.
template <class In, class Out>
std::vector<Out> SlowBinary(const Dims& a_dims, const std::vector<In>& a, const Dims& b_dims, const std::vector<In>& b,
                            const Dims& output, const std::function<Out(In, In)>& function) {
  const auto at = [&](const Dims& dims, int64_t o) {
    int64_t offset = 0, stride = 1;
    for (size_t i = 0; i < output.size(); ++i) {
      const size_t from_end = output.size() - 1 - i;
      const int64_t position = o % output[from_end];
      o /= output[from_end];
      if (i >= dims.size()) continue;
      const int64_t dim = dims[dims.size() - 1 - i];
      offset += dim == 1 ? 0 : position * stride;
      stride *= dim;
    }
    return offset;
  };
  std::vector<Out> result;
  for (int64_t o = 0; o < CountOf(output); ++o) result.push_back(function(a[at(a_dims, o)], b[at(b_dims, o)]));
  return result;
}

// Goal: broadcasting by numpy's rule in every pattern. Method: seeded random shapes against an index-by-index walk,
// with a subtraction, which tells its operands apart.
TEST(Binary, BroadcastsRandomShapes) {
  Libraries libraries;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Dims a, b;
    for (int64_t i = RandomInt(random, 0, 5); i > 0; --i) {
      const int64_t size = RandomInt(random, 1, 5);
      a.push_back(random() % 3 == 0 ? 1 : size);
      b.push_back(random() % 3 == 0 ? 1 : size);
    }
    if (random() % 3 == 0 && !b.empty()) b.erase(b.begin(), b.begin() + RandomInt(random, 0, b.size()));
    ASSERT_OK_AND_ASSIGN(const Dims output, BroadcastDims(a, b));
    const std::vector<float> x = RandomFloats(random, CountOf(a)), y = RandomFloats(random, CountOf(b));
    const std::vector<float> expected = SlowBinary<float, float>(a, x, b, y, output, std::minus<float>());
    EXPECT_EQ(RunKernel<float>(libraries.fast().PrepareBinary({.kind = BinaryKind::kSub, .a = a, .b = b}), Inputs(x, y),
                               expected.size()),
              expected)
        << DimsToString(a) << DimsToString(b);
  }
}

// Goal: the one-hot comparison of Magika. Method: each row has exactly one 1, at the byte's place.
TEST(Binary, ComparesAgainstARow) {
  Libraries libraries;
  std::vector<int32_t> bytes, row;
  for (int32_t i = 0; i < 100; ++i) bytes.push_back(i * 7 % 257);
  for (int32_t i = 0; i < 257; ++i) row.push_back(i);
  const BinaryDescription d{.kind = BinaryKind::kEqual, .type = DataType::kInt32, .a = {2, 50, 1}, .b = {1, 1, 257}};
  const std::vector<uint8_t> result =
      RunKernel<uint8_t>(libraries.fast().PrepareBinary(d), Inputs(bytes, row), 100 * 257);
  ASSERT_EQ(result.size(), 100u * 257);
  for (size_t i = 0; i < result.size(); ++i) {
    ASSERT_EQ(result[i], bytes[i / 257] == static_cast<int32_t>(i % 257) ? 1 : 0) << i;
  }
}

template <class T>
std::vector<T> RunBinary(BinaryKind kind, DataType type, const std::vector<T>& a, const std::vector<T>& b) {
  Libraries libraries;
  const Dims dims = {static_cast<int64_t>(a.size())};
  return RunKernel<T>(libraries.fast().PrepareBinary({.kind = kind, .type = type, .a = dims, .b = dims}), Inputs(a, b),
                      a.size());
}

// Goal: arithmetic of integers where C++ leaves it undefined. Method: by hand.
TEST(Binary, IntegersWrapAndTruncate) {
  constexpr DataType kLong = DataType::kInt64;
  using V = std::vector<int64_t>;
  EXPECT_THAT(RunBinary(BinaryKind::kDiv, kLong, V{7, -7, 7, 5, INT64_MIN}, V{2, 2, -2, 0, -1}),
              ElementsAre(3, -3, -3, 0, INT64_MIN));
  EXPECT_THAT(RunBinary(BinaryKind::kMod, kLong, V{7, -7, 7, 5, INT64_MIN}, V{3, 3, -3, 0, -1}),
              ElementsAre(1, 2, -2, 0, 0));
  EXPECT_THAT(RunBinary(BinaryKind::kAdd, kLong, V{INT64_MAX}, V{1}), ElementsAre(INT64_MIN));
  EXPECT_THAT(RunBinary(BinaryKind::kMul, kLong, V{INT64_MAX, -3}, V{2, 4}), ElementsAre(-2, -12));
  EXPECT_THAT(RunBinary(BinaryKind::kPow, kLong, V{3, 2, -2, 0, -1, 2}, V{4, -1, 3, 0, -3, 64}),
              ElementsAre(81, 0, -8, 1, -1, 0));
  EXPECT_THAT(RunBinary(BinaryKind::kMax, kLong, V{1, 5}, V{2, -5}), ElementsAre(2, 5));
  EXPECT_THAT(RunBinary<int8_t>(BinaryKind::kMul, DataType::kInt8, {100}, {100}), ElementsAre(16));
  EXPECT_THAT(RunBinary<uint8_t>(BinaryKind::kMod, DataType::kUint8, {200, 9}, {255, 0}), ElementsAre(200, 0));
}

// Goal: floating arithmetic, NaN and the fused activation. Method: by hand.
TEST(Binary, FloatsFollowIeee) {
  using V = std::vector<float>;
  constexpr DataType kFloat = DataType::kFp32;
  EXPECT_THAT(RunBinary(BinaryKind::kDiv, kFloat, V{1, -1}, V{0, 4}), ElementsAre(kInfinity, -0.25f));
  EXPECT_THAT(RunBinary(BinaryKind::kPow, kFloat, V{2, 9, -3}, V{10, 0.5f, 2}), ElementsAre(1024, 3, 9));
  EXPECT_THAT(RunBinary(BinaryKind::kMod, kFloat, V{-7}, V{3}), ElementsAre(-1));
  for (const BinaryKind kind : {BinaryKind::kMax, BinaryKind::kMin}) {
    for (const float x : RunBinary(kind, kFloat, V{kNan, 1}, V{1, kNan})) EXPECT_TRUE(std::isnan(x));
  }
  Libraries libraries;
  const BinaryDescription d{.kind = BinaryKind::kAdd, .a = {2, 2}, .b = {2}, .activation = Activation::kRelu};
  EXPECT_THAT(RunKernel<float>(libraries.fast().PrepareBinary(d), Inputs(V{1, 2, 3, 4}, V{-2, -3}), 4),
              ElementsAre(0, 0, 1, 1));
}

// Goal: truth values of any byte. Method: by hand, all four pairs.
TEST(Binary, CombinesTruthValues) {
  const std::vector<uint8_t> a = {0, 0, 3, 2}, b = {0, 5, 0, 1};
  EXPECT_THAT(RunBinary(BinaryKind::kAnd, DataType::kBool, a, b), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(RunBinary(BinaryKind::kOr, DataType::kBool, a, b), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(RunBinary(BinaryKind::kXor, DataType::kBool, a, b), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(RunBinary(BinaryKind::kEqual, DataType::kBool, a, b), ElementsAre(1, 0, 0, 1));
}

// Goal: comparisons write one byte each and mean what they say. Method: by hand.
TEST(Binary, Compares) {
  Libraries libraries;
  const std::vector<float> a = {1, 2, 3}, b = {2, 2, 2};
  const auto run = [&](BinaryKind kind) {
    return RunKernel<uint8_t>(libraries.fast().PrepareBinary({.kind = kind, .a = {3}, .b = {3}}), Inputs(a, b), 3);
  };
  EXPECT_THAT(run(BinaryKind::kEqual), ElementsAre(0, 1, 0));
  EXPECT_THAT(run(BinaryKind::kGreater), ElementsAre(0, 0, 1));
  EXPECT_THAT(run(BinaryKind::kGreaterOrEqual), ElementsAre(0, 1, 1));
  EXPECT_THAT(run(BinaryKind::kLess), ElementsAre(1, 0, 0));
  EXPECT_THAT(run(BinaryKind::kLessOrEqual), ElementsAre(1, 1, 0));
}

// Goal: what does not fit is refused. Method: one thing wrong at a time; and empty tensors are none.
TEST(Binary, RefusesInconsistentDescriptions) {
  Libraries libraries;
  KernelLibrary& library = libraries.fast();
  EXPECT_THAT(library.PrepareBinary({.a = {2}, .b = {3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("broadcast")));
  EXPECT_THAT(library.PrepareBinary({.a = {1 << 30, 1}, .b = {1, 1 << 30}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too large")));
  EXPECT_THAT(library.PrepareBinary({.kind = BinaryKind::kLess, .type = DataType::kBool}),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(library.PrepareBinary({.kind = BinaryKind::kAnd}), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(library.PrepareBinary({.type = DataType::kInt32, .activation = Activation::kRelu}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("activation")));
  EXPECT_TRUE(RunKernel<float>(library.PrepareBinary({.a = {0, 3}, .b = {3}}),
                               Inputs(std::vector<float>{}, std::vector<float>(3)), 0)
                  .empty());
}

// Goal: choice by condition, broadcast three ways, for every element size. Method: by hand.
TEST(Where, ChoosesAndBroadcasts) {
  Libraries libraries;
  const std::vector<uint8_t> condition = {1, 0};
  const WhereDescription d{.type = DataType::kInt64, .condition = {2, 1}, .x = {3}, .y = {}};
  EXPECT_THAT(RunKernel<int64_t>(libraries.fast().PrepareWhere(d),
                                 Inputs(condition, std::vector<int64_t>{1, 2, 3}, std::vector<int64_t>{9}), 6),
              ElementsAre(1, 2, 3, 9, 9, 9));
  const WhereDescription e{.type = DataType::kUint8, .condition = {2}, .x = {2}, .y = {2}};
  EXPECT_THAT(RunKernel<uint8_t>(libraries.fast().PrepareWhere(e),
                                 Inputs(condition, std::vector<uint8_t>{4, 5}, std::vector<uint8_t>{6, 7}), 2),
              ElementsAre(4, 7));
  EXPECT_THAT(libraries.fast().PrepareWhere({.condition = {2}, .x = {3}, .y = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace sluice::gpu
