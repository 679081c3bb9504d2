// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Kernels of FP16 and BF16 compute in FP32 and round once, so each must agree with the FP32 kernel of the same library,
// which has tests of its own, over the same rounded numbers. Backends without halves skip.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

constexpr DataType kHalves[] = {DataType::kFp16, DataType::kBf16};

using Prepared = absl::StatusOr<std::unique_ptr<Kernel>>;

struct Product {
  Dims a, b;
  bool transpose_a = false, transpose_b = false;
  std::optional<Dims> c = {};
  bool constants = false, residual = false;
  Activation activation = Activation::kNone;
};

struct Convolution {
  Dims input, weights, strides = {1, 1}, dilations = {1, 1}, pads_begin = {0, 0}, pads_end = {0, 0};
  int64_t groups = 1;
  bool bias = true, residual = false, fp32_input = false;
  Activation activation = Activation::kNone;
};

class Half : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!library().features().low_precision) GTEST_SKIP() << "the backend has no kernels for halves";
  }
  KernelLibrary& library() { return libraries_.fast(); }

  /// Prepares for both types; `stored` turns an FP32 tensor into the order of the half kernel's, likewise its result
  /// back. `own` are spans that stay FP32, behind the others.
  void ExpectAgrees(DataType type, const std::function<Prepared(DataType)>& prepare,
                    const std::vector<std::vector<float>>& inputs, size_t output_count, double tolerance,
                    const std::string& what, const std::vector<std::vector<float>>& own = {}) {
    std::vector<GuardedBuffer> whole, half;
    for (const std::vector<float>& input : inputs) {
      whole.push_back(BufferOf(DataType::kFp32, RoundedTo(type, input)));
      half.push_back(BufferOf(type, input));
    }
    for (const std::vector<float>& input : own) {
      whole.push_back(GuardedBuffer::Of(input));
      half.push_back(GuardedBuffer::Of(input));
    }
    const std::vector<float> expected = RunKernel<float>(prepare(DataType::kFp32), whole, output_count);
    ExpectNear(RunKernelOf(type, prepare(type), half, output_count), Doubles(expected), tolerance,
               std::string(WireName(type)) + " " + what);
  }

  void ExpectProductAgrees(DataType type, const Product& p, std::mt19937& random);
  void ExpectConvolutionAgrees(DataType type, const Convolution& c, std::mt19937& random);

  Libraries libraries_;
};

TEST_F(Half, UnaryKindsAgreeWithFp32) {
  // Goal: every kind, with lengths that fill packs and that do not. Method: against FP32; roots and logarithms of
  // positive numbers.
  std::mt19937 random(1);
  for (const DataType type : kHalves) {
    for (int k = static_cast<int>(UnaryKind::kAbs); k <= static_cast<int>(UnaryKind::kTanh); ++k) {
      const auto kind = static_cast<UnaryKind>(k);
      if (kind == UnaryKind::kNot) continue;
      std::vector<float> input = RandomFloats(random, 1027);
      const bool positive = kind == UnaryKind::kLog || kind == UnaryKind::kSqrt || kind == UnaryKind::kReciprocal;
      for (float& x : input) x = positive ? std::abs(x) + 0.5f : x * 4;
      const auto prepare = [&](DataType t) {
        return library().PrepareUnary(
            {.kind = kind, .type = t, .dims = {13, 79}, .alpha = 0.25f, .beta = 0.5f, .low = -1, .high = 2});
      };
      ExpectAgrees(type, prepare, {input}, input.size(), RoundingOf(type), "kind " + std::to_string(k));
    }
  }
}

TEST_F(Half, BinaryKindsAgreeWithFp32) {
  // Goal: arithmetic with every form of broadcast, and comparisons. Method: against FP32.
  std::mt19937 random(2);
  for (const DataType type : kHalves) {
    for (const auto& [a, b] : {std::pair(Dims{3, 40}, Dims{3, 40}), std::pair(Dims{3, 41}, Dims{}),
                               std::pair(Dims{2, 3, 5}, Dims{3, 1}), std::pair(Dims{5}, Dims{4, 5}),
                               std::pair(Dims{2, 1, 1, 16}, Dims{2, 3, 5, 16}), std::pair(Dims{4, 24}, Dims{24})}) {
      const size_t count = static_cast<size_t>(CountOf(*BroadcastDims(a, b)));
      const std::vector<float> x = RandomFloats(random, CountOf(a));
      std::vector<float> y = RandomFloats(random, CountOf(b));
      for (float& value : y) value = std::abs(value) + 0.5f;
      for (const BinaryKind kind : {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul, BinaryKind::kDiv,
                                    BinaryKind::kMax, BinaryKind::kMin}) {
        for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
          const auto prepare = [&](DataType t) {
            return library().PrepareBinary({.kind = kind, .type = t, .a = a, .b = b, .activation = activation});
          };
          ExpectAgrees(type, prepare, {x, y}, count, RoundingOf(type), DimsToString(a) + DimsToString(b));
        }
      }
      const auto less = [&](DataType t) {
        return library().PrepareBinary({.kind = BinaryKind::kLess, .type = t, .a = a, .b = b});
      };
      const std::vector<float> rx = RoundedTo(type, x), ry = RoundedTo(type, y);
      EXPECT_EQ(RunKernel<uint8_t>(less(type), BuffersOf(type, x, y), count),
                RunKernel<uint8_t>(less(DataType::kFp32), Inputs(rx, ry), count));
    }
  }
}

