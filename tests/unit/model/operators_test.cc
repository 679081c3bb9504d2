// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

/// One operator on one FP32 input `x` and further constant inputs, given as serialized tensors named c0, c1 ...
struct OperatorCase {
  std::string name;
  int64_t opset = 13;
  Shape input;
  std::vector<float> values;
  std::vector<std::string> constants;
  std::vector<std::string> attributes;
  Shape output;
  std::vector<float> expected;
};

std::string F(const std::string& name, const Shape& dims, const std::vector<float>& values) {
  return RawTensor(name, DataType::kFp32, dims, values);
}
std::string I(const std::string& name, const std::vector<int64_t>& values) {
  return RawTensor(name, DataType::kInt64, {static_cast<int64_t>(values.size())}, values);
}

std::string I2(const std::string& name, const Shape& dims, const std::vector<int64_t>& values) {
  return RawTensor(name, DataType::kInt64, dims, values);
}

class OperatorTest : public ModelTest {
 protected:
  absl::StatusOr<std::vector<std::string>> RunCase(const OperatorCase& test, bool folded) {
    OnnxWriter writer(test.opset);
    writer.Output("y", DataType::kFp32, Shape(test.output.size(), -1));
    std::vector<std::string> inputs = {"x"};
    if (folded) {
      writer.Floats("x", test.input, test.values);
    } else {
      writer.Input("x", DataType::kFp32, Shape(test.input.size(), -1));
    }
    for (size_t i = 0; i < test.constants.size(); ++i) {
      if (test.constants[i].empty()) {
        inputs.push_back("");
        continue;
      }
      writer.Initializer(test.constants[i]);
      inputs.push_back("c" + std::to_string(i));
    }
    writer.Node(test.name, inputs, {"y"}, test.attributes);
    if (folded) return Run(writer.Serialize(), {}, {});
    return Run(writer.Serialize(), {test.input}, {ToBytes(test.values)});
  }

  void Check(const OperatorCase& test) {
    for (const bool folded : {false, true}) {
      const auto outputs = RunCase(test, folded);
      ASSERT_TRUE(outputs.ok()) << test.name << " opset " << test.opset << ": " << outputs.status();
      EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-5f), test.expected))
          << test.name << " opset " << test.opset << (folded ? " folded" : "");
    }
  }

  absl::Status Fails(const OperatorCase& test) { return RunCase(test, false).status(); }
};

