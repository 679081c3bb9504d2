// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/status_macros.h"
#include "model/constant_pool.h"
#include "model/graph_builder.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"
#include "model/plan.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr DataType kFp32 = DataType::kFp32;
const Shape kRows = {2, 3, 4};

std::vector<float> Numbers(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + std::sin(static_cast<float>(i * i));
  return values;
}

/// A file with inputs a, b, c, d and e of [2, 3, 4], parameters and an output y.
OnnxWriter Writer() {
  OnnxWriter w(17);
  for (const char* name : {"a", "b", "c", "d", "e"}) w.Input(name, kFp32, kRows);
  w.Output("y", kFp32, kRows).Floats("scale", {4}, {1, 2, 3, 4}).Floats("bias", {4}, {4, 3, 2, 1});
  return w;
}
const std::vector<Shape> kShapes(5, kRows);
const std::vector<std::string> kNorm = {"s", "scale", "bias"};

/// Embeddings as BERT adds them up: words, segments and a place that is the same for all requests.
std::string Embeddings(DataType segment_type) {
  OnnxWriter w(17);
  w.Input("words", DataType::kInt64, {2, 3}).Input("segments", segment_type, {2, 3}).Output("y", kFp32, kRows);
  w.Floats("word_table", {6, 4}, Numbers(24, 1)).Floats("segment_table", {2, 4}, Numbers(8, 2));
  w.Floats("places", {1, 3, 4}, Numbers(12, 3)).Floats("scale", {4}, {1, 2, 3, 4}).Floats("bias", {4}, {4, 3, 2, 1});
  w.Node("Gather", {"word_table", "words"}, {"w"}).Node("Gather", {"segment_table", "segments"}, {"t"});
  w.Node("Add", {"w", "t"}, {"wt"}).Node("Add", {"wt", "places"}, {"s"});
  return w.Node("LayerNormalization", kNorm, {"y"}).Serialize();
}

class FuseAddNormTest : public ModelTest {
 protected:
  Graph After(const std::string& file, const std::vector<Shape>& shapes = kShapes) {
    Graph graph = Bound(file, shapes);
    FuseAddNorm(graph);
    return graph;
  }

  absl::StatusOr<std::vector<std::string>> Outputs(Graph graph, const std::vector<Shape>& shapes,
                                                   const std::vector<std::string>& inputs) {
    ConstantPool pool(*device_);
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                            BuildPlanFromGraph(std::move(graph), {shapes}, *device_, pool, {}));
    return ModelTest::Run(*plan, RequestClass::kStandard, inputs, *device_);
  }

  /// Expects the same outputs with the pass as without.
  void ExpectSame(const std::string& file, const std::vector<Shape>& shapes = kShapes,
                  std::vector<std::string> inputs = {}) {
    for (size_t i = inputs.size(); i < shapes.size(); ++i) {
      inputs.push_back(ToBytes(Numbers(24, static_cast<float>(i))));
    }
    const auto plain = Outputs(Bound(file, shapes), shapes, inputs),
               fused = Outputs(After(file, shapes), shapes, inputs);
    ASSERT_TRUE(plain.ok() && fused.ok()) << plain.status() << fused.status();
    ASSERT_EQ(plain->size(), fused->size());
    for (size_t i = 0; i < plain->size(); ++i) {
      EXPECT_THAT(FromBytes<float>((*fused)[i]), Pointwise(FloatNear(1e-5f), FromBytes<float>((*plain)[i])));
    }
  }
};

TEST_F(FuseAddNormTest, TakesTheAddBeforeIt) {
  // Goal: a residual and its normalisation are one node, also with what is the same for all rows in front. Method: the
  // graph, and outputs with and without the pass.
  for (const Shape& other : {Shape{2, 3, 4}, Shape{1, 3, 4}, Shape{3, 4}, Shape{4}, Shape{1, 1, 4}}) {
    int64_t count = 1;
    for (const int64_t dim : other) count *= dim;
    const std::string file = Writer()
                                 .Floats("o", other, Numbers(static_cast<size_t>(count), 1))
                                 .Node("Add", {"o", "a"}, {"s"})
                                 .Node("LayerNormalization", kNorm, {"y"})
                                 .Serialize();
    const Graph graph = After(file);
    ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization"));
    EXPECT_EQ(graph.nodes[0].outputs.size(), 1);
    ExpectSame(file);
  }
}

