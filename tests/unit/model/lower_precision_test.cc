// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/half.h"
#include "model/ops/activation.h"
#include "model/ops/operators.h"
#include "model/passes/passes.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

class LowerPrecisionTest : public ModelTest {
 protected:
  static DataType TypeOfOutput(const Graph& graph, size_t node) {
    return graph.value(graph.nodes[node].outputs[0]).type;
  }
  static DataType TypeOfInput(const Graph& graph, size_t node, size_t input) {
    return graph.value(graph.nodes[node].inputs[input]).type;
  }
};

TEST_F(LowerPrecisionTest, CastsAtTheEdgesAndNowhereElse) {
  // Goal: inputs and outputs keep their types, values between are halves, an input that two nodes read is cast once,
  // and weights stay what kernels pack. Method: a product and a sum of one input.
  Graph graph = Bound(OnnxWriter()
                          .Input("x", DataType::kFp32, {-1, 2})
                          .Output("y", DataType::kFp32, {-1, 2})
                          .Floats("w", {2, 2}, {1, 2, 3, 4})
                          .Node("MatMul", {"x", "w"}, {"product"})
                          .Node("Mul", {"product", "x"}, {"y"})
                          .Serialize(),
                      {{3, 2}});
  LowerPrecision(graph, Precision::kFp16);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Cast", "MatMul", "Mul", "Cast"));
  EXPECT_EQ(TypeOfOutput(graph, 0), DataType::kFp16);
  EXPECT_EQ(TypeOfInput(graph, 1, 1), DataType::kFp32) << "the weights";
  EXPECT_EQ(graph.nodes[1].inputs[0], graph.nodes[2].inputs[1]) << "cast once";
  EXPECT_EQ(TypeOfOutput(graph, 2), DataType::kFp16);
  EXPECT_EQ(graph.value(graph.outputs[0]).type, DataType::kFp32);
  EXPECT_FALSE(graph.tf32);
}

TEST_F(LowerPrecisionTest, ConstantsStayFinite) {
  // Goal: masks are spelt as the lowest FP32, which must not become an infinity that a softmax makes NaN of; a real
  // infinity stays one. Method: a sum with both, in both types.
  constexpr float kLowest = std::numeric_limits<float>::lowest(), kInfinity = std::numeric_limits<float>::infinity();
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    Graph graph = Bound(OnnxWriter()
                            .Input("x", DataType::kFp32, {-1, 3})
                            .Output("y", DataType::kFp32, {-1, 3})
                            .Floats("mask", {3}, {kLowest, -kInfinity, 0.5f})
                            .Node("Add", {"x", "mask"}, {"y"})
                            .Serialize(),
                        {{1, 3}});
    LowerPrecision(graph, precision);
    const Value& mask = graph.value(graph.nodes[1].inputs[1]);
    const std::vector<uint16_t> bits =
        FromBytes<uint16_t>(std::string(reinterpret_cast<const char*>(mask.bytes.data()), mask.bytes.size()));
    ASSERT_EQ(bits.size(), 3);
    const auto value = [&](size_t i) {
      return precision == Precision::kFp16 ? FloatFromFp16(bits[i]) : FloatFromBf16(bits[i]);
    };
    EXPECT_LT(value(0), -65000.0f);
    EXPECT_GT(value(0), -kInfinity);
    EXPECT_EQ(value(1), -kInfinity);
    EXPECT_EQ(value(2), 0.5f);
  }
}

TEST_F(LowerPrecisionTest, WhatHasNoHalfKernelStaysFp32) {
  // Goal: operators without kernels for halves read FP32, and truth values and indices are left alone. Method: ArgMax
  // behind a product, a comparison, a gather from a table by indices, a conversion of integers.
  Graph graph = Bound(OnnxWriter()
                          .Input("ids", DataType::kInt64, {-1})
                          .Output("best", DataType::kInt64, {-1, 1})
                          .Output("large", DataType::kBool, {-1, 2})
                          .Floats("table", {3, 2}, {1, 2, 3, 4, 5, 6})
                          .Floats("w", {2, 2}, {1, 2, 3, 4})
                          .Node("Gather", {"table", "ids"}, {"rows"})
                          .Node("MatMul", {"rows", "w"}, {"scores"})
                          .Node("ArgMax", {"scores"}, {"best"}, {IntAttribute("axis", -1)})
                          .Node("Greater", {"scores", "rows"}, {"large"})
                          .Serialize(),
                      {{4}});
  LowerPrecision(graph, Precision::kFp16);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Gather", "MatMul", "Cast", "ArgMax", "Greater"));
  EXPECT_EQ(TypeOfInput(graph, 0, 0), DataType::kFp16) << "the table";
  EXPECT_EQ(TypeOfInput(graph, 0, 1), DataType::kInt64);
  EXPECT_EQ(TypeOfInput(graph, 3, 0), DataType::kFp32);
  EXPECT_EQ(TypeOfOutput(graph, 3), DataType::kInt64);
  EXPECT_EQ(TypeOfInput(graph, 4, 0), DataType::kFp16);
  EXPECT_EQ(TypeOfOutput(graph, 4), DataType::kBool);
}