TEST_F(OperatorTest, Movement) {
  // Goal: shape rules and attributes of operators that move elements, in every form opsets gave them, run and folded.
  // Method: one node each on [2,3] = 0..5, against results worked out by hand.
  const Shape s = {2, 3};
  const std::vector<float> v = {0, 1, 2, 3, 4, 5};
  const std::vector<OperatorCase> cases = {
      {"Transpose", 13, s, v, {}, {}, {3, 2}, {0, 3, 1, 4, 2, 5}},
      {"Transpose", 13, s, v, {}, {IntsAttribute("perm", {0, 1})}, s, v},
      {"Concat", 13, s, v, {F("c0", {2, 1}, {8, 9})}, {IntAttribute("axis", -1)}, {2, 4}, {0, 1, 2, 8, 3, 4, 5, 9}},
      {"Slice", 13, s, v, {I("c0", {1}), I("c1", {100}), I("c2", {-1})}, {}, {2, 2}, {1, 2, 4, 5}},
      {"Slice", 13, s, v, {I("c0", {-1}), I("c1", {-100}), I("c2", {1}), I("c3", {-1})}, {}, s, {2, 1, 0, 5, 4, 3}},
      {"Slice", 13, s, v, {I("c0", {-1}), I("c1", {-100}), I("c2", {1}), I("c3", {-2})}, {}, {2, 2}, {2, 0, 5, 3}},
      {"Slice", 9, s, v, {}, {IntsAttribute("starts", {1, 0}), IntsAttribute("ends", {2, 2})}, {1, 2}, {3, 4}},
      {"Gather", 13, s, v, {I("c0", {2, -3})}, {IntAttribute("axis", 1)}, {2, 2}, {2, 0, 5, 3}},
      {"GatherND", 13, s, v, {I2("c0", {2, 2}, {1, -1, 0, 1})}, {}, {2}, {5, 1}},
      {"GatherND", 13, s, v, {I2("c0", {1, 1, 1}, {-1})}, {}, {1, 1, 3}, {3, 4, 5}},
      {"GatherND",
       12,
       s,
       v,
       {I2("c0", {2, 2, 1}, {0, 2, 1, -3})},
       {IntAttribute("batch_dims", 1)},
       {2, 2},
       {0, 2, 4, 3}},
      {"Expand", 13, {2, 1}, {7, 8}, {I("c0", {1, 2, 2})}, {}, {1, 2, 2}, {7, 7, 8, 8}},
      {"Tile", 13, {1, 2}, {7, 8}, {I("c0", {2, 2})}, {}, {2, 4}, {7, 8, 7, 8, 7, 8, 7, 8}},
      {"Reshape", 13, s, v, {I("c0", {3, -1})}, {}, {3, 2}, v},
      {"Reshape", 13, s, v, {I("c0", {0, 1, 3})}, {}, {2, 1, 3}, v},
      {"Flatten", 13, {1, 2, 3}, v, {}, {IntAttribute("axis", 2)}, {2, 3}, v},
      {"Flatten", 13, {1, 2, 3}, v, {}, {IntAttribute("axis", 0)}, {1, 6}, v},
      {"Squeeze", 13, {1, 2, 3}, v, {I("c0", {0})}, {}, s, v},
      {"Squeeze", 11, {1, 2, 3, 1}, v, {}, {IntsAttribute("axes", {-1, 0})}, s, v},
      {"Squeeze", 13, {1, 2, 3, 1}, v, {}, {}, s, v},
      {"Unsqueeze", 13, s, v, {I("c0", {0, -1})}, {}, {1, 2, 3, 1}, v},
      {"Unsqueeze", 11, s, v, {}, {IntsAttribute("axes", {1})}, {2, 1, 3}, v},
      {"Identity", 13, s, v, {}, {}, s, v},
      {"Dropout", 13, s, v, {}, {}, s, v},
  };
  for (const OperatorCase& test : cases) Check(test);
}

TEST_F(OperatorTest, GatherNdTakesIndicesOfTheRequest) {
  // Goal: coordinates that come with the request name the same elements as constant ones, from the back too, and with a
  // batch dimension. Method: both forms of the same picks, and constant indices outside, which are refused.
  for (const int64_t batch_dims : {0, 1}) {
    const Shape index_dims = batch_dims == 0 ? Shape{3, 2} : Shape{2, 2, 1};
    const std::vector<int64_t> indices =
        batch_dims == 0 ? std::vector<int64_t>{1, -1, 0, 1, -2, 0} : std::vector<int64_t>{0, 2, 1, -3};
    OnnxWriter writer(13);
    writer.Input("x", DataType::kFp32, {2, 3})
        .Input("i", DataType::kInt64, index_dims)
        .Output("y", DataType::kFp32, Shape(index_dims.size() - 1, -1))
        .Node("GatherND", {"x", "i"}, {"y"}, {IntAttribute("batch_dims", batch_dims)});
    const auto outputs = Run(writer.Serialize(), {{2, 3}, index_dims},
                             {ToBytes(std::vector<float>{0, 1, 2, 3, 4, 5}), ToBytes(indices)});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<float> expected = batch_dims == 0 ? std::vector<float>{5, 1, 0} : std::vector<float>{0, 2, 4, 3};
    EXPECT_EQ(FromBytes<float>((*outputs)[0]), expected);
  }
  EXPECT_EQ(Fails({"GatherND", 13, {2, 3}, {0, 1, 2, 3, 4, 5}, {I2("c0", {1, 2}, {0, 3})}, {}, {1}, {0}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Fails({"GatherND", 13, {2, 3}, {0, 1, 2, 3, 4, 5}, {I2("c0", {1, 3}, {0, 0, 0})}, {}, {1}, {0}}).code(),
            absl::StatusCode::kInvalidArgument);
}

/// softmax(scale Q K' + mask) V by its definition; `allowed(h, i, k)` and `added(h, i, k)` are the mask. Tensors by
/// heads.
std::vector<float> AttentionByDefinition(const Shape& q_dims, const Shape& k_dims, int64_t value_size,
                                         const std::vector<float>& q, const std::vector<float>& k,
                                         const std::vector<float>& v, float scale,
                                         const std::function<float(int64_t, int64_t, int64_t)>& added) {
  const int64_t heads = q_dims[1], rows = q_dims[2], size = q_dims[3], kv_heads = k_dims[1], keys = k_dims[2];
  std::vector<float> result;
  for (int64_t b = 0; b < q_dims[0]; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv = b * kv_heads + h / (heads / kv_heads);
      for (int64_t i = 0; i < rows; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < size; ++d) {
            dot += static_cast<double>(q[((b * heads + h) * rows + i) * size + d]) * k[(kv * keys + j) * size + d];
          }
          weights.push_back(std::exp(scale * dot + added(h, i, j)));
          sum += weights.back();
        }
        for (int64_t d = 0; d < value_size; ++d) {
          double value = 0;
          for (int64_t j = 0; j < keys; ++j) value += weights[j] / sum * v[(kv * keys + j) * value_size + d];
          result.push_back(static_cast<float>(value));
        }
      }
    }
  }
  return result;
}