TEST_F(FuseAddNormTest, TakesAChainOfAdds) {
  // Goal: up to four addends, in order; what others read, or a fifth, stays an Add. Method: the graph and outputs.
  OnnxWriter four = Writer();
  four.Node("Add", {"a", "b"}, {"ab"}).Node("Add", {"c", "d"}, {"cd"}).Node("Add", {"ab", "cd"}, {"s"});
  const std::string file = four.Node("LayerNormalization", kNorm, {"y"}).Serialize();
  const Graph graph = After(file);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization"));
  const std::vector<ValueIndex>& inputs = graph.nodes[0].inputs;
  EXPECT_THAT((std::vector<ValueIndex>{inputs[0], inputs[3], inputs[4], inputs[5]}),
              ElementsAre(graph.inputs[0], graph.inputs[1], graph.inputs[2], graph.inputs[3]));
  ExpectSame(file);
  OnnxWriter five = Writer();
  five.Node("Add", {"a", "b"}, {"ab"}).Node("Add", {"c", "d"}, {"cd"}).Node("Add", {"ab", "cd"}, {"abcd"});
  const std::string long_chain =
      five.Node("Add", {"abcd", "e"}, {"s"}).Node("LayerNormalization", kNorm, {"y"}).Serialize();
  EXPECT_THAT(OperatorNames(After(long_chain)), ElementsAre("Add", "LayerNormalization"));
  ExpectSame(long_chain);
  OnnxWriter shared = Writer();
  shared.Node("Add", {"a", "b"}, {"ab"}).Node("Add", {"ab", "c"}, {"s"}).Node("LayerNormalization", kNorm, {"n"});
  const std::string read_elsewhere = shared.Node("Mul", {"n", "ab"}, {"y"}).Serialize();
  EXPECT_THAT(OperatorNames(After(read_elsewhere)), ElementsAre("Add", "LayerNormalization", "Mul"));
  ExpectSame(read_elsewhere);
}

TEST_F(FuseAddNormTest, WritesTheSumForOthers) {
  // Goal: networks that normalise before each part use the sum again, here also between the Add and the normalisation,
  // as an addend of the next, and as an output. Method: the graph and outputs.
  const std::string file = Writer()
                               .Output("s", kFp32, kRows)
                               .Node("Add", {"a", "b"}, {"s"})
                               .Node("Relu", {"s"}, {"r"})
                               .Node("LayerNormalization", kNorm, {"n"})
                               .Node("Mul", {"n", "r"}, {"p"})
                               .Node("Add", {"s", "p"}, {"t"})
                               .Node("LayerNormalization", {"t", "scale"}, {"y"})
                               .Serialize();
  const Graph graph = After(file);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization", "Relu", "Mul", "LayerNormalization"));
  EXPECT_THAT(graph.nodes[0].outputs, ElementsAre(graph.nodes[2].inputs[0], graph.outputs[1]));
  EXPECT_EQ(graph.nodes[3].outputs.size(), 1);
  ExpectSame(file);
  // Two that normalise one sum: the first adds, the second reads.
  const std::string two = Writer()
                              .Node("Add", {"a", "b"}, {"s"})
                              .Node("LayerNormalization", kNorm, {"n"})
                              .Node("LayerNormalization", {"s", "bias"}, {"m"})
                              .Node("Mul", {"n", "m"}, {"y"})
                              .Serialize();
  EXPECT_EQ(After(two).nodes[0].outputs.size(), 2);
  ExpectSame(two);
}

TEST_F(FuseAddNormTest, GathersRowsItself) {
  // Goal: embeddings and their normalisation are one node. Method: the graph and outputs, for both types of indices.
  const std::vector<Shape> shapes(2, Shape{2, 3});
  const std::string words = ToBytes(std::vector<int64_t>{5, 0, -1, 3, 3, 2});
  for (const DataType type : {DataType::kInt64, DataType::kInt32}) {
    const Graph graph = After(Embeddings(type), shapes);
    ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization"));
    const std::vector<ValueIndex>& inputs = graph.nodes[0].inputs;
    ASSERT_EQ(inputs.size(), kNormIndices + 2);
    EXPECT_EQ(inputs[kNormIndices], graph.inputs[0]);
    EXPECT_EQ(inputs[kNormIndices + 1], graph.inputs[1]);
    const std::string segments = type == DataType::kInt64 ? ToBytes(std::vector<int64_t>{0, 1, 0, 1, 1, 0})
                                                          : ToBytes(std::vector<int32_t>{0, 1, 0, 1, 1, 0});
    ExpectSame(Embeddings(type), shapes, {words, segments});
  }
}