TEST_F(Half, CastsRoundOnceToNearestEven) {
  // Goal: FP32 to BF16 and FP16 and back. Method: against the bits of base/half.h, with ties, infinities and NaN.
  std::mt19937 random(3);
  std::vector<float> values = RandomFloats(random, 2000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], static_cast<int>(i % 40) - 25);
  for (const float edge : {1.00390625f, 1.01171875f, 65519.0f, 65520.0f, INFINITY, -INFINITY, 0.0f, -0.0f}) {
    values.push_back(edge);
  }
  for (const DataType type : kHalves) {
    const Dims dims = {static_cast<int64_t>(values.size())};
    const auto to = library().PrepareCast({.from = DataType::kFp32, .to = type, .dims = dims});
    const std::vector<uint16_t> bits = RunKernel<uint16_t>(to, Inputs(values), values.size());
    EXPECT_EQ(bits, HalfBits(type, values)) << WireName(type);
    const auto back = library().PrepareCast({.from = type, .to = DataType::kFp32, .dims = dims});
    EXPECT_EQ(RunKernel<float>(back, Inputs(bits), values.size()), FromHalfBits(type, bits)) << WireName(type);
  }
}

TEST_F(Half, RowsAndColumnsAgreeWithFp32) {
  // Goal: softmax over rows and columns, layer norm in registers and out of them, reductions of rows, columns and
  // images. Method: against FP32.
  std::mt19937 random(4);
  for (const DataType type : kHalves) {
    for (const Dims& dims : {Dims{3, 128}, Dims{2, 7, 33}, Dims{5, 2000}}) {
      const std::vector<float> x = RandomFloats(random, CountOf(dims));
      for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis) {
        const auto softmax = [&](DataType t) {
          return library().PrepareSoftmax({.type = t, .dims = dims, .axis = axis});
        };
        ExpectAgrees(type, softmax, {x}, x.size(), RoundingOf(type), "softmax " + DimsToString(dims));
        for (const ReduceKind kind : {ReduceKind::kMean, ReduceKind::kMax, ReduceKind::kMin, ReduceKind::kSum}) {
          const auto reduce = [&](DataType t) {
            return library().PrepareReduce({.kind = kind, .type = t, .input = dims, .axes = {axis}});
          };
          ExpectAgrees(type, reduce, {x}, x.size() / static_cast<size_t>(dims[axis]), RoundingOf(type),
                       "reduce " + DimsToString(dims));
        }
      }
    }
    for (const int64_t length : {8, 100, 256, 768, 1000, 1024, 2048, 3000}) {
      const std::vector<float> x = RandomFloats(random, 5 * length), scale = RandomFloats(random, length);
      const std::vector<float> bias = RandomFloats(random, length);
      for (const bool has_bias : {true, false}) {
        const auto norm = [&](DataType t) {
          return library().PrepareLayerNorm({.type = t, .input = {5, length}, .has_bias = has_bias});
        };
        std::vector<std::vector<float>> own = {scale};
        if (has_bias) own.push_back(bias);
        ExpectAgrees(type, norm, {x}, x.size(), 2 * RoundingOf(type), "layer norm " + std::to_string(length), own);
      }
    }
  }
}