TEST_F(OperatorTest, AttentionInEveryForm) {
  // Goal: Attention by heads and packed, with shared keys, masks of both types, causal, and its own scale. Method:
  // against its definition.
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Shape q_dims = {2, 4, 3, 2}, k_dims = {2, 2, 5, 2};
  constexpr int64_t kValueSize = 3;
  const auto numbers = [](size_t count, float step) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * step);
    return values;
  };
  const std::vector<float> q = numbers(48, 1.3f), k = numbers(40, 0.7f), v = numbers(60, 2.1f);
  const auto packed = [](const std::vector<float>& values, int64_t heads, int64_t length, int64_t size) {
    std::vector<float> result(values.size());
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < length; ++i) {
          for (int64_t d = 0; d < size; ++d) {
            result[((b * length + i) * heads + h) * size + d] = values[((b * heads + h) * length + i) * size + d];
          }
        }
      }
    }
    return result;
  };
  for (const bool is_packed : {false, true}) {
    for (const std::string mask : {"none", "causal", "floats", "bools"}) {
      SCOPED_TRACE(mask + (is_packed ? " packed" : ""));
      OnnxWriter writer(23);
      const auto input = [&](const char* name, const std::vector<float>& values, const Shape& by_heads) {
        const Shape dims = is_packed ? Shape{2, by_heads[2], by_heads[1] * by_heads[3]} : by_heads;
        writer.Input(name, DataType::kFp32, dims);
        return std::pair(dims, ToBytes(is_packed ? packed(values, by_heads[1], by_heads[2], by_heads[3]) : values));
      };
      const auto [qd, qb] = input("q", q, q_dims);
      const auto [kd, kb] = input("k", k, k_dims);
      const auto [vd, vb] = input("v", v, {2, 2, 5, kValueSize});
      std::vector<std::string> inputs = {"q", "k", "v"};
      std::vector<std::string> attributes = {FloatAttribute("scale", 0.75f)};
      if (is_packed) {
        attributes.push_back(IntAttribute("q_num_heads", 4));
        attributes.push_back(IntAttribute("kv_num_heads", 2));
      }
      if (mask == "causal") attributes.push_back(IntAttribute("is_causal", 1));
      if (mask == "floats") writer.Floats("m", {4, 1, 5}, numbers(20, 0.9f));
      if (mask == "bools") {
        writer.Initializer(
            RawTensor("m", DataType::kBool, {3, 5}, std::vector<uint8_t>{1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
      }
      if (mask == "floats" || mask == "bools") inputs.push_back("m");
      writer.Output("y", DataType::kFp32, is_packed ? Shape{2, 3, 12} : Shape{2, 4, 3, 3});
      writer.Node("Attention", inputs, {"y"}, attributes);
      const auto outputs = Run(writer.Serialize(), {qd, kd, vd}, {qb, kb, vb});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const std::vector<float> floats = numbers(20, 0.9f);
      const std::vector<uint8_t> bools = {1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0};
      std::vector<float> expected =
          AttentionByDefinition(q_dims, k_dims, kValueSize, q, k, v, 0.75f, [&](int64_t h, int64_t i, int64_t j) {
            if (mask == "causal") return j > i ? kNever : 0.0f;
            if (mask == "floats") return floats[h * 5 + j];
            if (mask == "bools") return bools[i * 5 + j] == 0 ? kNever : 0.0f;
            return 0.0f;
          });
      if (is_packed) expected = packed(expected, 4, 3, kValueSize);
      EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-5f), expected));
    }
  }
}

