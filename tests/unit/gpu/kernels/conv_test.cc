// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/conv.h"

#include <cmath>
#include <limits>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

struct Case {
  ConvDescription description;
  std::vector<float> input, weights, bias, residual;
};

double Activated(const ConvDescription& d, double x) {
  switch (d.activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0.0 : x;
    case Activation::kClip:
      return std::min(std::max(x, static_cast<double>(d.low)), static_cast<double>(d.high));
    case Activation::kSwish:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      break;
  }
  return x;
}

/// Straight from the formula, in double, over any number of spatial dimensions: one loop over output positions and one
/// over kernel positions, both counted in mixed radix.
std::vector<double> Reference(const Case& c, const Dims& output) {
  const ConvDescription& d = c.description;
  const size_t rank = d.input.size() - 2;
  const int64_t group_channels = d.input[1] / d.groups, group_filters = output[1] / d.groups;
  const Dims kernel(d.weights.dims.begin() + 2, d.weights.dims.end());
  std::vector<double> result;
  for (int64_t o = 0; o < CountOf(output); ++o) {
    Dims position(output.size());
    int64_t rest = o;
    for (size_t i = output.size(); i-- > 0; rest /= output[i]) position[i] = rest % output[i];
    const int64_t m = position[1];
    double sum = c.bias.empty() ? 0.0 : c.bias[m];
    for (int64_t channel = 0; channel < group_channels; ++channel) {
      for (int64_t k = 0; k < CountOf(kernel); ++k) {
        int64_t left = k, offset = 0, stride = 1;
        bool inside = true;
        for (size_t i = rank; i-- > 0; left /= kernel[i]) {
          const int64_t x = position[i + 2] * d.strides[i] - d.pads_begin[i] + left % kernel[i] * d.dilations[i];
          inside = inside && x >= 0 && x < d.input[i + 2];
          offset += x * stride;
          stride *= d.input[i + 2];
        }
        if (!inside) continue;
        const int64_t plane = position[0] * d.input[1] + m / group_filters * group_channels + channel;
        sum += static_cast<double>(c.input[plane * stride + offset]) *
               c.weights[(m * group_channels + channel) * CountOf(kernel) + k];
      }
    }
    if (d.residual) sum += c.residual[o];
    result.push_back(Activated(d, sum));
  }
  return result;
}

/// Fills in data; the description's dimensions must be set. Constants point into the case, which must not move after.
void FillCase(Case& c, Dims weight_dims, bool bias, std::mt19937& random) {
  ConvDescription& d = c.description;
  const size_t rank = d.input.size() - 2;
  for (Dims* list : {&d.strides, &d.dilations}) {
    if (list->empty()) list->assign(rank, 1);
  }
  for (Dims* list : {&d.pads_begin, &d.pads_end}) {
    if (list->empty()) list->assign(rank, 0);
  }
  c.input = RandomFloats(random, CountOf(d.input));
  c.weights = RandomFloats(random, CountOf(weight_dims));
  d.weights = ConstantOf("weights", weight_dims, c.weights);
  if (bias) {
    c.bias = RandomFloats(random, weight_dims[0]);
    d.bias = ConstantOf("bias", {weight_dims[0]}, c.bias);
  }
}

std::string Describe(const Case& c) {
  const ConvDescription& d = c.description;
  return DimsToString(d.input) + " by " + DimsToString(d.weights.dims) + " strides " + DimsToString(d.strides) +
         " dilations " + DimsToString(d.dilations) + " pads " + DimsToString(d.pads_begin) + DimsToString(d.pads_end) +
         " groups " + std::to_string(d.groups) + (d.residual ? " residual" : "");
}