TEST_F(Half, PoolsWithTheChannelsLastAgreeWithFp32) {
  // Goal: windows with pads, strides and rounding up, and the global ones. Method: against FP32 with the channels
  // first, both orders turned by hand.
  std::mt19937 random(5);
  const Dims dims = {2, 11, 9, 8};
  for (const DataType type : kHalves) {
    const std::vector<float> x = RoundedTo(type, RandomFloats(random, CountOf(dims)));
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      for (const bool include : {false, true}) {
        PoolDescription d{.kind = kind,
                          .input = dims,
                          .kernel = {3, 2},
                          .strides = {2, 2},
                          .pads_begin = {1, 0},
                          .pads_end = {1, 1},
                          .ceil_mode = true,
                          .count_include_pad = include};
        const Dims out = *PoolOutputDims(d);
        const std::vector<float> expected =
            RunKernel<float>(library().PreparePool(d), Inputs(x), static_cast<size_t>(CountOf(out)));
        d.type = type;
        d.channels_last = true;
        const auto actual = RunKernelOf(type, library().PreparePool(d), BuffersOf(type, ChannelsLast(x, dims)),
                                        static_cast<size_t>(CountOf(out)));
        ExpectNear(actual, Doubles(ChannelsLast(expected, out)), RoundingOf(type), "pool");
      }
      GlobalPoolDescription global{.kind = kind, .input = dims};
      const std::vector<float> expected = RunKernel<float>(library().PrepareGlobalPool(global), Inputs(x), 22);
      global.type = type;
      global.channels_last = true;
      ExpectNear(RunKernelOf(type, library().PrepareGlobalPool(global), BuffersOf(type, ChannelsLast(x, dims)), 22),
                 Doubles(expected), RoundingOf(type), "global pool");
    }
  }
}

void Half::ExpectProductAgrees(DataType type, const Product& p, std::mt19937& random) {
  const std::vector<float> a = RoundedTo(type, RandomFloats(random, CountOf(p.a)));
  const std::vector<float> b = RoundedTo(type, RandomFloats(random, CountOf(p.b)));
  const std::vector<float> c = RoundedTo(type, RandomFloats(random, p.c.has_value() ? CountOf(*p.c) : 0));
  MatMulDescription d{.a = p.a, .b = p.b, .transpose_a = p.transpose_a, .transpose_b = p.transpose_b};
  d.c = p.c;
  const Dims out = *MatMulOutputDims(d);
  const auto count = static_cast<size_t>(CountOf(out));
  const std::vector<float> residual = RoundedTo(type, RandomFloats(random, CountOf(out)));
  std::vector<GuardedBuffer> whole = Inputs(a, b), half = BuffersOf(type, a);
  if (p.c.has_value()) whole.push_back(GuardedBuffer::Of(c));
  std::vector<float> expected = RunKernel<float>(library().PrepareMatMul(d), whole, count);
  for (size_t i = 0; i < count; ++i) {
    if (p.residual) expected[i] += residual[i];
    if (p.activation == Activation::kRelu) expected[i] = std::max(expected[i], 0.0f);
  }
  d.type = type;
  d.activation = p.activation;
  d.residual = p.residual;
  if (p.constants) {
    d.b_constant = ConstantOf("b", p.b, b);
    if (p.c.has_value()) d.c_constant = ConstantOf("c", *p.c, c);
  } else {
    half.push_back(BufferOf(type, b));
    if (p.c.has_value()) half.push_back(BufferOf(type, c));
  }
  if (p.residual) half.push_back(BufferOf(type, residual));
  ExpectNear(RunKernelOf(type, library().PrepareMatMul(d), half, count), Doubles(expected), 2 * RoundingOf(type),
             std::string(WireName(type)) + " " + DimsToString(p.a) + " by " + DimsToString(p.b));
}

TEST_F(Half, ProductsAgreeWithFp32) {
  // Goal: what cuBLASLt fuses, what is left to a kernel of ours, depth in parts, batches, transposes, odd sizes.
  // Method: against FP32, whose residual is added here; errors grow with the roundings of the sums' terms.
  std::mt19937 random(6);
  const Product products[] = {
      {.a = {128, 768}, .b = {768, 256}, .c = Dims{256}, .constants = true},
      {.a = {128, 768}, .b = {768, 256}, .c = Dims{256}, .constants = true, .activation = Activation::kRelu},
      {.a = {2, 64, 3072}, .b = {3072, 128}, .c = Dims{128}, .constants = true, .residual = true},
      {.a = {2, 64, 96},
       .b = {96, 128},
       .c = Dims{128},
       .constants = true,
       .residual = true,
       .activation = Activation::kRelu},
      {.a = {1, 512}, .b = {1000, 512}, .transpose_b = true, .c = Dims{1000}, .constants = true},
      {.a = {33, 17}, .b = {17, 5}, .c = Dims{33, 5}},
      {.a = {33, 17}, .b = {17, 5}, .c = Dims{33, 1}, .residual = true, .activation = Activation::kRelu},
      {.a = {17, 33}, .b = {5, 17}, .transpose_a = true, .transpose_b = true},
      {.a = {2, 3, 40, 16}, .b = {2, 3, 16, 24}},
      {.a = {2, 3, 40, 16}, .b = {2, 1, 24, 16}, .transpose_b = true},
      {.a = {64, 64}, .b = {64, 64}, .c = Dims{64, 64}, .residual = true},
  };
  for (const DataType type : kHalves) {
    for (const Product& p : products) {
      ExpectProductAgrees(type, p, random);
    }
  }
}

