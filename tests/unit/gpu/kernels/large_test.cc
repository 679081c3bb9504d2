// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Tensors of many blocks, where a backend divides its work, and spans that are not aligned to more than an element.
// Each kernel of the library under test is compared with the host's plain loops, which the other tests check.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <type_traits>

#include "base/clock.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/host_library.h"
#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using Prepared = absl::StatusOr<std::unique_ptr<Kernel>>;
using Prepare = std::function<Prepared(KernelLibrary&)>;

/// Bytes of an input and the size of its elements.
struct Input {
  std::vector<std::byte> bytes;
  size_t element_bytes;
};

template <class T>
Input InputOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{bytes.begin(), bytes.end()}, sizeof(T)};
}

Input Floats(int64_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  return InputOf(RandomFloats(random, count));
}

template <class T>
Input Integers(int64_t count, int64_t low, int64_t high, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(RandomInt(random, low, high));
  return InputOf(values);
}

std::vector<GuardedBuffer> BuffersOf(const std::vector<Input>& inputs, size_t shift_elements) {
  std::vector<GuardedBuffer> buffers;
  for (const Input& input : inputs) {
    buffers.push_back(GuardedBuffer::Of(input.bytes, shift_elements * input.element_bytes));
  }
  return buffers;
}

/// What the plain loops make of the inputs.
template <class Out>
std::vector<Out> PlainResult(const Prepare& prepare, const std::vector<Input>& inputs, int64_t count) {
  static const MonotonicClock clock;
  const std::unique_ptr<KernelLibrary> library = MakeHostKernelLibrary(clock, {.use_onednn = false});
  const Prepared kernel = prepare(*library);
  EXPECT_OK(kernel);
  if (!kernel.ok()) return {};
  const std::vector<GuardedBuffer> buffers = BuffersOf(inputs, 0);
  std::vector<DeviceSpan> spans;
  for (const GuardedBuffer& buffer : buffers) spans.push_back(buffer.span());
  const GuardedBuffer output(static_cast<size_t>(count) * sizeof(Out));
  const GuardedBuffer workspace((*kernel)->workspace_bytes());
  spans.push_back(output.span());
  EXPECT_OK(static_cast<const host::HostKernel&>(**kernel).Run({spans, workspace.span()}));
  return output.Values<Out>();
}

template <class Out>
void ExpectClose(const std::vector<Out>& actual, const std::vector<Out>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (tolerance == 0) {
      ASSERT_EQ(actual[i], expected[i]) << what << ", element " << i;
    } else {
      const double exact = static_cast<double>(expected[i]);
      ASSERT_NEAR(static_cast<double>(actual[i]), exact, tolerance * (1.0 + std::abs(exact)))
          << what << ", element " << i;
    }
  }
}

/// Runs the default library's kernel over aligned spans and over spans shifted by one element.
template <class Out>
void ExpectLikePlainLoops(const Prepare& prepare, const std::vector<Input>& inputs, int64_t count,
                          double tolerance = 0) {
  Libraries libraries;
  const std::vector<Out> expected = PlainResult<Out>(prepare, inputs, count);
  for (const size_t shift : {size_t{0}, size_t{1}}) {
    const Prepared kernel = prepare(libraries.fast());
    ExpectClose(RunKernel<Out>(kernel, BuffersOf(inputs, shift), expected.size(), shift * sizeof(Out)), expected,
                tolerance, (kernel.ok() ? (*kernel)->name() : "") + (shift == 0 ? "" : ", shifted"));
  }
}

/// The same in place: the output's memory is that of input `place`, which has the output's shape.
void ExpectSameInPlace(const Prepare& prepare, const std::vector<Input>& inputs, size_t place, int64_t count,
                       double tolerance) {
  Libraries libraries;
  const std::vector<float> expected = PlainResult<float>(prepare, inputs, count);
  const std::vector<GuardedBuffer> buffers = BuffersOf(inputs, 0);
  std::vector<const GuardedBuffer*> spans;
  for (const GuardedBuffer& buffer : buffers) spans.push_back(&buffer);
  spans.push_back(&buffers[place]);
  RunOver(prepare(libraries.fast()), spans);
  ExpectClose(buffers[place].Values<float>(), expected, tolerance, "in place");
}

