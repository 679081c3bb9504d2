// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of sums against the formula in double, in FP32 and, where the backend has them, halves.
#include <algorithm>
#include <cmath>
#include <span>

#include "gpu/kernels/normalize.h"
#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

/// A description with values for its spans, and what should come out.
struct Problem {
  LayerNormDescription description;
  std::vector<std::vector<float>> values = {};     ///< Of each addend or its table, as they are in the type.
  std::vector<std::vector<int64_t>> indices = {};  ///< Of each addend; empty for none.
  std::vector<float> scale = {}, bias = {};
  std::vector<double> output = {}, sum = {};
};

void Expect(Problem& p, int64_t length) {
  const LayerNormDescription& d = p.description;
  p.sum.assign(static_cast<size_t>(CountOf(d.input)), 0);
  for (size_t k = 0; k < p.values.size(); ++k) {
    for (size_t i = 0; i < p.sum.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / length, column = static_cast<int64_t>(i) % length;
      int64_t at = row % (static_cast<int64_t>(p.values[k].size()) / length);
      if (!p.indices[k].empty()) {
        const int64_t rows = d.addends[k].table_rows;
        at = p.indices[k][static_cast<size_t>(row) % p.indices[k].size()];
        at = std::clamp<int64_t>(at < 0 ? at + rows : at, 0, rows - 1);
      }
      p.sum[i] += p.values[k][static_cast<size_t>(at * length + column)];
    }
  }
  for (size_t begin = 0; begin < p.sum.size(); begin += static_cast<size_t>(length)) {
    const std::span<const double> row(p.sum.data() + begin, static_cast<size_t>(length));
    double mean = 0, variance = 0;
    for (const double x : row) mean += x / static_cast<double>(length);
    for (const double x : row) variance += (x - mean) * (x - mean) / static_cast<double>(length);
    const double factor = 1 / std::sqrt(variance + static_cast<double>(d.epsilon));
    for (size_t i = 0; i < row.size(); ++i) {
      p.output.push_back((row[i] - mean) * factor * p.scale[i] + (d.has_bias ? p.bias[i] : 0));
    }
  }
}

/// Values around a mean that would drown a naive variance, and beside which a sum rounded to halves would lose the
/// others. Indices count from either end, and some lie outside.
Problem MakeProblem(LayerNormDescription d, unsigned seed = 1) {
  std::mt19937 random(seed);
  const auto first = static_cast<size_t>(d.axis < 0 ? d.axis + static_cast<int64_t>(d.input.size()) : d.axis);
  const int64_t length = CountOf(Dims(d.input.begin() + static_cast<std::ptrdiff_t>(first), d.input.end()));
  Problem p{.description = d, .scale = RandomFloats(random, length), .bias = RandomFloats(random, length)};
  std::vector<LayerNormAddend> addends = d.addends;
  if (addends.empty()) addends.push_back({.dims = d.input});
  for (const LayerNormAddend& addend : addends) {
    const int64_t rows = CountOf(addend.dims) / length;
    std::vector<float> values =
        RandomFloats(random, addend.table_rows > 0 ? addend.table_rows * length : rows * length);
    if (p.values.empty()) {
      for (float& value : values) value += 64;
    }
    p.values.push_back(RoundedTo(d.type, values));
    std::vector<int64_t>& indices = p.indices.emplace_back();
    for (int64_t i = 0; i < rows && addend.table_rows > 0; ++i) {
      indices.push_back(RandomInt(random, -addend.table_rows - 2, addend.table_rows + 2));
    }
  }
  Expect(p, length);
  return p;
}

std::vector<GuardedBuffer> InputsOf(const Problem& p, size_t shift_elements = 0) {
  std::vector<GuardedBuffer> inputs;
  const size_t element_bytes = p.description.type == DataType::kFp32 ? 4 : 2;
  for (size_t k = 0; k < p.values.size(); ++k) {
    inputs.push_back(
        p.description.type == DataType::kFp32
            ? GuardedBuffer::Of(p.values[k], shift_elements * element_bytes)
            : GuardedBuffer::Of(HalfBits(p.description.type, p.values[k]), shift_elements * element_bytes));
    if (p.indices[k].empty()) continue;
    const bool narrow = p.description.addends[k].index_type == DataType::kInt32;
    inputs.push_back(narrow ? GuardedBuffer::Of(std::vector<int32_t>(p.indices[k].begin(), p.indices[k].end()))
                            : GuardedBuffer::Of(p.indices[k]));
  }
  inputs.push_back(GuardedBuffer::Of(p.scale));
  if (p.description.has_bias) inputs.push_back(GuardedBuffer::Of(p.bias));
  return inputs;
}