void Half::ExpectConvolutionAgrees(DataType type, const Convolution& c, std::mt19937& random) {
  const std::vector<float> input = RoundedTo(type, RandomFloats(random, CountOf(c.input)));
  const std::vector<float> weights = RoundedTo(type, RandomFloats(random, CountOf(c.weights)));
  const std::vector<float> bias = RoundedTo(type, RandomFloats(random, c.weights[0]));
  ConvDescription d{.input = c.input,
                    .weights = ConstantOf("weights", c.weights, weights),
                    .strides = c.strides,
                    .dilations = c.dilations,
                    .pads_begin = c.pads_begin,
                    .pads_end = c.pads_end,
                    .groups = c.groups};
  if (c.bias) d.bias = ConstantOf("bias", {c.weights[0]}, bias);
  const Dims out = *ConvOutputDims(d);
  const auto count = static_cast<size_t>(CountOf(out));
  const std::vector<float> residual = RoundedTo(type, RandomFloats(random, CountOf(out)));
  std::vector<float> expected = RunKernel<float>(library().PrepareConv(d), Inputs(input), count);
  for (size_t i = 0; i < count; ++i) {
    float& x = expected[i];
    if (c.residual) x += residual[i];
    if (c.activation == Activation::kRelu) x = std::max(x, 0.0f);
    if (c.activation == Activation::kClip) x = std::clamp(x, -0.5f, 2.0f);
    if (c.activation == Activation::kSwish) x = x / (1 + std::exp(-x));
  }
  d.type = type;
  d.channels_last = true;
  d.residual = c.residual;
  d.activation = c.activation;
  d.low = -0.5f;
  d.high = 2.0f;
  d.fp32_input = c.fp32_input;
  std::vector<GuardedBuffer> half = c.fp32_input ? Inputs(input) : BuffersOf(type, ChannelsLast(input, c.input));
  if (c.residual) half.push_back(BufferOf(type, ChannelsLast(residual, out)));
  // A library may round before what it leaves to another kernel.
  ExpectNear(RunKernelOf(type, library().PrepareConv(d), half, count), Doubles(ChannelsLast(expected, out)),
             3 * RoundingOf(type),
             std::string(WireName(type)) + " " + DimsToString(c.input) + " by " + DimsToString(c.weights));
}