void ExpectMatchesReference(Case& c, std::mt19937& random, double tolerance = 2e-5) {
  Libraries libraries;
  ASSERT_OK_AND_ASSIGN(const Dims output, ConvOutputDims(c.description));
  std::vector<GuardedBuffer> inputs = Inputs(c.input);
  if (c.description.residual) {
    c.residual = RandomFloats(random, CountOf(output));
    inputs.push_back(GuardedBuffer::Of(c.residual));
  }
  const std::vector<double> expected = Reference(c, output);
  for (const auto& [name, library] : libraries.all()) {
    const Activation activation = c.description.activation;
    const bool simple = activation == Activation::kNone || activation == Activation::kRelu;
    if (library->backend() == Backend::kCuda && !simple) continue;
    std::vector<GuardedBuffer> own;
    for (const GuardedBuffer& input : inputs) own.push_back(GuardedBuffer::Of(input.Values<float>()));
    ExpectNear(RunKernel<float>(library->PrepareConv(c.description), own, expected.size()), expected, tolerance,
               name + " " + Describe(c));
    if (library->backend() == Backend::kCuda) continue;
    ConvDescription last = c.description;
    last.channels_last = true;
    std::vector<GuardedBuffer> turned = Inputs(ChannelsLast(c.input, last.input));
    if (last.residual) turned.push_back(GuardedBuffer::Of(ChannelsLast(c.residual, output)));
    ExpectNear(RunKernel<float>(library->PrepareConv(last), turned, expected.size()), ChannelsLast(expected, output),
               tolerance, name + " channels last " + Describe(c));
  }
}

/// Fills a case of these shapes and compares it with the formula.
class Checker {
 public:
  explicit Checker(uint32_t seed, double tolerance = 2e-5) : random_(seed), tolerance_(tolerance) {}
  void operator()(ConvDescription d, Dims weights, bool bias) {
    Case c;
    c.description = std::move(d);
    FillCase(c, std::move(weights), bias, random_);
    ExpectMatchesReference(c, random_, tolerance_);
  }

 private:
  std::mt19937 random_;
  const double tolerance_;
};

// Goal: shapes that real models have, and corners of layouts, agree with the formula. Method: each by both libraries.
TEST(Conv, MatchesFormulaOnChosenShapes) {
  Checker check(1);
  check({.input = {2, 16, 24, 1}}, {24, 16, 5, 1}, false);  // Magika's: nothing to the side
  check({.input = {1, 3, 17, 19}, .strides = {2, 2}, .pads_begin = {3, 3}, .pads_end = {3, 3}}, {8, 3, 7, 7}, true);
  check({.input = {1, 16, 7, 7}, .residual = true, .activation = Activation::kRelu}, {40, 16, 1, 1}, true);
  check({.input = {1, 8, 9, 9}, .strides = {2, 2}}, {16, 8, 1, 1}, false);
  check({.input = {1, 12, 10, 11}, .pads_begin = {1, 1}, .pads_end = {1, 1}, .groups = 12}, {12, 1, 3, 3}, true);
  check({.input = {1, 8, 6, 6}, .groups = 4, .residual = true}, {20, 2, 3, 3}, false);
  check({.input = {1, 4, 20}, .dilations = {3}, .pads_begin = {2}, .pads_end = {5}}, {6, 4, 4}, true);
  check({.input = {1, 3, 5, 6, 7}, .strides = {1, 2, 1}, .pads_begin = {1, 0, 1}, .pads_end = {0, 1, 1}},
        {5, 3, 2, 3, 3}, true);
  check({.input = {1, 5, 1, 1}}, {7, 5, 1, 1}, true);
  check({.input = {1, 2, 4, 4}, .pads_begin = {3, 0}, .pads_end = {4, 0}}, {2, 2, 2, 3},
        false);  // whole windows in pads
}

// Goal: few elements of deep layers, which a backend may unfold into a matrix product, agree with the formula. Method:
// against it, with and without strides, dilations, pads that differ, residual; pointwise ones for one and two images.
TEST(Conv, MatchesFormulaOnDeepLayersOfFewElements) {
  Checker check(33, 1e-4);  // sums of up to 2,304 products
  constexpr Activation kRelu = Activation::kRelu;
  const Dims one = {1, 1};
  check({.input = {2, 256, 7, 7}, .pads_begin = one, .pads_end = one, .activation = kRelu}, {256, 256, 3, 3}, true);
  check({.input = {2, 256, 7, 7}, .pads_begin = one, .pads_end = one, .residual = true}, {250, 256, 3, 3}, true);
  check({.input = {3, 192, 9, 8}, .strides = {2, 1}, .pads_begin = {0, 1}, .pads_end = {1, 2}}, {130, 192, 3, 3},
        false);
  check({.input = {2, 128, 9, 9}, .dilations = {2, 3}, .residual = true, .activation = kRelu}, {120, 128, 3, 2}, true);
  for (const int64_t batch : {1, 2}) {
    for (const bool residual : {false, true}) {
      check({.input = {batch, 512, 7, 7}, .residual = residual, .activation = kRelu}, {130, 512, 1, 1}, true);
    }
    check({.input = {batch, 320, 5, 3}}, {257, 320, 1, 1}, false);
  }
}