// Goal: elementwise kernels over more than one wave, with a tail that is no whole vector. Method: see above.
TEST(Large, Elementwise) {
  constexpr int64_t kCount = (1 << 20) + 3;
  for (const UnaryKind kind : {UnaryKind::kRelu, UnaryKind::kGelu, UnaryKind::kSigmoid, UnaryKind::kIdentity}) {
    const auto prepare = [&](KernelLibrary& l) { return l.PrepareUnary({.kind = kind, .dims = {kCount}}); };
    ExpectLikePlainLoops<float>(prepare, {Floats(kCount)}, kCount, 1e-6);
    ExpectSameInPlace(prepare, {Floats(kCount)}, 0, kCount, 1e-6);
  }
  const auto cast = [&](DataType from, DataType to) {
    return [=](KernelLibrary& l) { return l.PrepareCast({.from = from, .to = to, .dims = {kCount}}); };
  };
  ExpectLikePlainLoops<float>(cast(DataType::kBool, DataType::kFp32), {Integers<uint8_t>(kCount, 0, 2)}, kCount);
  ExpectLikePlainLoops<float>(cast(DataType::kInt32, DataType::kFp32), {Integers<int32_t>(kCount, -1000000000, 99)},
                              kCount);
  ExpectLikePlainLoops<int64_t>(cast(DataType::kInt32, DataType::kInt64), {Integers<int32_t>(kCount, -9, 99)}, kCount);
  ExpectLikePlainLoops<uint16_t>(cast(DataType::kFp32, DataType::kFp16), {Floats(kCount)}, kCount);
}

// Goal: equal shapes, single numbers and every kind of broadcast. Method: see above; with an activation.
TEST(Large, Binary) {
  const auto check = [&](const Dims& a, const Dims& b) {
    const int64_t count = CountOf(*BroadcastDims(a, b));
    const auto prepare = [&](KernelLibrary& l) {
      return l.PrepareBinary({.kind = BinaryKind::kSub, .a = a, .b = b, .activation = Activation::kRelu});
    };
    const std::vector<Input> inputs = {Floats(CountOf(a), 1), Floats(CountOf(b), 2)};
    ExpectLikePlainLoops<float>(prepare, inputs, count);
    if (CountOf(a) == count) ExpectSameInPlace(prepare, inputs, 0, count, 1e-7);
    if (CountOf(b) == count) ExpectSameInPlace(prepare, inputs, 1, count, 1e-7);
  };
  check({1048579}, {1048579});
  check({1048579}, {1});
  check({}, {1048579});
  check({2, 64, 90, 91}, {64, 1, 1});
  check({3000, 514}, {514});
  check({3000, 1}, {1, 514});
  check({2, 1, 1030, 5, 1}, {3, 1, 1, 77});
  const BinaryDescription equal{
      .kind = BinaryKind::kEqual, .type = DataType::kInt32, .a = {2, 2048, 1}, .b = {1, 1, 257}};
  ExpectLikePlainLoops<uint8_t>([&](KernelLibrary& l) { return l.PrepareBinary(equal); },
                                {Integers<int32_t>(4096, 0, 256), Integers<int32_t>(257, 0, 256)}, 4096 * 257);
  const WhereDescription where{.type = DataType::kFp32, .condition = {1200, 1}, .x = {1200, 900}, .y = {}};
  ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PrepareWhere(where); },
                              {Integers<uint8_t>(1200, 0, 1), Floats(1080000), Floats(1)}, 1080000);
}

// Goal: reductions of one long row, of many rows, of columns and of interleaved dimensions. Method: see above.
TEST(Large, Reduce) {
  const auto check = [&](const Dims& input, const Dims& axes) {
    const int64_t outputs = CountOf(*ReduceOutputDims({.input = input, .axes = axes}, true));
    for (const ReduceKind kind : {ReduceKind::kMean, ReduceKind::kMax, ReduceKind::kL2}) {
      ExpectLikePlainLoops<float>(
          [&](KernelLibrary& l) { return l.PrepareReduce({.kind = kind, .input = input, .axes = axes}); },
          {Floats(CountOf(input))}, outputs, kind == ReduceKind::kMax ? 0 : 1e-6);
    }
    ExpectLikePlainLoops<int32_t>(
        [&](KernelLibrary& l) { return l.PrepareReduce({.type = DataType::kInt32, .input = input, .axes = axes}); },
        {Integers<int32_t>(CountOf(input), -2000000000, 2000000000)}, outputs);
  };
  check({1048577}, {0});
  check({3, 400001}, {1});
  check({70, 2000}, {1});
  check({30000, 49}, {1});
  check({200000, 3}, {1});
  check({70001, 33}, {0});
  check({70001, 3}, {0});
  check({5, 3000, 40}, {1});
  check({900, 3, 700}, {1});
  check({40, 50, 30, 20}, {1, 3});
  check({40, 50, 30, 20}, {0, 2});
  check({2, 300, 2, 900}, {1, 3});
}