TEST_F(Half, ConvolutionsWithTheChannelsLastAgreeWithFp32) {
  // Goal: pointwise, strided, dilated, grouped, depthwise and unevenly padded convolutions with everything that may
  // follow, and images as requests bring them. Method: against FP32 with the channels first; residual and activation
  // are applied here.
  std::mt19937 random(7);
  const Convolution convolutions[] = {
      {.input = {2, 64, 14, 14}, .weights = {32, 64, 1, 1}, .activation = Activation::kRelu},
      {.input = {1, 256, 7, 7}, .weights = {64, 256, 1, 1}, .residual = true, .activation = Activation::kRelu},
      {.input = {2, 24, 9, 9}, .weights = {16, 24, 1, 1}, .activation = Activation::kClip},
      {.input = {2, 24, 9, 9}, .weights = {16, 24, 1, 1}, .bias = false, .activation = Activation::kSwish},
      {.input = {2, 32, 14, 14}, .weights = {64, 32, 1, 1}, .strides = {2, 2}},
      {.input = {2, 3, 32, 32},
       .weights = {16, 3, 7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .activation = Activation::kRelu},
      {.input = {2, 32, 14, 14},
       .weights = {32, 32, 3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .residual = true,
       .activation = Activation::kRelu},
      {.input = {1, 32, 14, 14}, .weights = {32, 32, 3, 3}, .pads_begin = {1, 1}, .pads_end = {1, 1}, .bias = false},
      {.input = {1, 16, 15, 15}, .weights = {16, 16, 3, 3}, .dilations = {2, 2}, .activation = Activation::kSwish},
      {.input = {2, 16, 12, 12}, .weights = {32, 4, 3, 3}, .pads_begin = {1, 1}, .pads_end = {1, 1}, .groups = 4},
      {.input = {2, 40, 12, 12},
       .weights = {40, 1, 3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .groups = 40,
       .activation = Activation::kClip},
      {.input = {2, 13, 12, 12},
       .weights = {13, 1, 5, 5},
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .groups = 13,
       .residual = true,
       .activation = Activation::kSwish},
      {.input = {1, 8, 11, 11},
       .weights = {8, 8, 3, 3},
       .strides = {2, 2},
       .pads_end = {1, 1},
       .activation = Activation::kRelu},
      {.input = {2, 3, 33, 31},
       .weights = {16, 3, 7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .fp32_input = true,
       .activation = Activation::kRelu},
      {.input = {2, 3, 32, 32}, .weights = {24, 3, 16, 16}, .strides = {16, 16}, .fp32_input = true},
      {.input = {1, 1, 9, 9}, .weights = {8, 1, 3, 3}, .pads_end = {1, 1}, .fp32_input = true},
      {.input = {1, 256, 7, 7},
       .weights = {128, 256, 3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .residual = true,
       .activation = Activation::kRelu},
      {.input = {1, 5, 6, 7}, .weights = {3, 5, 2, 3}, .pads_begin = {1, 0}, .pads_end = {0, 1}, .residual = true},
  };
  for (const DataType type : kHalves) {
    for (const Convolution& c : convolutions) {
      ExpectConvolutionAgrees(type, c, random);
    }
  }
}

TEST_F(Half, FewRowsAgreeWithFp32) {
  // Goal: up to four rows by a constant matrix, with depths that fill packs and that do not, fewer columns than warps
  // and depths that several warps share; pointwise convolutions of as few places. Method: as above.
  std::mt19937 random(9);
  for (const DataType type : kHalves) {
    for (const int64_t rows : {1, 2, 3, 4}) {
      for (const auto& [depth, columns] :
           {std::pair(768, 768), std::pair(4096, 10), std::pair(1000, 33), std::pair(33, 3)}) {
        const Product plain = {.a = {rows, depth}, .b = {depth, columns}, .constants = true};
        ExpectProductAgrees(type, plain, random);
        Product all = {.a = {rows, depth},
                       .b = {columns, depth},
                       .transpose_b = true,
                       .c = Dims{columns},
                       .constants = true,
                       .residual = true,
                       .activation = Activation::kRelu};
        ExpectProductAgrees(type, all, random);
        all.c = Dims{rows, 1};
        ExpectProductAgrees(type, all, random);
      }
    }
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kClip, Activation::kSwish}) {
      ExpectConvolutionAgrees(type, {.input = {1, 96, 1, 1}, .weights = {4, 96, 1, 1}, .activation = activation},
                              random);
      ExpectConvolutionAgrees(
          type, {.input = {4, 6, 1, 1}, .weights = {144, 6, 1, 1}, .bias = false, .activation = activation}, random);
      ExpectConvolutionAgrees(
          type, {.input = {1, 40, 2, 2}, .weights = {48, 40, 1, 1}, .residual = true, .activation = activation},
          random);
    }
  }
}

TEST_F(Half, Tf32StaysNearFp32) {
  // Goal: products and convolutions that may round their factors still do nothing else. Method: against strict FP32,
  // within the rounding of factors to ten bits.
  std::mt19937 random(8);
  const std::vector<float> a = RandomFloats(random, 64 * 256), b = RandomFloats(random, 256 * 96);
  MatMulDescription d{.a = {64, 256}, .b = {256, 96}};
  const std::vector<float> strict = RunKernel<float>(library().PrepareMatMul(d), Inputs(a, b), 64 * 96);
  d.tf32 = true;
  ExpectNear(RunKernel<float>(library().PrepareMatMul(d), Inputs(a, b), 64 * 96), Doubles(strict), 3e-2, "product");
  const std::vector<float> x = RandomFloats(random, 32 * 14 * 14), weights = RandomFloats(random, 32 * 32 * 9);
  ConvDescription conv{.input = {1, 32, 14, 14},
                       .weights = ConstantOf("weights", {32, 32, 3, 3}, weights),
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads_begin = {1, 1},
                       .pads_end = {1, 1}};
  const std::vector<float> exact = RunKernel<float>(library().PrepareConv(conv), Inputs(x), x.size());
  conv.tf32 = true;
  ExpectNear(RunKernel<float>(library().PrepareConv(conv), Inputs(x), x.size()), Doubles(exact), 3e-2, "convolution");
}

}  // namespace
}  // namespace sluice::gpu