// Goal: what backends treat each in its own way: pads that differ or exceed the kernel, groups, one and three
// dimensions, and each of bias, residual and activation with and without the others. Method: against the formula.
TEST(Conv, MatchesFormulaOnShapesThatBackendsTellApart) {
  Checker check(21);
  constexpr Activation kRelu = Activation::kRelu;
  for (const bool bias : {false, true}) {
    for (const bool residual : {false, true}) {
      for (const Activation activation : {Activation::kNone, kRelu}) {
        check({.input = {2, 8, 9, 9},
               .pads_begin = {1, 1},
               .pads_end = {1, 1},
               .residual = residual,
               .activation = activation},
              {12, 8, 3, 3}, bias);
        check({.input = {1, 3, 15, 14},
               .strides = {2, 2},
               .pads_begin = {0, 0},
               .pads_end = {1, 1},
               .residual = residual,
               .activation = activation},
              {8, 3, 3, 3}, bias);
        check({.input = {2, 6, 30}, .pads_begin = {1}, .pads_end = {1}, .residual = residual, .activation = activation},
              {5, 6, 3}, bias);
        check({.input = {2, 4, 6, 7, 8},
               .pads_begin = {1, 1, 1},
               .pads_end = {1, 1, 1},
               .residual = residual,
               .activation = activation},
              {6, 4, 3, 3, 3}, bias);
      }
    }
  }
  check({.input = {1, 6, 19}, .pads_begin = {4}, .pads_end = {0}, .groups = 6, .activation = kRelu}, {6, 1, 5}, true);
  check({.input = {2, 8, 9, 9}, .pads_begin = {1, 1}, .pads_end = {1, 1}, .groups = 4, .activation = kRelu},
        {12, 2, 3, 3}, true);
  check({.input = {1, 4, 17, 17}, .dilations = {2, 3}, .pads_begin = {2, 3}, .pads_end = {2, 3}, .activation = kRelu},
        {6, 4, 3, 3}, true);
  check({.input = {1, 4, 5, 5}, .pads_begin = {1, 1}, .pads_end = {1, 1}}, {3, 4, 1, 1}, true);
  check({.input = {1, 4, 5, 5}, .strides = {3, 2}, .pads_begin = {4, 1}, .pads_end = {4, 1}, .residual = true},
        {3, 4, 3, 3}, false);
  check({.input = {1, 4, 5, 6, 7}, .groups = 2, .residual = true, .activation = kRelu}, {6, 2, 2, 3, 1}, true);
  check({.input = {1, 2, 4, 6, 5}, .strides = {2, 1, 1}, .pads_begin = {1, 0, 2}, .pads_end = {0, 1, 0}},
        {3, 2, 2, 3, 3}, false);
  check({.input = {1, 4, 9, 1, 1}}, {3, 4, 3, 1, 1}, true);
}

// Goal: what follows a convolution in mobile networks. Method: both activations, with depthwise, pointwise and full
// kernels, with and without residual and bias, against the formula.
TEST(Conv, MatchesFormulaWithOtherActivations) {
  Checker check(44);
  for (const Activation activation : {Activation::kClip, Activation::kSwish}) {
    for (const bool residual : {false, true}) {
      ConvDescription d{.residual = residual, .activation = activation, .low = -0.25f, .high = 0.5f};
      d.input = {2, 24, 9, 7};
      check(d, {16, 24, 1, 1}, true);
      d.pads_begin = d.pads_end = {1, 1};
      check(d, {16, 24, 3, 3}, false);
      d.strides = {2, 2};
      d.groups = 24;
      check(d, {24, 1, 3, 3}, true);
    }
  }
}