TEST_F(FuseAddNormTest, LeavesOthersAlone) {
  // Goal: addends that differ along a row or between rows in another way, an Add with an activation, a scale that is
  // made behind the Add, and a Gather along another dimension. Method: the nodes that are left.
  const auto names = [&](OnnxWriter w) {
    Graph graph = Bound(w.Node("LayerNormalization", kNorm, {"y"}).Serialize(), kShapes);
    FuseActivation(graph);
    FuseAddNorm(graph);
    return OperatorNames(graph);
  };
  for (const Shape& other : {Shape{}, Shape{3, 1}, Shape{2, 1, 4}}) {
    int64_t count = 1;
    for (const int64_t dim : other) count *= dim;
    EXPECT_THAT(
        names(Writer().Floats("o", other, Numbers(static_cast<size_t>(count), 1)).Node("Add", {"a", "o"}, {"s"})),
        ElementsAre("Add", "LayerNormalization"));
  }
  EXPECT_THAT(names(Writer().Node("Add", {"a", "b"}, {"r"}).Node("Relu", {"r"}, {"s"})),
              ElementsAre("Add", "LayerNormalization"));
  OnnxWriter late(17);
  late.Input("a", kFp32, kRows).Input("b", kFp32, kRows).Input("v", kFp32, {4}).Output("y", kFp32, kRows);
  late.Node("Add", {"a", "b"}, {"s"}).Node("Relu", {"v"}, {"scale"}).Node("LayerNormalization", {"s", "scale"}, {"y"});
  EXPECT_THAT(OperatorNames(After(late.Serialize(), {kRows, kRows, {4}})),
              ElementsAre("Add", "Relu", "LayerNormalization"));
  OnnxWriter columns(17);
  columns.Input("a", kFp32, {2, 4}).Input("i", DataType::kInt64, {4}).Output("y", kFp32, {2, 4});
  columns.Floats("table", {2, 4}, Numbers(8, 1)).Floats("scale", {4}, {1, 2, 3, 4});
  columns.Node("Gather", {"table", "i"}, {"g"}, {IntAttribute("axis", 1)}).Node("Add", {"a", "g"}, {"s"});
  EXPECT_THAT(
      OperatorNames(After(columns.Node("LayerNormalization", {"s", "scale"}, {"y"}).Serialize(), {{2, 4}, {4}})),
      ElementsAre("Gather", "LayerNormalization"));
}

TEST_F(FuseAddNormTest, LeavesResidualsToProductsOfHalves) {
  // Goal: a product of halves adds the residual itself; in FP32 the normalisation does. Method: all passes, in both.
  const std::string file = Writer()
                               .Floats("w", {4, 4}, Numbers(16, 0))
                               .Node("MatMul", {"a", "w"}, {"p"})
                               .Node("Add", {"p", "b"}, {"s"})
                               .Node("LayerNormalization", kNorm, {"y"})
                               .Serialize();
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    auto graph = BuildGraphOf(file);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const Signature signature = ReadSignature(*files_.back(), *graph);
    ASSERT_TRUE(
        SimplifyBound(*graph, signature, {kShapes}, *device_, {.attention = true, .low_precision = true}, precision)
            .ok());
    for (const Node& node : graph->nodes) {
      const absl::string_view name = node.entry->name;
      EXPECT_NE(name, "Add");
      EXPECT_EQ(name == "MatMul" && node.inputs.size() > kProductResidual, name == "MatMul" && IsHalf(precision));
      EXPECT_EQ(name == "LayerNormalization" && node.inputs.size() > kNormAddends,
                name == "LayerNormalization" && !IsHalf(precision));
    }
  }
}

TEST_F(FuseAddNormTest, AddendsMayBeHalves) {
  // Goal: tables, other addends and the sum become halves; scale, bias and indices stay what they are. Method: types.
  Graph graph = After(Embeddings(DataType::kInt32), std::vector<Shape>(2, Shape{2, 3}));
  LowerPrecision(graph, Precision::kFp16);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization", "Cast"));
  std::vector<DataType> types;
  for (const ValueIndex input : graph.nodes[0].inputs) {
    if (input != kNoValue) types.push_back(graph.value(input).type);
  }
  EXPECT_THAT(types, ElementsAre(DataType::kFp16, kFp32, kFp32, DataType::kFp16, DataType::kFp16, DataType::kInt64,
                                 DataType::kInt32));
  OnnxWriter w = Writer();
  w.Node("Add", {"a", "b"}, {"s"}).Node("LayerNormalization", kNorm, {"n"}).Node("Mul", {"n", "s"}, {"y"});
  Graph sum = After(w.Serialize());
  LowerPrecision(sum, Precision::kBf16);
  ASSERT_THAT(OperatorNames(sum), ElementsAre("Cast", "Cast", "LayerNormalization", "Mul", "Cast"));
  for (const ValueIndex output : sum.nodes[2].outputs) EXPECT_EQ(sum.value(output).type, DataType::kBf16);
}

}  // namespace
}  // namespace sluice::model
