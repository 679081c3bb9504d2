// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Chains against a plain evaluation in double, and against the separate kernels that they stand for, in every type that
// the backend has.
#include "gpu/kernels/elementwise_chain.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;
using Steps = std::vector<ElementwiseStep>;
using Values = std::vector<std::vector<float>>;

double Reference(UnaryKind kind, double x, double alpha, double beta) {
  const auto clamp01 = [](double y) { return std::clamp(y, 0.0, 1.0); };
  switch (kind) {
    case UnaryKind::kAbs:
      return std::abs(x);
    case UnaryKind::kCeil:
      return std::ceil(x);
    case UnaryKind::kClip:
      return std::clamp(x, alpha, beta);
    case UnaryKind::kCos:
      return std::cos(x);
    case UnaryKind::kErf:
      return std::erf(x);
    case UnaryKind::kExp:
      return std::exp(x);
    case UnaryKind::kFloor:
      return std::floor(x);
    case UnaryKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case UnaryKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case UnaryKind::kHardSigmoid:
      return clamp01(alpha * x + beta);
    case UnaryKind::kHardSwish:
      return x * clamp01(x / 6 + 0.5);
    case UnaryKind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case UnaryKind::kLog:
      return std::log(x);
    case UnaryKind::kNeg:
      return -x;
    case UnaryKind::kReciprocal:
      return 1 / x;
    case UnaryKind::kRelu:
      return std::max(0.0, x);
    case UnaryKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryKind::kSign:
      return (x > 0) - (x < 0);
    case UnaryKind::kSin:
      return std::sin(x);
    case UnaryKind::kSqrt:
      return std::sqrt(x);
    case UnaryKind::kTanh:
      return std::tanh(x);
    default:
      return x;
  }
}

double Reference(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kPow:
      return std::pow(a, b);
    case BinaryKind::kMax:
      return std::max(a, b);
    case BinaryKind::kMin:
      return std::min(a, b);
    default:
      return std::fmod(a, b);
  }
}

Dims OutputOf(const ElementwiseChainDescription& d) {
  Dims output;
  for (const Dims& input : d.inputs) output = *BroadcastDims(output, input);
  return output;
}

/// Where element `index` of `output` is in a tensor of `dims` that broadcasts to it.
int64_t Place(const Dims& dims, const Dims& output, int64_t index) {
  int64_t place = 0, stride = 1;
  for (size_t i = 1; i <= output.size(); ++i) {
    const int64_t position = index % output[output.size() - i];
    index /= output[output.size() - i];
    if (i > dims.size()) break;
    place += dims[dims.size() - i] == 1 ? 0 : position * stride;
    stride *= dims[dims.size() - i];
  }
  return place;
}

std::vector<double> Reference(const ElementwiseChainDescription& d, const Values& inputs) {
  const Dims output = OutputOf(d);
  std::vector<double> results;
  for (int64_t i = 0; i < CountOf(output); ++i) {
    std::vector<double> values;
    for (size_t k = 0; k < inputs.size(); ++k) {
      values.push_back(inputs[k][static_cast<size_t>(Place(d.inputs[k], output, i))]);
    }
    for (const ElementwiseStep& step : d.steps) {
      const auto* const binary = std::get_if<BinaryKind>(&step.kind);
      values.push_back(binary != nullptr
                           ? Reference(*binary, values[step.a], values[step.b])
                           : Reference(std::get<UnaryKind>(step.kind), values[step.a], step.alpha, step.beta));
    }
    results.push_back(values.back());
  }
  return results;
}

class ElementwiseChain : public ::testing::Test {
 protected:
  KernelLibrary& library() { return libraries_.fast(); }