// Goal: sizes at which backends choose other algorithms. Method: against the formula.
TEST(Conv, MatchesFormulaOnLargerShapes) {
  Checker check(22);
  constexpr Activation kRelu = Activation::kRelu;
  check({.input = {1, 64, 28, 28}, .pads_begin = {1, 1}, .pads_end = {1, 1}, .activation = kRelu}, {32, 64, 3, 3},
        true);
  check({.input = {2, 96, 20, 20}, .residual = true, .activation = kRelu}, {128, 96, 1, 1}, true);
  check({.input = {1, 3, 64, 64}, .strides = {2, 2}, .pads_begin = {3, 3}, .pads_end = {3, 3}, .activation = kRelu},
        {64, 3, 7, 7}, true);
  check({.input = {4, 64, 14, 14}, .strides = {2, 2}}, {128, 64, 1, 1}, true);
}

// Goal: any combination of strides, dilations, pads, groups, bias, residual and activation. Method: seeded random
// shapes.
TEST(Conv, MatchesFormulaOnRandomShapes) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Case c;
    ConvDescription& d = c.description;
    const int64_t rank = RandomInt(random, 1, 2);
    d.groups = RandomInt(random, 1, 3);
    const int64_t group_channels = RandomInt(random, 1, 9);
    d.input = {RandomInt(random, 1, 2), d.groups * group_channels};
    Dims weights = {d.groups * RandomInt(random, 1, 9), group_channels};
    for (int64_t i = 0; i < rank; ++i) {
      weights.push_back(RandomInt(random, 1, 4));
      d.strides.push_back(RandomInt(random, 1, 3));
      d.dilations.push_back(RandomInt(random, 1, 2));
      d.pads_begin.push_back(RandomInt(random, 0, 2));
      d.pads_end.push_back(RandomInt(random, 0, 2));
      d.input.push_back(RandomInt(random, (weights.back() - 1) * d.dilations.back() + 1, 14));
    }
    d.residual = random() % 2 == 0;
    d.activation = random() % 2 == 0 ? Activation::kRelu : Activation::kNone;
    FillCase(c, weights, random() % 2 == 0, random);
    ExpectMatchesReference(c, random);
  }
}

// Goal: channels are not exchanged, which symmetric or constant weights would hide. Method: each input channel is one
// constant, filter m takes channel (m + 1) % C only, so that each output channel names the input channel it came from.
TEST(Conv, KeepsChannelsApart) {
  constexpr int64_t kChannels = 19, kSide = 5;
  std::vector<float> input, weights;
  for (int64_t c = 0; c < kChannels; ++c) input.insert(input.end(), kSide * kSide, static_cast<float>(c + 1));
  for (int64_t m = 0; m < kChannels; ++m) {
    for (int64_t c = 0; c < kChannels; ++c) weights.push_back(c == (m + 1) % kChannels ? 1.0f : 0.0f);
  }
  const ConvDescription d{.input = {1, kChannels, kSide, kSide},
                          .weights = ConstantOf("w", {kChannels, kChannels, 1, 1}, weights)};
  std::vector<float> expected;
  for (int64_t m = 0; m < kChannels; ++m) {
    expected.insert(expected.end(), kSide * kSide, static_cast<float>((m + 1) % kChannels + 1));
  }
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    EXPECT_EQ(RunKernel<float>(library->PrepareConv(d), Inputs(input), expected.size()), expected) << name;
  }
}

// Goal: residual and output in one memory give what two memories give. Method: one launch each way.
TEST(Conv, AddsResidualInPlace) {
  std::mt19937 random(5);
  for (const int64_t filters : {3, 16}) {
    Case c;
    c.description = {.input = {1, 8, 6, 6}, .residual = true, .activation = Activation::kRelu};
    FillCase(c, {filters, 8, 1, 1}, true, random);
    c.residual = RandomFloats(random, filters * 36);
    Libraries libraries;
    for (const auto& [name, library] : libraries.all()) {
      const GuardedBuffer input = GuardedBuffer::Of(c.input), output = GuardedBuffer::Of(c.residual);
      RunOver(library->PrepareConv(c.description), {&input, &output, &output});
      ExpectNear(output.Values<float>(), Reference(c, {1, filters, 6, 6}), 2e-5, name);
    }
  }
}