// Goal: places of the largest and smallest among many, with many equal ones. Method: see above.
TEST(Large, ArgReduce) {
  const auto check = [&](const Dims& input, int64_t axis) {
    const int64_t outputs = CountOf(input) / input[static_cast<size_t>(axis)];
    for (const bool min : {false, true}) {
      for (const bool last : {false, true}) {
        ExpectLikePlainLoops<int64_t>(
            [&](KernelLibrary& l) {
              return l.PrepareArgReduce(
                  {.min = min, .type = DataType::kInt32, .input = input, .axis = axis, .select_last_index = last});
            },
            {Integers<int32_t>(CountOf(input), 0, 1000)}, outputs);
      }
    }
  };
  check({3, 400001}, 1);
  check({70, 2000}, 1);
  check({20000, 30}, 1);
  check({200, 300, 20}, 1);
  check({9000, 50}, 0);
}

// Goal: normalisations with rows for a few threads, a warp, a block and a large block, and columns. Method: see above.
TEST(Large, Normalize) {
  const auto softmax = [&](const Dims& dims, int64_t axis) {
    for (const bool log : {false, true}) {
      const auto prepare = [&](KernelLibrary& l) { return l.PrepareSoftmax({.dims = dims, .axis = axis, .log = log}); };
      ExpectLikePlainLoops<float>(prepare, {Floats(CountOf(dims))}, CountOf(dims), 2e-6);
      ExpectSameInPlace(prepare, {Floats(CountOf(dims))}, 0, CountOf(dims), 2e-6);
    }
  };
  softmax({5000, 214}, 1);
  softmax({100000, 3}, 1);
  softmax({300, 3001}, 1);
  softmax({7, 50001}, 1);
  softmax({40, 300, 50}, 1);
  softmax({3, 20001, 5}, 1);
  softmax({9000, 97}, 0);
  const auto layer_norm = [&](const Dims& dims, int64_t axis) {
    int64_t length = 1;
    for (size_t i = static_cast<size_t>(axis); i < dims.size(); ++i) length *= dims[i];
    const auto prepare = [&](KernelLibrary& l) { return l.PrepareLayerNorm({.input = dims, .axis = axis}); };
    const std::vector<Input> inputs = {Floats(CountOf(dims)), Floats(length, 2), Floats(length, 3)};
    ExpectLikePlainLoops<float>(prepare, inputs, CountOf(dims), 1e-5);
    ExpectSameInPlace(prepare, inputs, 0, CountOf(dims), 1e-5);
  };
  layer_norm({3000, 257}, 1);
  layer_norm({60000, 9}, 1);
  layer_norm({200, 64, 40}, 1);
  layer_norm({3, 256, 512}, 1);
  for (const Dims& dims : {Dims{4, 64, 60, 60}, Dims{3, 70, 61, 61}, Dims{5000, 100}}) {
    const auto prepare = [&](KernelLibrary& l) {
      return l.PrepareBatchNorm({.input = dims, .epsilon = 2.0f, .activation = Activation::kRelu});
    };
    const std::vector<Input> inputs = {Floats(CountOf(dims)), Floats(dims[1], 2), Floats(dims[1], 3),
                                       Floats(dims[1], 4), Floats(dims[1], 5)};
    ExpectLikePlainLoops<float>(prepare, inputs, CountOf(dims), 1e-5);
    ExpectSameInPlace(prepare, inputs, 0, CountOf(dims), 1e-5);
  }
}

// Goal: transposes that go through tiles and those that do not, with whole and partial tiles. Method: see above.
TEST(Large, Transpose) {
  const auto check = [&](const Dims& input, const Dims& permutation) {
    ExpectLikePlainLoops<float>(
        [&](KernelLibrary& l) { return l.PrepareTranspose({.input = input, .permutation = permutation}); },
        {Floats(CountOf(input))}, CountOf(input));
  };
  check({3, 256, 512}, {0, 2, 1});
  check({1025, 1023}, {1, 0});
  check({400000, 3}, {1, 0});
  check({3, 400000}, {1, 0});
  check({60, 9, 31, 30}, {0, 2, 1, 3});
  check({60, 8, 31, 32}, {0, 2, 1, 3});
  check({33, 70, 40, 9}, {3, 1, 2, 0});
  check({33, 70, 40, 9}, {2, 0, 3, 1});
  ExpectLikePlainLoops<int64_t>(
      [&](KernelLibrary& l) {
        return l.PrepareTranspose({.type = DataType::kInt64, .input = {700, 801}, .permutation = {1, 0}});
      },
      {Integers<int64_t>(700 * 801, 0, 1 << 20)}, 700 * 801);
  ExpectLikePlainLoops<uint8_t>(
      [&](KernelLibrary& l) {
        return l.PrepareTranspose({.type = DataType::kUint8, .input = {5, 400, 501}, .permutation = {0, 2, 1}});
      },
      {Integers<uint8_t>(5 * 400 * 501, 0, 255)}, 5 * 400 * 501);
}