TEST_F(OperatorTest, IsNanTellsNansApart) {
  // Goal: NaNs and only they. Method: through a Where, so that the output is of numbers.
  OnnxWriter writer(13);
  writer.Input("x", DataType::kFp32, {4})
      .Output("y", DataType::kFp32, {4})
      .Floats("minus", {}, {-1})
      .Node("IsNaN", {"x"}, {"n"})
      .Node("Where", {"n", "minus", "x"}, {"y"});
  const std::vector<float> values = {1, std::nanf(""), std::numeric_limits<float>::infinity(), 0};
  const auto outputs = Run(writer.Serialize(), {{4}}, {ToBytes(values)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(FromBytes<float>((*outputs)[0]), (std::vector<float>{1, -1, std::numeric_limits<float>::infinity(), 0}));
}

TEST_F(OperatorTest, Arithmetic) {
  // Goal: as above for operators that compute. Method: as above.
  const Shape s = {2, 3};
  const std::vector<float> v = {0, 1, 2, 3, 4, 5};
  const std::vector<OperatorCase> cases = {
      {"Add", 13, s, v, {F("c0", {3}, {1, 2, 3})}, {}, s, {1, 3, 5, 4, 6, 8}},
      {"Sub", 7, s, v, {F("c0", {2, 1}, {1, 2})}, {}, s, {-1, 0, 1, 1, 2, 3}},
      {"Mul", 13, s, v, {F("c0", {}, {2})}, {}, s, {0, 2, 4, 6, 8, 10}},
      {"Div", 13, s, v, {F("c0", {1}, {2})}, {}, s, {0, 0.5f, 1, 1.5f, 2, 2.5f}},
      {"Pow", 13, s, v, {F("c0", {}, {2})}, {}, s, {0, 1, 4, 9, 16, 25}},
      {"Max", 13, s, v, {F("c0", {}, {2}), F("c1", {3}, {0, 0, 4})}, {}, s, {2, 2, 4, 3, 4, 5}},
      {"Min", 13, s, v, {F("c0", {}, {2})}, {}, s, {0, 1, 2, 2, 2, 2}},
      {"Sum", 13, s, v, {F("c0", {}, {1}), F("c1", {}, {1}), F("c2", {}, {1})}, {}, s, {3, 4, 5, 6, 7, 8}},
      {"Sum", 13, s, v, {}, {}, s, v},
      {"Clip", 13, s, v, {F("c0", {}, {1}), F("c1", {}, {4})}, {}, s, {1, 1, 2, 3, 4, 4}},
      {"Clip", 13, s, v, {"", F("c1", {}, {4})}, {}, s, {0, 1, 2, 3, 4, 4}},
      {"Clip", 7, s, v, {}, {FloatAttribute("min", 1)}, s, {1, 1, 2, 3, 4, 5}},
      {"LeakyRelu", 13, {2}, {-2, 2}, {}, {FloatAttribute("alpha", 0.5f)}, {2}, {-1, 2}},
      {"HardSigmoid", 13, {2}, {0, 9}, {}, {}, {2}, {0.5f, 1}},
      {"Relu", 13, {2}, {-2, 2}, {}, {}, {2}, {0, 2}},
      {"Tanh", 13, {1}, {0.5f}, {}, {}, {1}, {0.46211716f}},
      {"Gelu", 20, {1}, {1}, {}, {}, {1}, {0.84134475f}},
      {"Gelu", 20, {1}, {1}, {}, {StringAttribute("approximate", "tanh")}, {1}, {0.84119199f}},
      {"ReduceSum", 13, s, v, {I("c0", {1})}, {IntAttribute("keepdims", 0)}, {2}, {3, 12}},
      {"ReduceSum", 11, s, v, {}, {IntsAttribute("axes", {-2})}, {1, 3}, {3, 5, 7}},
      {"ReduceMean", 13, s, v, {}, {IntsAttribute("axes", {1})}, {2, 1}, {1, 4}},
      {"ReduceMax", 18, s, v, {I("c0", {0})}, {}, {1, 3}, {3, 4, 5}},
      {"ReduceSum", 13, s, v, {}, {}, {1, 1}, {15}},
      {"ReduceSum", 13, s, v, {}, {IntAttribute("noop_with_empty_axes", 1)}, s, v},
      {"Softmax", 13, {1, 2}, {0, std::log(3.0f)}, {}, {}, {1, 2}, {0.25f, 0.75f}},
      {"Softmax", 11, {1, 2, 1}, {0, std::log(3.0f)}, {}, {}, {1, 2, 1}, {0.25f, 0.75f}},
      {"MatMul", 13, s, v, {F("c0", {3}, {1, 1, 1})}, {}, {2}, {3, 12}},
      {"MatMul", 13, {3}, {1, 2, 3}, {F("c0", {3, 1}, {1, 1, 1})}, {}, {1}, {6}},
      {"MatMul", 13, {3}, {1, 2, 3}, {F("c0", {3}, {1, 1, 1})}, {}, {}, {6}},
      {"Gemm",
       13,
       s,
       v,
       {F("c0", {1, 3}, {1, 1, 1}), F("c1", {1}, {2})},
       {IntAttribute("transB", 1), FloatAttribute("alpha", 2), FloatAttribute("beta", 3)},
       {2, 1},
       {12, 30}},
      {"Conv", 13, {1, 1, 3}, {1, 2, 3}, {F("c0", {1, 1, 2}, {1, 10}), F("c1", {1}, {100})}, {}, {1, 1, 2}, {121, 132}},
      {"Conv",
       13,
       {1, 1, 3},
       {1, 2, 3},
       {F("c0", {1, 1, 2}, {1, 10})},
       {StringAttribute("auto_pad", "SAME_UPPER")},
       {1, 1, 3},
       {21, 32, 3}},
      {"Conv",
       13,
       {1, 1, 3},
       {1, 2, 3},
       {F("c0", {1, 1, 2}, {1, 10})},
       {StringAttribute("auto_pad", "SAME_LOWER")},
       {1, 1, 3},
       {10, 21, 32}},
      {"MaxPool",
       13,
       {1, 1, 4},
       {1, 4, 2, 3},
       {},
       {IntsAttribute("kernel_shape", {2}), IntsAttribute("strides", {2})},
       {1, 1, 2},
       {4, 3}},
      {"AveragePool",
       13,
       {1, 1, 2},
       {2, 4},
       {},
       {IntsAttribute("kernel_shape", {2}), IntsAttribute("pads", {1, 0}), IntAttribute("count_include_pad", 1)},
       {1, 1, 2},
       {1, 3}},
      {"GlobalAveragePool", 13, {1, 2, 2}, {1, 3, 5, 7}, {}, {}, {1, 2, 1}, {2, 6}},
      {"GlobalMaxPool", 13, {1, 2, 2}, {1, 3, 5, 7}, {}, {}, {1, 2, 1}, {3, 7}},
      {"BatchNormalization",
       13,
       {1, 2},
       {3, 5},
       {F("c0", {2}, {2, 1}), F("c1", {2}, {1, 0}), F("c2", {2}, {1, 5}), F("c3", {2}, {4, 1})},
       {FloatAttribute("epsilon", 0)},
       {1, 2},
       {3, 0}},
      {"LayerNormalization",
       17,
       {1, 2},
       {1, 3},
       {F("c0", {2}, {2, 2}), F("c1", {2}, {1, 1})},
       {FloatAttribute("epsilon", 0)},
       {1, 2},
       {-1, 3}},
  };
  for (const OperatorCase& test : cases) Check(test);
}

TEST_F(OperatorTest, MixedTypes) {
  // Goal: operators whose inputs and outputs differ in type. Method: one graph through comparison, logic, Where, Cast,
  // ArgMax and Split, on [1,4].
  const std::string file = OnnxWriter(13)
                               .Input("x", DataType::kFp32, {-1, 4})
                               .Floats("two", {}, {2})
                               .Floats("minus", {}, {-1})
                               .Node("Greater", {"x", "two"}, {"big"})
                               .Node("Not", {"big"}, {"small"})
                               .Node("Where", {"small", "x", "minus"}, {"w"})
                               .Node("Cast", {"big"}, {"count"}, {IntAttribute("to", 7)})
                               .Node("ArgMax", {"x"}, {"top"}, {IntAttribute("axis", 1), IntAttribute("keepdims", 0)})
                               .Node("Split", {"x"}, {"left", "right"}, {IntAttribute("axis", 1)})
                               .Output("w", DataType::kFp32, {-1, 4})
                               .Output("count", DataType::kInt64, {-1, 4})
                               .Output("top", DataType::kInt64, {-1})
                               .Output("left", DataType::kFp32, {-1, 2})
                               .Output("right", DataType::kFp32, {-1, 2})
                               .Serialize();
  const auto outputs = Run(file, {{1, 4}}, {ToBytes<float>({1, 7, 3, 2})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), ElementsAre(1, -1, -1, 2));
  EXPECT_THAT(FromBytes<int64_t>((*outputs)[1]), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(FromBytes<int64_t>((*outputs)[2]), ElementsAre(1));
  EXPECT_THAT(FromBytes<float>((*outputs)[3]), ElementsAre(1, 7));
  EXPECT_THAT(FromBytes<float>((*outputs)[4]), ElementsAre(3, 2));
}

TEST_F(OperatorTest, ShapeArithmeticFoldsAway) {
  // Goal: shapes computed from shapes are constants once the input is bound. Method: a Reshape whose target goes
  // through Shape, Gather, Mul, Unsqueeze, Concat, Range and ConstantOfShape; the plan must have one kernel, the Relu.
  const std::string zero = RawTensor("v", DataType::kInt64, {1}, std::vector<int64_t>{2});
  const std::string file = OnnxWriter(13)
                               .Input("x", DataType::kFp32, {-1, 4})
                               .Ints("zero", {}, {0})
                               .Ints("two", {}, {2})
                               .Ints("one", {1}, {1})
                               .Ints("axes", {1}, {0})
                               .Node("Shape", {"x"}, {"shape"})
                               .Node("Gather", {"shape", "zero"}, {"n"})
                               .Node("Mul", {"n", "two"}, {"rows"})
                               .Node("Unsqueeze", {"rows", "axes"}, {"rows1"})
                               .Node("ConstantOfShape", {"one"}, {"columns"}, {TensorAttribute("value", zero)})
                               .Node("Concat", {"rows1", "columns"}, {"target"}, {IntAttribute("axis", 0)})
                               .Node("Relu", {"x"}, {"r"})
                               .Node("Reshape", {"r", "target"}, {"y"})
                               .Output("y", DataType::kFp32, {-1, 2})
                               .Serialize();
  const auto model = Load(file);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto device_model = (*model)->Instantiate(*device_, *device_);
  ASSERT_TRUE(device_model.ok()) << device_model.status();
  const auto plan = (*device_model)->BuildPlan({{{3, 4}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->unit_count(), 1u);
  EXPECT_THAT((*plan)->output_shapes(), ElementsAre(Shape{6, 2}));
  const auto run =
      Run(**plan, RequestClass::kBatch, {ToBytes<float>({-1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}, *device_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(FromBytes<float>((*run)[0])[0], 0);
  EXPECT_EQ(FromBytes<float>((*run)[0])[11], 12);
}

TEST_F(OperatorTest, RefusesBadNodesByName) {
  // Goal: what cannot be run is refused when the plan is built, naming node, operator and reason. Method: a table.
  const Shape s = {2, 3};
  const std::vector<float> v = {0, 1, 2, 3, 4, 5};
  const struct {
    OperatorCase test;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {{"Reshape", 13, s, v, {I("c0", {4, -1})}, {}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "node 'y_node' (Reshape): [2,3] does not reshape to [4,-1]"},
      {{"Reshape", 13, s, v, {I("c0", {-1, -1})}, {}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "two dimensions are -1"},
      {{"Reshape", 13, s, v, {F("c0", {1}, {6})}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "INT64 or INT32"},
      {{"Squeeze", 13, s, v, {I("c0", {0})}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "is not 1"},
      {{"Unsqueeze", 13, s, v, {I("c0", {0, 0})}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "given twice"},
      {{"Concat", 13, s, v, {F("c0", {3, 1}, {1, 2, 3})}, {IntAttribute("axis", 1)}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "(Concat)"},
      {{"Concat", 13, s, v, {}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "axis is missing"},
      {{"Concat", 13, s, v, {}, {FloatAttribute("axis", 1)}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "attribute 'axis' has the wrong type"},
      {{"Slice", 13, s, v, {I("c0", {0}), I("c1", {1}), I("c2", {0}), I("c3", {0})}, {}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "a step of 0"},
      {{"Transpose", 13, s, v, {}, {IntsAttribute("perm", {0, 0})}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "(Transpose)"},
      {{"Add", 13, s, v, {F("c0", {2}, {1, 2})}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "(Add)"},
      {{"Add", 13, s, v, {I("c0", {1})}, {}, s, {}}, absl::StatusCode::kUnimplemented, "FP32 and INT64"},
      {{"Conv",
        13,
        {1, 1, 3},
        {1, 2, 3},
        {F("c0", {1, 1, 2}, {1, 10})},
        {StringAttribute("auto_pad", "ODD")},
        {1, 1, 2},
        {}},
       absl::StatusCode::kInvalidArgument,
       "auto_pad is 'ODD'"},
      {{"Conv", 13, {1, 1, 3}, {1, 2, 3}, {F("c0", {1, 1, 4}, {1, 1, 1, 1})}, {}, {1, 1, 2}, {}},
       absl::StatusCode::kInvalidArgument,
       "(Conv)"},
      {{"MaxPool", 13, {1, 1, 3}, {1, 2, 3}, {}, {}, {1, 1, 2}, {}},
       absl::StatusCode::kInvalidArgument,
       "kernel_shape is missing"},
      {{"MaxPool", 13, {1, 1, 3}, {1, 2, 3}, {}, {IntsAttribute("kernel_shape", {int64_t{1} << 40})}, {1, 1, 2}, {}},
       absl::StatusCode::kInvalidArgument,
       "kernel_shape holds"},
      {{"Tile", 13, s, v, {I("c0", {int64_t{1} << 40, 1 << 20})}, {}, s, {}},
       absl::StatusCode::kInvalidArgument,
       "(Tile)"},
      {{"Cast", 13, s, v, {}, {IntAttribute("to", 8)}, s, {}}, absl::StatusCode::kUnimplemented, "element type 8"},
      {{"Conv", 13, s, v, {F("c0", {1, 1}, {1})}, {}, s, {}}, absl::StatusCode::kInvalidArgument, "(Conv)"},
  };
  for (const auto& test : cases) {
    const absl::Status status = Fails(test.test);
    EXPECT_EQ(status.code(), test.code) << test.message << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
}

TEST_F(OperatorTest, RefusesDataDependentShapes) {
  // Goal: a shape that depends on request data is a clear refusal. Method: a Reshape whose target is an input.
  const std::string file = OnnxWriter(13)
                               .Input("x", DataType::kFp32, {4})
                               .Input("target", DataType::kInt64, {2})
                               .Node("Reshape", {"x", "target"}, {"y"})
                               .Output("y", DataType::kFp32, {-1, -1})
                               .Serialize();
  const absl::Status status = Run(file, {{4}, {2}}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node 'y_node' (Reshape): the result's shape depends on data"));
}

}  // namespace
}  // namespace sluice::model