std::vector<float> ValuesIn(DataType type, const GuardedBuffer& buffer) {
  return type == DataType::kFp32 ? buffer.Values<float>() : FromHalfBits(type, buffer.Values<uint16_t>());
}

std::string NameOf(const Problem& p) {
  std::string name = std::string(WireName(p.description.type)) + " " + DimsToString(p.description.input);
  for (const LayerNormAddend& addend : p.description.addends) name += " + " + DimsToString(addend.dims);
  return name;
}

void ExpectRight(const Problem& p, const GuardedBuffer& output, const GuardedBuffer* sum) {
  const DataType type = p.description.type;
  const bool whole = type == DataType::kFp32;
  ExpectNear(ValuesIn(type, output), p.output, whole ? 3e-5 : 2 * RoundingOf(type), NameOf(p));
  if (sum != nullptr) ExpectNear(ValuesIn(type, *sum), p.sum, RoundingOf(type) / 2, NameOf(p) + ", sum");
}

class LayerNorm : public ::testing::Test {
 protected:
  std::vector<DataType> types() {
    if (!libraries_.fast().features().low_precision) return {DataType::kFp32};
    return {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  }
  /// Over memory of its own.
  void Check(const Problem& p, size_t shift_elements = 0) {
    const std::vector<GuardedBuffer> inputs = InputsOf(p, shift_elements);
    const size_t element_bytes = p.description.type == DataType::kFp32 ? 4 : 2;
    const GuardedBuffer output(p.output.size() * element_bytes, shift_elements * element_bytes);
    const GuardedBuffer sum(p.sum.size() * element_bytes, shift_elements * element_bytes);
    std::vector<const GuardedBuffer*> buffers;
    for (const GuardedBuffer& input : inputs) buffers.push_back(&input);
    buffers.push_back(&output);
    if (p.description.writes_sum) buffers.push_back(&sum);
    RunOver(libraries_.fast().PrepareLayerNorm(p.description), buffers);
    ExpectRight(p, output, p.description.writes_sum ? &sum : nullptr);
  }
  Libraries libraries_;
};

/// Addends of [2, 3, length] in every form.
std::vector<std::vector<LayerNormAddend>> AddendForms(int64_t length) {
  const LayerNormAddend whole{.dims = {2, 3, length}}, position{.dims = {1, 3, length}}, row{.dims = {length}};
  const LayerNormAddend word{.dims = {2, 3, length}, .table_rows = 7};
  const LayerNormAddend segment{.dims = {2, 3, length}, .table_rows = 2, .index_type = DataType::kInt32};
  const LayerNormAddend place{.dims = {3, length}, .table_rows = 5};
  return {{},     {whole, whole}, {position, whole},         {row, whole, {.dims = {3, length}}},
          {word}, {place, word},  {word, position, segment}, {word, segment, place, whole}};
}

TEST_F(LayerNorm, NormalisesSumsOfEveryForm) {
  // Goal: one to four addends, whole, broadcast or gathered, with and without bias and sum, for rows of every length
  // that a kernel treats on its own. Method: against the formula.
  for (const DataType type : types()) {
    for (const int64_t length : {1, 7, 100, 128, 256, 384, 512, 768, 1024, 1280, 2048, 3000, 9000}) {
      for (const std::vector<LayerNormAddend>& addends : AddendForms(length)) {
        for (const bool has_bias : {true, false}) {
          for (const bool writes_sum : {true, false}) {
            Check(MakeProblem({.type = type,
                               .input = {2, 3, length},
                               .has_bias = has_bias,
                               .addends = addends,
                               .writes_sum = writes_sum}));
          }
        }
      }
    }
  }
}

TEST_F(LayerNorm, NormalisesOverSeveralDimensions) {
  // Goal: any axis, where addends have at least what is normalised. Method: against the formula.
  const Dims dims = {3, 4, 25};
  for (const DataType type : types()) {
    for (const int64_t axis : {-1, 2, 1, 0}) {
      Check(MakeProblem({.type = type, .input = dims, .axis = axis}));
      Check(MakeProblem({.type = type, .input = dims, .axis = axis, .addends = {{.dims = dims}, {.dims = dims}}}));
    }
    const LayerNormAddend matrix{.dims = {4, 25}}, table{.dims = {3, 4, 25}, .table_rows = 6};
    Check(MakeProblem({.type = type, .input = dims, .axis = 1, .addends = {matrix, table}, .writes_sum = true}));
  }
}

TEST_F(LayerNorm, TakesManyRowsAndSpansOfAnyAlignment) {
  // Goal: more rows than threads, and spans that begin at any element. Method: against the formula.
  for (const DataType type : types()) {
    for (const int64_t length : {8, 768}) {
      const Problem p = MakeProblem({.type = type,
                                     .input = {3, 701, length},
                                     .addends = {{.dims = {701, length}}, {.dims = {3, 701, length}}},
                                     .writes_sum = true});
      Check(p);
      Check(p, 1);
    }
  }
}

TEST_F(LayerNorm, WritesOverItsAddends) {
  // Goal: output and sum may be the memory of two addends, in either order. Method: the addends' buffers named twice.
  for (const DataType type : types()) {
    for (const int64_t length : {100, 768, 3000}) {
      const LayerNormAddend whole{.dims = {2, 3, length}}, position{.dims = {3, length}};
      const Problem p =
          MakeProblem({.type = type, .input = {2, 3, length}, .addends = {whole, position, whole}, .writes_sum = true});
      for (const size_t over : {size_t{0}, size_t{2}}) {
        const std::vector<GuardedBuffer> inputs = InputsOf(p);
        std::vector<const GuardedBuffer*> buffers;
        for (const GuardedBuffer& input : inputs) buffers.push_back(&input);
        const GuardedBuffer* const output = buffers[over];
        const GuardedBuffer* const sum = buffers[2 - over];
        buffers.insert(buffers.end(), {output, sum});
        RunOver(libraries_.fast().PrepareLayerNorm(p.description), buffers);
        ExpectRight(p, *output, sum);
      }
      LayerNormDescription alone = p.description;
      alone.writes_sum = false;
      for (const size_t over : {size_t{0}, size_t{2}}) {
        const std::vector<GuardedBuffer> inputs = InputsOf(p);
        std::vector<const GuardedBuffer*> buffers;
        for (const GuardedBuffer& input : inputs) buffers.push_back(&input);
        buffers.push_back(buffers[over]);
        RunOver(libraries_.fast().PrepareLayerNorm(alone), buffers);
        ExpectRight(p, *buffers[over], nullptr);
      }
    }
  }
}

TEST_F(LayerNorm, RefusesInconsistentDescriptions) {
  // Goal and method: a wrong axis, too many addends, addends that do not line up with rows, tables without indices.
  const auto status = [&](const LayerNormDescription& d) { return libraries_.fast().PrepareLayerNorm(d).status(); };
  const auto invalid = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const Dims dims = {2, 3, 4};
  EXPECT_THAT(status({.input = {2}, .axis = -2}), invalid("axis"));
  EXPECT_THAT(status({.input = dims, .addends = std::vector<LayerNormAddend>(5, {.dims = dims})}),
              invalid("5 addends"));
  for (const Dims& addend : {Dims{}, Dims{1}, Dims{3, 1}, Dims{2, 1, 4}, Dims{1, 1, 2, 3, 4}, Dims{2, 4}}) {
    EXPECT_THAT(status({.input = dims, .addends = {{.dims = dims}, {.dims = addend}}}), invalid("cannot be added"));
  }
  EXPECT_THAT(status({.input = dims, .axis = 1, .addends = {{.dims = {4}}}}), invalid("cannot be added"));
  EXPECT_THAT(status({.input = dims, .addends = {{.dims = dims, .table_rows = -1}}}), invalid("a table of -1"));
  EXPECT_THAT(status({.input = dims, .addends = {{.dims = dims, .table_rows = 1, .index_type = DataType::kFp32}}}),
              invalid("FP32"));
  EXPECT_OK(libraries_.fast().PrepareLayerNorm({.input = {0, 4}, .addends = {{.dims = {0, 4}}, {.dims = {4}}}}));
}

}  // namespace
}  // namespace sluice::gpu