// Goal: buckets of one model share packed weights. Method: kernels for three batch sizes over one counting pool; each
// layout is packed once, and results stay right.
TEST(Conv, SharesPackedWeightsBetweenBuckets) {
  std::mt19937 random(9);
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    TestPackedWeights pool;
    Case c;
    c.description = {.input = {1, 16, 12, 12}, .pads_begin = {1, 1}, .pads_end = {1, 1}};
    FillCase(c, {16, 16, 3, 3}, true, random);
    c.description.packed_weights = &pool;
    std::vector<std::unique_ptr<Kernel>> kernels;
    int first = 0;
    for (const int64_t batch : {1, 2, 4}) {
      c.description.input[0] = batch;
      c.input = RandomFloats(random, CountOf(c.description.input));
      const Dims output = {batch, 16, 12, 12};
      absl::StatusOr<std::unique_ptr<Kernel>> kernel = library->PrepareConv(c.description);
      ExpectNear(RunKernel<float>(kernel, Inputs(c.input), CountOf(output)), Reference(c, output), 2e-5, name);
      if (batch == 1) first = pool.packed();
      kernels.push_back(*std::move(kernel));
    }
    EXPECT_EQ(first, 2) << name << ": weights and bias";
    EXPECT_EQ(pool.packed(), first) << name << ": larger buckets must not pack again";
  }
}

// Goal: the pool's failure is the caller's. Method: a pool without memory.
TEST(Conv, ReportsPoolFailure) {
  class EmptyPool final : public PackedWeights {
    absl::StatusOr<DeviceSpan> GetOrPack(const std::string&, const std::string&, size_t,
                                         absl::FunctionRef<absl::Status(std::span<std::byte>)>) override {
      return absl::ResourceExhaustedError("no memory");
    }
  } pool;
  std::mt19937 random(2);
  Case c;
  c.description = {.input = {1, 2, 4, 4}, .packed_weights = &pool};
  FillCase(c, {3, 2, 3, 3}, false, random);
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    EXPECT_THAT(library->PrepareConv(c.description), StatusIs(absl::StatusCode::kResourceExhausted)) << name;
  }
}

// Goal: descriptions come from files and are refused by name when they do not fit. Method: one thing wrong at a time.
TEST(Conv, RefusesInconsistentDescriptions) {
  std::mt19937 random(3);
  Case good;
  good.description = {.input = {1, 4, 8, 8}};
  FillCase(good, {6, 4, 3, 3}, true, random);
  Libraries libraries;
  EXPECT_OK(libraries.fast().PrepareConv(good.description));
  const auto expect = [&](const char* message, auto change) {
    ConvDescription d = good.description;
    change(d);
    for (const auto& [name, library] : libraries.all()) {
      EXPECT_THAT(library->PrepareConv(d), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << name;
    }
  };
  expect("spatial", [](ConvDescription& d) { d.input = {1, 4}; });
  expect("must not be empty", [](ConvDescription& d) { d.input = {0, 4, 8, 8}; });
  expect("must not be negative", [](ConvDescription& d) { d.input = {1, 4, -8, 8}; });
  expect("too large", [](ConvDescription& d) { d.input = {1 << 20, 4, 1 << 20, 1 << 20}; });
  expect("must have the rank", [](ConvDescription& d) { d.input = {1, 4, 8}; });
  expect("groups must divide", [](ConvDescription& d) { d.groups = 3; });
  expect("groups must divide", [](ConvDescription& d) { d.groups = 0; });
  expect("channels for input", [](ConvDescription& d) { d.groups = 2; });
  expect("does not fit input", [](ConvDescription& d) { d.dilations = {4, 1}; });
  expect("strides", [](ConvDescription& d) { d.strides = {0, 1}; });
  expect("strides must have 2 values", [](ConvDescription& d) { d.strides = {1}; });
  expect("pads", [](ConvDescription& d) { d.pads_begin = {-1, 0}; });
  expect("pads", [](ConvDescription& d) { d.pads_end = {std::numeric_limits<int64_t>::max(), 0}; });
  expect("must be FP32", [](ConvDescription& d) { d.weights.type = DataType::kFp64; });
  expect("bytes", [](ConvDescription& d) { d.weights.data = d.weights.data.first(8); });
  expect("bias must be [6]", [](ConvDescription& d) { d.bias->dims = {6, 1}; });
}

}  // namespace
}  // namespace sluice::gpu