TEST_F(LowerPrecisionTest, NumbersMadeFromIntegersAreHalvesAtOnce) {
  // Goal: no value is FP32 on its way from an integer to a half. Method: a Cast to FP32 before a product.
  Graph graph = Bound(OnnxWriter()
                          .Input("mask", DataType::kInt64, {-1, 2})
                          .Output("y", DataType::kFp32, {-1, 2})
                          .Floats("w", {2, 2}, {1, 2, 3, 4})
                          .Node("Cast", {"mask"}, {"numbers"}, {IntAttribute("to", 1)})
                          .Node("MatMul", {"numbers", "w"}, {"y"})
                          .Serialize(),
                      {{1, 2}});
  LowerPrecision(graph, Precision::kBf16);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Cast", "MatMul", "Cast"));
  EXPECT_EQ(TypeOfOutput(graph, 0), DataType::kBf16);
  EXPECT_EQ(TypeOfInput(graph, 1, 0), DataType::kBf16);
}

TEST_F(LowerPrecisionTest, ConvolutionsOfImagesOnly) {
  // Goal: convolutions of two spatial dimensions become halves, each with the channels last, even a lone one, and take
  // a request's image as it is; one of one dimension stays FP32. Method: both, with the layout pass behind.
  const auto conv = [&](const Shape& weights, const Shape& dims) {
    Shape declared = dims;
    declared[0] = -1;
    Graph graph = Bound(OnnxWriter()
                            .Input("x", DataType::kFp32, declared)
                            .Output("y", DataType::kFp32, declared)
                            .Floats("w", weights, {1, 2, 3, 4})
                            .Node("Conv", {"x", "w"}, {"y"})
                            .Serialize(),
                        {dims});
    LowerPrecision(graph, Precision::kFp16);
    AssignLayouts(graph, /*every=*/true);
    return OperatorNames(graph);
  };
  EXPECT_THAT(conv({2, 2, 1, 1}, {1, 2, 3, 3}), ElementsAre("Conv", "Transpose", "Cast"));
  EXPECT_THAT(conv({2, 2, 1}, {1, 2, 3}), ElementsAre("Conv"));
}

TEST_F(LowerPrecisionTest, ProductsTakeResiduals) {
  // Goal: a sum with another tensor becomes the product's residual where products may have one, behind its bias, and
  // not where the product has an activation. Method: the passes in their order.
  OnnxWriter writer;
  writer.Input("x", DataType::kFp32, {-1, 2})
      .Output("y", DataType::kFp32, {-1, 2})
      .Floats("w", {2, 2}, {1, 2, 3, 4})
      .Floats("b", {2}, {5, 6})
      .Node("MatMul", {"x", "w"}, {"product"})
      .Node("Add", {"product", "b"}, {"biased"})
      .Node("Add", {"x", "biased"}, {"sum"})
      .Node("Relu", {"sum"}, {"y"});
  const std::string file = writer.Serialize();
  Graph graph = Bound(file, {{1, 2}});
  FuseBias(graph);
  FuseResidual(graph, /*products=*/true);
  FuseActivation(graph);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("MatMul"));
  ASSERT_EQ(graph.nodes[0].inputs.size(), kProductResidual + 1);
  EXPECT_EQ(graph.nodes[0].inputs[kProductResidual], graph.inputs[0]);
  EXPECT_NE(graph.nodes[0].FindAttribute(kActivationAttribute), nullptr);
  graph = Bound(file, {{1, 2}});
  FuseBias(graph);
  FuseResidual(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("MatMul", "Add", "Relu"));
}

TEST_F(LowerPrecisionTest, OtherPrecisionsOnlyMarkTheGraph) {
  // Goal: TF32 and FP32 change no node. Method: the same graph in both.
  for (const Precision precision : {Precision::kFp32, Precision::kTf32}) {
    Graph graph = Bound(OnnxWriter()
                            .Input("x", DataType::kFp32, {-1, 2})
                            .Output("y", DataType::kFp32, {-1, 2})
                            .Node("Relu", {"x"}, {"y"})
                            .Serialize(),
                        {{1, 2}});
    LowerPrecision(graph, precision);
    EXPECT_THAT(OperatorNames(graph), ElementsAre("Relu"));
    EXPECT_EQ(graph.tf32, precision == Precision::kTf32);
  }
}

TEST_F(LowerPrecisionTest, TheHostComputesInFp32WhateverIsAsked) {
  // Goal: a model whose config asks for less runs on a device without it, and says in what. Method: FP16 on the host;
  // a number that FP16 does not have comes through.
  auto model = Load(OnnxWriter()
                        .Input("x", DataType::kFp32, {-1, 1})
                        .Output("y", DataType::kFp32, {-1, 1})
                        .Floats("one", {1}, {1})
                        .Node("Mul", {"x", "one"}, {"y"})
                        .Serialize());
  ASSERT_TRUE(model.ok()) << model.status();
  PlanOptions options;
  options.precision = Precision::kFp16;
  const auto device_model = (*model)->Instantiate(*device_, *device_, options);
  ASSERT_TRUE(device_model.ok()) << device_model.status();
  EXPECT_EQ((*device_model)->precision(), Precision::kFp32);
  const auto plan = (*device_model)->BuildPlan({{{1, 1}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto outputs = Run(**plan, RequestClass::kStandard, {ToBytes<float>({1.00001f})}, *device_);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(FromBytes<float>((*outputs)[0])[0], 1.00001f);
}

}  // namespace
}  // namespace sluice::model