  std::vector<DataType> types() {
    if (!library().features().low_precision) return {DataType::kFp32};
    return {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  }

  std::vector<float> Run(ElementwiseChainDescription d, DataType type, const Values& inputs) {
    d.type = type;
    std::vector<GuardedBuffer> buffers;
    for (const std::vector<float>& input : inputs) buffers.push_back(BufferOf(type, input));
    return RunKernelOf(type, library().PrepareElementwiseChain(d), buffers, static_cast<size_t>(CountOf(OutputOf(d))));
  }

  /// In every type, against the evaluation in double over the same rounded numbers.
  void ExpectRight(const ElementwiseChainDescription& d, const Values& inputs, const std::string& what) {
    for (const DataType type : types()) {
      Values rounded;
      for (const std::vector<float>& input : inputs) rounded.push_back(RoundedTo(type, input));
      ExpectNear(Run(d, type, inputs), Reference(d, rounded), std::max(1e-5, RoundingOf(type)),
                 std::string(WireName(type)) + " " + what);
    }
  }

  /// The separate kernels, each over the whole shape.
  std::vector<float> RunSeparately(const ElementwiseChainDescription& d, const Values& inputs) {
    const Dims output = OutputOf(d);
    const auto count = static_cast<size_t>(CountOf(output));
    Values values;
    for (size_t k = 0; k < inputs.size(); ++k) {
      values.push_back(
          RunKernel<float>(library().PrepareExpand({.type = DataType::kFp32, .input = d.inputs[k], .output = output}),
                           Inputs(inputs[k]), count));
    }
    for (const ElementwiseStep& step : d.steps) {
      if (const auto* const binary = std::get_if<BinaryKind>(&step.kind)) {
        values.push_back(RunKernel<float>(library().PrepareBinary({.kind = *binary, .a = output, .b = output}),
                                          Inputs(values[step.a], values[step.b]), count));
      } else {
        const UnaryDescription unary{.kind = std::get<UnaryKind>(step.kind),
                                     .dims = output,
                                     .alpha = step.alpha,
                                     .beta = step.beta,
                                     .low = step.alpha,
                                     .high = step.beta};
        values.push_back(RunKernel<float>(library().PrepareUnary(unary), Inputs(values[step.a]), count));
      }
    }
    return values.back();
  }

  Libraries libraries_;
};

std::vector<float> Positive(std::vector<float> values) {
  for (float& x : values) x = std::abs(x) + 0.5f;
  return values;
}

TEST_F(ElementwiseChain, HasEveryKind) {
  // Goal: each kind computes its function within a chain, with lengths that fill packs and that do not. Method: each
  // between a product and a sum.
  std::mt19937 random(1);
  for (const Dims& dims : {Dims{13, 79}, Dims{4, 64}}) {
    const std::vector<float> x = RandomFloats(random, CountOf(dims)), y = RandomFloats(random, CountOf(dims));
    for (int k = static_cast<int>(UnaryKind::kAbs); k <= static_cast<int>(UnaryKind::kTanh); ++k) {
      const auto kind = static_cast<UnaryKind>(k);
      if (kind == UnaryKind::kNot) continue;
      const bool positive = kind == UnaryKind::kLog || kind == UnaryKind::kSqrt || kind == UnaryKind::kReciprocal;
      const ElementwiseChainDescription d{
          .inputs = {dims, dims},
          .steps = {{.kind = BinaryKind::kMul, .a = 0, .b = 1},
                    {.kind = kind, .a = 2, .alpha = kind == UnaryKind::kClip ? -0.25f : 0.5f, .beta = 0.5f},
                    {.kind = BinaryKind::kAdd, .a = 3, .b = 1}}};
      ExpectRight(d, positive ? Values{Positive(x), Positive(y)} : Values{x, y}, "unary kind " + std::to_string(k));
    }
    for (int k = static_cast<int>(BinaryKind::kAdd); k <= static_cast<int>(BinaryKind::kMod); ++k) {
      const ElementwiseChainDescription d{.inputs = {dims, dims},
                                          .steps = {{.kind = UnaryKind::kSqrt, .a = 0},
                                                    {.kind = static_cast<BinaryKind>(k), .a = 2, .b = 1},
                                                    {.kind = UnaryKind::kNeg, .a = 3}}};
      ExpectRight(d, {Positive(x), Positive(y)}, "binary kind " + std::to_string(k));
    }
  }
}

TEST_F(ElementwiseChain, OrdersOperands) {
  // Goal: operands keep their sides wherever they come from: an input, the step before, a kept result, twice the same.
  // Method: differences and quotients of all pairs.
  std::mt19937 random(2);
  const Dims dims = {257};
  const ElementwiseChainDescription d{.inputs = {dims, dims},
                                      .steps = {{.kind = BinaryKind::kSub, .a = 0, .b = 1},    // 2, kept
                                                {.kind = BinaryKind::kSub, .a = 1, .b = 2},    // 3, previous second
                                                {.kind = BinaryKind::kDiv, .a = 3, .b = 1},    // 4, previous first
                                                {.kind = BinaryKind::kSub, .a = 2, .b = 4},    // 5, kept first
                                                {.kind = BinaryKind::kSub, .a = 5, .b = 2},    // 6, kept second
                                                {.kind = BinaryKind::kMul, .a = 6, .b = 6},    // 7, twice previous
                                                {.kind = BinaryKind::kDiv, .a = 0, .b = 1},    // 8, inputs only
                                                {.kind = BinaryKind::kSub, .a = 8, .b = 7}}};  // two results
  ExpectRight(d, {RandomFloats(random, 257), Positive(RandomFloats(random, 257))}, "operands");
}

TEST_F(ElementwiseChain, TakesASingleInputAndStep) {
  // Goal: the smallest chains, with one element, with no dimension, and with none. Method: by hand.
  const Steps negate = {{.kind = UnaryKind::kNeg, .a = 0}};
  EXPECT_EQ(Run({.inputs = {{}}, .steps = negate}, DataType::kFp32, {{2}}), std::vector<float>{-2});
  EXPECT_EQ(Run({.inputs = {{3}}, .steps = negate}, DataType::kFp32, {{1, 2, 3}}), (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(Run({.inputs = {{0, 3}, {3}}, .steps = negate}, DataType::kFp32, {{}, {1, 2, 3}}), std::vector<float>());
  // A step may read one element of an input that others stretch.
  EXPECT_EQ(Run({.inputs = {{1}, {3}}, .steps = negate}, DataType::kFp32, {{7}, {1, 2, 3}}),
            (std::vector<float>{-7, -7, -7}));
}

/// A program of any shape whose results stay below 2^16: products have an input of at most 1 on one side.
ElementwiseChainDescription RandomProgram(std::mt19937& random) {
  ElementwiseChainDescription d;
  Dims output;
  for (int64_t i = RandomInt(random, 0, 4); i > 0; --i) output.push_back(RandomInt(random, 1, 3) * (i == 1 ? 8 : 3));
  if (!output.empty() && random() % 2 == 0) output.back() = RandomInt(random, 1, 40);
  for (int64_t k = RandomInt(random, 1, kMaxChainInputs); k > 0; --k) {
    Dims dims = output;
    for (int64_t& dim : dims) dim = random() % 4 == 0 ? 1 : dim;
    if (random() % 3 == 0 && !dims.empty()) dims.erase(dims.begin(), dims.begin() + RandomInt(random, 0, dims.size()));
    d.inputs.push_back(dims);
  }
  const auto inputs = static_cast<int64_t>(d.inputs.size());
  size_t waiting = 0;  // A bound on the results kept: those that a later step than the next was given.
  const int64_t steps = RandomInt(random, 1, kMaxChainSteps - 1);
  for (int64_t i = 0; i < steps; ++i) {
    constexpr UnaryKind kUnary[] = {UnaryKind::kAbs,  UnaryKind::kClip, UnaryKind::kHardSwish, UnaryKind::kLeakyRelu,
                                    UnaryKind::kRelu, UnaryKind::kNeg,  UnaryKind::kSigmoid,   UnaryKind::kTanh};
    constexpr BinaryKind kBinary[] = {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMax, BinaryKind::kMin,
                                      BinaryKind::kMul};
    ElementwiseStep step{.alpha = -0.75f, .beta = 2};
    const auto any = [&]() -> size_t {
      const int64_t value = RandomInt(random, 0, inputs + i - 1);
      if (value < inputs || value == inputs + i - 1 || ++waiting <= kMaxChainKept) return static_cast<size_t>(value);
      return static_cast<size_t>(inputs + i - 1);
    };
    step.a = random() % 2 == 0 && i > 0 ? static_cast<size_t>(inputs + i - 1) : any();
    if (random() % 2 == 0) {
      step.kind = kUnary[random() % std::size(kUnary)];
    } else {
      const BinaryKind kind = kBinary[random() % std::size(kBinary)];
      step.kind = kind;
      step.b = kind == BinaryKind::kMul ? static_cast<size_t>(RandomInt(random, 0, inputs - 1)) : any();
    }
    d.steps.push_back(step);
  }
  d.steps.push_back({.kind = UnaryKind::kClip, .a = static_cast<size_t>(inputs + steps - 1), .alpha = -99, .beta = 99});
  return d;
}

TEST_F(ElementwiseChain, RandomProgramsAgreeWithSeparateKernels) {
  // Goal: any program over any broadcast computes what its steps compute one by one; halves as FP32 over the same
  // numbers, rounded once. Method: seeded programs.
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ElementwiseChainDescription d = RandomProgram(random);
    Values inputs;
    for (const Dims& dims : d.inputs) inputs.push_back(RandomFloats(random, CountOf(dims)));
    for (const DataType type : types()) {
      Values rounded;
      for (const std::vector<float>& input : inputs) rounded.push_back(RoundedTo(type, input));
      ExpectNear(Run(d, type, inputs), Doubles(RunSeparately(d, rounded)), std::max(1e-5, RoundingOf(type)),
                 std::string(WireName(type)));
    }
    if (HasFailure()) break;
  }
}

TEST_F(ElementwiseChain, BroadcastsWithinRowsAndAcrossThem) {
  // Goal: operands that repeat along rows, along columns and in the middle, rows shorter and longer than a block of the
  // host's, and more elements than one thread takes. Method: (x * scale + shift) * gate - x against double.
  std::mt19937 random(3);
  const std::vector<std::vector<Dims>> shapes = {{{6, 2500}, {2500}, {}, {6, 1}},
                                                 {{40, 1024}, {1024}, {1}, {1, 1024}},
                                                 {{2, 12, 7, 9}, {12, 1, 1}, {9}, {2, 1, 7, 1}},
                                                 {{3000, 3}, {3}, {3000, 1}, {1}},
                                                 {{1, 5, 8}, {4, 1, 8}, {4, 5, 1}, {8}},
                                                 {{1}, {3, 1}, {1, 16}, {3, 16}}};
  for (const std::vector<Dims>& inputs : shapes) {
    const ElementwiseChainDescription d{.inputs = inputs,
                                        .steps = {{.kind = BinaryKind::kMul, .a = 0, .b = 1},
                                                  {.kind = BinaryKind::kAdd, .a = 4, .b = 2},
                                                  {.kind = BinaryKind::kMul, .a = 5, .b = 3},
                                                  {.kind = BinaryKind::kSub, .a = 6, .b = 0}}};
    Values values;
    for (const Dims& dims : inputs) values.push_back(RandomFloats(random, CountOf(dims)));
    ExpectRight(d, values, DimsToString(inputs[0]) + DimsToString(inputs[1]));
  }
}

TEST_F(ElementwiseChain, WorksInPlace) {
  // Goal: the output may be any input of its shape, also one that the first and the last step read, beside operands
  // that repeat. Method: each input's memory in turn, more than one block and one pack; against memory of its own.
  std::mt19937 random(4);
  for (const Dims& dims : {Dims{5, 1000}, Dims{5, 333}}) {
    const ElementwiseChainDescription d{.inputs = {dims, dims, {dims[1]}},
                                        .steps = {{.kind = BinaryKind::kMul, .a = 0, .b = 2},
                                                  {.kind = UnaryKind::kSigmoid, .a = 3},
                                                  {.kind = BinaryKind::kSub, .a = 4, .b = 1},
                                                  {.kind = BinaryKind::kAdd, .a = 5, .b = 0}}};
    Values inputs;
    for (const Dims& input : d.inputs) inputs.push_back(RandomFloats(random, CountOf(input)));
    for (const DataType type : types()) {
      const std::vector<float> expected = Run(d, type, inputs);
      ElementwiseChainDescription typed = d;
      typed.type = type;
      for (const size_t shared : {size_t{0}, size_t{1}}) {
        std::vector<GuardedBuffer> buffers;
        for (const std::vector<float>& input : inputs) buffers.push_back(BufferOf(type, input));
        RunOver(library().PrepareElementwiseChain(typed), {&buffers[0], &buffers[1], &buffers[2], &buffers[shared]});
        const std::vector<float> actual = type == DataType::kFp32
                                              ? buffers[shared].Values<float>()
                                              : FromHalfBits(type, buffers[shared].Values<uint16_t>());
        EXPECT_EQ(actual, expected) << WireName(type) << " over input " << shared;
      }
    }
  }
}

TEST_F(ElementwiseChain, SpansMayBeginAnywhere) {
  // Goal: spans that are aligned for their elements only. Method: each span in turn one element on; rows, and a
  // broadcast of whole packs.
  std::mt19937 random(5);
  for (const Dims& other : {Dims{6, 64}, Dims{6, 1}, Dims{64}}) {
    const ElementwiseChainDescription d{
        .inputs = {{6, 64}, other},
        .steps = {{.kind = BinaryKind::kSub, .a = 0, .b = 1}, {.kind = UnaryKind::kTanh, .a = 2}}};
    const Values inputs = {RandomFloats(random, 6 * 64), RandomFloats(random, CountOf(other))};
    const std::vector<float> expected = Run(d, DataType::kFp32, inputs);
    for (const size_t shifted : {size_t{0}, size_t{1}, size_t{2}}) {
      std::vector<GuardedBuffer> buffers;
      for (size_t k = 0; k < 2; ++k) buffers.push_back(GuardedBuffer::Of(inputs[k], k == shifted ? sizeof(float) : 0));
      // Nearly: packs and single elements are two kernels.
      ExpectNear(RunKernel<float>(library().PrepareElementwiseChain(d), buffers, expected.size(),
                                  shifted == 2 ? sizeof(float) : 0),
                 Doubles(expected), 1e-6, "span " + std::to_string(shifted));
    }
  }
}

TEST_F(ElementwiseChain, PassesNanOn) {
  // Goal: no step hides that a number is none. Method: by hand, through the steps that compare.
  const ElementwiseChainDescription d{.inputs = {{2}, {2}},
                                      .steps = {{.kind = BinaryKind::kMax, .a = 0, .b = 1},
                                                {.kind = UnaryKind::kClip, .a = 2, .alpha = -1, .beta = 1},
                                                {.kind = BinaryKind::kMin, .a = 1, .b = 3},
                                                {.kind = UnaryKind::kRelu, .a = 4}}};
  for (const DataType type : types()) {
    const std::vector<float> result = Run(d, type, {{NAN, 3}, {0.5f, 2}});
    EXPECT_TRUE(std::isnan(result[0])) << WireName(type);
    EXPECT_EQ(result[1], 1.0f) << WireName(type);
  }
}

TEST_F(ElementwiseChain, IsNamedForPeople) {
  // Goal: inspections and profiles say what a chain does. Method: the kernel's name.
  const auto kernel = library().PrepareElementwiseChain({.inputs = {{2, 3}, {3}},
                                                         .steps = {{.kind = BinaryKind::kMul, .a = 0, .b = 1},
                                                                   {.kind = BinaryKind::kAdd, .a = 2, .b = 1},
                                                                   {.kind = UnaryKind::kSigmoid, .a = 3}}});
  ASSERT_OK(kernel);
  EXPECT_EQ((*kernel)->name(), "elementwise mul,add,sigmoid [2,3]");
}

/// `count` tanh steps, then the sum of all but the last of them; so that many are kept.
ElementwiseChainDescription Keeping(size_t count) {
  ElementwiseChainDescription d{.inputs = {{5}}};
  for (size_t i = 0; i <= count; ++i) d.steps.push_back({.kind = UnaryKind::kTanh, .a = i});
  for (size_t i = 0; i < count; ++i) {
    d.steps.push_back({.kind = BinaryKind::kAdd, .a = d.steps.size(), .b = 1 + i});
  }
  return d;
}

TEST_F(ElementwiseChain, HoldsItsBounds) {
  // Goal: a chain as large as the bounds works, and one more of anything is refused in words. Method: inputs, steps,
  // results kept, dimensions that cannot be merged.
  std::mt19937 random(6);
  ElementwiseChainDescription d{.inputs = std::vector<Dims>(kMaxChainInputs, Dims{9})};
  for (size_t i = 1; i < kMaxChainInputs; ++i) {
    d.steps.push_back({.kind = BinaryKind::kSub, .a = i == 1 ? 0 : kMaxChainInputs + i - 2, .b = i});
  }
  while (d.steps.size() < kMaxChainSteps) {
    d.steps.push_back({.kind = UnaryKind::kTanh, .a = kMaxChainInputs + d.steps.size() - 1});
  }
  Values inputs;
  for (size_t k = 0; k < kMaxChainInputs; ++k) inputs.push_back(RandomFloats(random, 9));
  ExpectRight(d, inputs, "as large as can be");
  ExpectRight(Keeping(kMaxChainKept), {RandomFloats(random, 5)}, "as many kept as can be");
  const auto expect_refused = [&](const ElementwiseChainDescription& wrong, const char* words) {
    EXPECT_THAT(library().PrepareElementwiseChain(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  expect_refused(Keeping(kMaxChainKept + 1), "at most 4 results kept");
  d.steps.push_back({.kind = UnaryKind::kTanh, .a = 0});
  expect_refused(d, "1 to 16 steps, got 17");
  d.steps.resize(2);
  d.inputs.push_back({9});
  expect_refused(d, "1 to 6 inputs, got 7");
  ElementwiseChainDescription woven{.inputs = {{2, 1, 2, 1, 2, 1, 2, 1}, {1, 2, 1, 2, 1, 2, 1, 2}},
                                    .steps = {{.kind = BinaryKind::kSub, .a = 0, .b = 1}}};
  ExpectRight(woven, {RandomFloats(random, 16), RandomFloats(random, 16)}, "as many dimensions as can be");
  woven.inputs[0].push_back(2);
  woven.inputs[1].push_back(1);
  expect_refused(woven, "at most 8 dimensions");
}

TEST_F(ElementwiseChain, RefusesInconsistentDescriptions) {
  // Goal: descriptions are not trusted. Method: one thing wrong at a time.
  const auto refusal = [&](const std::vector<Dims>& inputs, const Steps& steps, DataType type = DataType::kFp32) {
    return library().PrepareElementwiseChain({.type = type, .inputs = inputs, .steps = steps}).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const Steps tanh = {{.kind = UnaryKind::kTanh, .a = 0}};
  EXPECT_THAT(refusal({}, tanh), StatusIs(kInvalid, HasSubstr("got 0")));
  EXPECT_THAT(refusal({{2}}, {}), StatusIs(kInvalid, HasSubstr("got 0")));
  EXPECT_THAT(refusal({{-2}}, tanh), StatusIs(kInvalid, HasSubstr("negative")));
  EXPECT_THAT(refusal({{2}, {3}}, tanh), StatusIs(kInvalid, HasSubstr("broadcast")));
  EXPECT_THAT(refusal({{2}}, {{.kind = UnaryKind::kTanh, .a = 1}}), StatusIs(kInvalid, HasSubstr("step 0")));
  EXPECT_THAT(refusal({{2}}, {{.kind = BinaryKind::kAdd, .a = 0, .b = 9}}), StatusIs(kInvalid, HasSubstr("got 9")));
  EXPECT_THAT(refusal({{2}}, {{.kind = UnaryKind::kNot}}), StatusIs(kInvalid, HasSubstr("not")));
  EXPECT_THAT(refusal({{2}}, {{.kind = static_cast<UnaryKind>(200)}}), StatusIs(kInvalid, HasSubstr("kind")));
  EXPECT_THAT(refusal({{2}}, {{.kind = BinaryKind::kLess}}), StatusIs(kInvalid, HasSubstr("arithmetic")));
  EXPECT_THAT(refusal({{2}}, {{.kind = UnaryKind::kClip, .alpha = 2, .beta = 1}}),
              StatusIs(kInvalid, HasSubstr("low 2")));
  EXPECT_THAT(refusal({{2}}, tanh, DataType::kInt32), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("INT32")));
}

}  // namespace
}  // namespace sluice::gpu