// Goal: joining few and very many pieces, of widths that do and do not fill vectors. Method: see above.
TEST(Large, Concat) {
  for (const int64_t pieces : {2, 3, 64, 65, 150}) {
    for (const int64_t tail : {1, 4}) {
      for (const int64_t axis : {0, 1}) {
        ConcatDescription d{.axis = axis};
        std::vector<Input> inputs;
        int64_t count = 0;
        for (int64_t i = 0; i < pieces; ++i) {
          d.inputs.push_back(axis == 1 ? Dims{600, i * 7 % 5, tail} : Dims{i * 7 % 50, 30, tail});
          inputs.push_back(Floats(CountOf(d.inputs.back()), static_cast<unsigned>(i)));
          count += CountOf(d.inputs.back());
        }
        ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PrepareConcat(d); }, inputs, count);
      }
    }
  }
}

// Goal: the other kernels that move. Method: see above.
TEST(Large, Movement) {
  const auto slice = [&](const SliceDescription& d) {
    ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PrepareSlice(d); }, {Floats(CountOf(d.input))},
                                CountOf(d.output));
  };
  slice({.input = {1000, 1200}, .starts = {10, 4}, .steps = {1, 1}, .output = {980, 1096}});
  slice({.input = {1000, 1200}, .starts = {10, 3}, .steps = {1, 1}, .output = {980, 1001}});
  slice({.input = {1000, 1200}, .starts = {999, 1199}, .steps = {-2, -1}, .output = {500, 1200}});
  slice({.input = {2000, 601}, .starts = {3, 0}, .steps = {1, 1}, .output = {1990, 601}});
  const auto expand = [&](const ExpandDescription& d) {
    ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PrepareExpand(d); }, {Floats(CountOf(d.input))},
                                CountOf(d.output));
  };
  expand({.input = {1, 1000}, .output = {1100, 1000}});
  expand({.input = {1100, 1}, .output = {1100, 1001}});
  expand({.input = {1}, .output = {1048577}});
  for (const int64_t width : {64, 33, 1}) {
    ExpectLikePlainLoops<float>(
        [&](KernelLibrary& l) {
          return l.PrepareGather({.data = {258, width}, .index_type = DataType::kInt32, .indices = {4, 2048}});
        },
        {Floats(258 * width), Integers<int32_t>(8192, -300, 300)}, 8192 * width);
  }
  ExpectLikePlainLoops<float>(
      [&](KernelLibrary& l) {
        return l.PrepareGather({.data = {100, 70, 30}, .indices = {200}, .axis = 1});
      },
      {Floats(210000), Integers<int64_t>(200, -70, 69)}, 600000);
  for (const int64_t count : {3000000, 3000005}) {
    ExpectLikePlainLoops<uint8_t>(
        [&](KernelLibrary& l) { return l.PrepareCopy({.size_bytes = static_cast<size_t>(count)}); },
        {Integers<uint8_t>(count, 0, 255)}, count);
  }
  const uint16_t half = 0x3c01;
  const auto bytes = std::as_bytes(std::span(&half, 1));
  const FillDescription fill{.type = DataType::kFp16, .dims = {1048579}, .value = {bytes.begin(), bytes.end()}};
  ExpectLikePlainLoops<uint16_t>([&](KernelLibrary& l) { return l.PrepareFill(fill); }, {}, 1048579);
}

// Goal: pooling as ResNet-50 and Magika do it. Method: see above.
TEST(Large, Pool) {
  const auto pool = [&](const PoolDescription& d) {
    ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PreparePool(d); }, {Floats(CountOf(d.input))},
                                CountOf(*PoolOutputDims(d)), d.kind == PoolKind::kMax ? 0 : 1e-6);
  };
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    pool({.kind = kind,
          .input = {2, 64, 112, 112},
          .kernel = {3, 3},
          .strides = {2, 2},
          .pads_begin = {1, 1},
          .pads_end = {1, 1}});
    pool({.kind = kind, .input = {2, 300, 512, 1}, .kernel = {4, 1}, .strides = {4, 1}});
    pool({.kind = kind, .input = {2, 30, 5000}, .kernel = {5000}});
    pool({.kind = kind, .input = {1, 5, 30, 40, 50}, .kernel = {2, 3, 4}, .count_include_pad = true});
    for (const Dims& input : {Dims{8, 2048, 7, 7}, Dims{2, 512, 512, 1}, Dims{1, 2, 700, 700}}) {
      ExpectLikePlainLoops<float>([&](KernelLibrary& l) { return l.PrepareGlobalPool({.kind = kind, .input = input}); },
                                  {Floats(CountOf(input))}, input[0] * input[1], kind == PoolKind::kMax ? 0 : 1e-6);
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
