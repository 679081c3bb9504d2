// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/kernels/chain_program.h"
#include "gpu/kernels/features.h"
#include "model/graph_builder.h"
#include "model/ops/elementwise_chain.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"
#include "model/print.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// x and y of [rows, 4].
OnnxWriter Rows(int64_t opset = 13) {
  OnnxWriter writer(opset);
  writer.Input("x", DataType::kFp32, {-1, 4}).Output("y", DataType::kFp32, {-1, 4});
  return writer;
}

class FuseElementwiseTest : public ModelTest {
 protected:
  Graph Fused(const OnnxWriter& writer, const std::vector<Shape>& shapes = {{3, 4}}) {
    Graph graph = Bound(writer.Serialize(), shapes);
    FuseElementwise(graph);
    return graph;
  }

  static std::string Words(const Node& node) {
    const auto steps = ChainOf(node);
    EXPECT_TRUE(steps.ok()) << steps.status();
    return steps.ok() ? gpu::ChainWords(*steps) : "";
  }

  static std::vector<std::string> InputNames(const Graph& graph, const Node& node) {
    std::vector<std::string> names;
    for (const ValueIndex input : node.inputs) names.push_back(graph.value(input).name);
    return names;
  }
};

TEST_F(FuseElementwiseTest, TakesChainsOfOneResult) {
  // Goal: nodes behind each other become one that stands where the last stood and reads what they read; a fused Relu is
  // a step of its own, and numbers of nodes come along. Method: five kinds in a row.
  const Graph graph = Fused(Rows(7)
                                .Floats("scale", {4}, {1, 2, 3, 4})
                                .Floats("shift", {1}, {5})
                                .Node("Mul", {"x", "scale"}, {"a"})
                                .Node("Add", {"shift", "a"}, {"b"})
                                .Node("LeakyRelu", {"b"}, {"c"}, {FloatAttribute("alpha", 0.25f)})
                                .Node("Clip", {"c"}, {"d"}, {FloatAttribute("min", -1), FloatAttribute("max", 2)})
                                .Node("Sigmoid", {"d"}, {"y"}));
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Elementwise"));
  const Node& node = graph.nodes[0];
  EXPECT_EQ(Words(node), "mul,add,leaky relu,clip,sigmoid");
  EXPECT_THAT(InputNames(graph, node), ElementsAre("x", "scale", "shift"));
  EXPECT_EQ(node.outputs, graph.outputs);
  const auto steps = *ChainOf(node);
  EXPECT_EQ(steps[1].a, 2u) << "shift, on the left";
  EXPECT_EQ(steps[1].b, 3u);
  EXPECT_EQ(steps[2].alpha, 0.25f);
  EXPECT_EQ(steps[3].alpha, -1);
  EXPECT_EQ(steps[3].beta, 2);
  EXPECT_THAT(PrintGraph(graph), HasSubstr("Elementwise mul,add,leaky relu,clip,sigmoid(x:FP32[3,4]"));
  EXPECT_EQ(DescribeGraph(graph, kMostGraphBytes).nodes[0].fused, "mul,add,leaky relu,clip,sigmoid");
}

TEST_F(FuseElementwiseTest, TakesTreesAndWhatTheyShare) {
  // Goal: a result that several members read, and nobody else, is kept inside; an input that several read is one input.
  // Method: x * sigmoid(x) of a sum, beside tanh of the same input.
  const Graph graph = Fused(Rows()
                                .Node("Add", {"x", "x"}, {"sum"})
                                .Node("Sigmoid", {"sum"}, {"gate"})
                                .Node("Mul", {"sum", "gate"}, {"swish"})
                                .Node("Tanh", {"x"}, {"tanh"})
                                .Node("Sub", {"swish", "tanh"}, {"y"}));
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Elementwise"));
  EXPECT_THAT(InputNames(graph, graph.nodes[0]), ElementsAre("x"));
  EXPECT_EQ(Words(graph.nodes[0]), "add,sigmoid,mul,tanh,sub");
}

TEST_F(FuseElementwiseTest, EndsWhereOthersRead) {
  // Goal: a value that another node reads, or that is an output of the graph, ends a chain and begins the next one.
  // Method: a sum in the middle that a reduction reads, and a difference that is an output.
  OnnxWriter writer = Rows();
  writer.Output("difference", DataType::kFp32, {-1, 4})
      .Output("mean", DataType::kFp32, {-1, 1})
      .Node("Abs", {"x"}, {"abs"})
      .Node("Add", {"abs", "x"}, {"sum"})
      .Node("ReduceMean", {"sum"}, {"mean"}, {IntsAttribute("axes", {1})})
      .Node("Neg", {"sum"}, {"neg"})
      .Node("Sub", {"neg", "x"}, {"difference"})
      .Node("Exp", {"difference"}, {"exp"})
      .Node("Tanh", {"exp"}, {"y"});
  const Graph graph = Fused(writer);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Elementwise", "ReduceMean", "Elementwise", "Elementwise"));
  EXPECT_EQ(Words(graph.nodes[0]), "abs,add");
  EXPECT_EQ(Words(graph.nodes[2]), "neg,sub");
  EXPECT_EQ(Words(graph.nodes[3]), "exp,tanh");
}

TEST_F(FuseElementwiseTest, LeavesWhatIsSmallerOutside) {
  // Goal: what is made once and stretched stays made once; a node that stretches both its operands is of the result's
  // shape and joins. Method: a gate of one number a row; a sum of a column and a row.
  Graph graph = Fused(Rows()
                          .Node("ReduceMean", {"x"}, {"mean"}, {IntsAttribute("axes", {1})})
                          .Node("Sigmoid", {"mean"}, {"gate"})
                          .Node("Mul", {"x", "gate"}, {"gated"})
                          .Node("Relu", {"gated"}, {"y"}));
  ASSERT_THAT(OperatorNames(graph), ElementsAre("ReduceMean", "Sigmoid", "Elementwise"));
  EXPECT_THAT(InputNames(graph, graph.nodes[2]), ElementsAre("x", "gate"));
  graph = Fused(Rows()
                    .Node("ReduceMean", {"x"}, {"column"}, {IntsAttribute("axes", {1})})
                    .Node("ReduceMean", {"x"}, {"row"}, {IntsAttribute("axes", {0})})
                    .Node("Add", {"column", "row"}, {"sum"})
                    .Node("Relu", {"sum"}, {"y"}));
  EXPECT_THAT(OperatorNames(graph), ElementsAre("ReduceMean", "ReduceMean", "Elementwise"));
}

TEST_F(FuseElementwiseTest, LeavesOtherTypesAndOtherNodes) {
  // Goal: a lone node stays what it is, and so do integers, truth values, casts, comparisons and sums of more than two.
  // Method: each before or behind an elementwise node.
  EXPECT_THAT(OperatorNames(Fused(Rows().Node("Relu", {"x"}, {"y"}))), ElementsAre("Relu"));
  EXPECT_THAT(OperatorNames(Fused(Rows().Node("Sum", {"x", "x", "x"}, {"sum"}).Node("Relu", {"sum"}, {"y"}))),
              ElementsAre("Sum", "Relu"));
  OnnxWriter integers;
  integers.Input("x", DataType::kInt64, {-1, 4})
      .Output("y", DataType::kFp32, {-1, 4})
      .Node("Add", {"x", "x"}, {"sum"})
      .Node("Neg", {"sum"}, {"neg"})
      .Node("Cast", {"neg"}, {"number"}, {IntAttribute("to", 1)})
      .Node("Tanh", {"number"}, {"tanh"})
      .Node("Greater", {"tanh", "number"}, {"larger"})
      .Node("Where", {"larger", "tanh", "number"}, {"y"});
  EXPECT_THAT(OperatorNames(Fused(integers)), ElementsAre("Add", "Neg", "Cast", "Tanh", "Greater", "Where"));
}

TEST_F(FuseElementwiseTest, KeepsToTheBoundsOfAChain) {
  // Goal: what is too long, or reads too much, becomes more than one chain, and still computes the same. Method: twenty
  // nodes in a row; a sum of eight inputs.
  OnnxWriter row = Rows();
  std::string value = "x";
  for (int i = 0; i < 20; ++i) {
    const std::string next = i == 19 ? "y" : absl::StrCat("v", i);
    row.Node(i % 2 == 0 ? "Tanh" : "Neg", {value}, {next});
    value = next;
  }
  Graph graph = Fused(row);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Elementwise", "Elementwise"));
  EXPECT_EQ(ChainOf(graph.nodes[0])->size(), 4u);
  EXPECT_EQ(ChainOf(graph.nodes[1])->size(), gpu::kMaxChainSteps);

  OnnxWriter sum;
  sum.Output("y", DataType::kFp32, {-1, 2});
  std::vector<Shape> shapes;
  std::vector<std::string> inputs;
  for (int i = 0; i < 8; ++i) {
    sum.Input(absl::StrCat("x", i), DataType::kFp32, {-1, 2});
    shapes.push_back({1, 2});
    inputs.push_back(ToBytes<float>({static_cast<float>(1 << i), -1}));
    if (i > 0)
      sum.Node("Add", {i == 1 ? "x0" : absl::StrCat("s", i - 1), absl::StrCat("x", i)},
               {i == 7 ? "y" : absl::StrCat("s", i)});
  }
  graph = Fused(sum, shapes);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Elementwise", "Elementwise"));
  EXPECT_EQ(graph.nodes[1].inputs.size(), gpu::kMaxChainInputs);
  const auto outputs = Run(sum.Serialize(), shapes, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), ElementsAre(255, -8));
}

TEST_F(FuseElementwiseTest, LeavesTheFusionsOfOtherPasses) {
  // Goal: a product keeps its bias and its Relu, a written-out GELU stays one step, and a sum with a fused Relu is two.
  // Method: the whole pipeline.
  Graph graph = Bound(Rows()
                          .Floats("w", {4, 4}, std::vector<float>(16, 0.5f))
                          .Floats("b", {4}, {1, 2, 3, 4})
                          .Node("MatMul", {"x", "w"}, {"product"})
                          .Node("Add", {"product", "b"}, {"biased"})
                          .Node("Relu", {"biased"}, {"rectified"})
                          .Node("Add", {"rectified", "x"}, {"sum"})
                          .Node("Relu", {"sum"}, {"positive"})
                          .Node("Mul", {"positive", "x"}, {"y"})
                          .Serialize(),
                      {{3, 4}});
  ASSERT_TRUE(
      SimplifyBound(graph, ReadSignature(*files_.back(), graph), {{{3, 4}}}, *device_, {}, Precision::kFp32).ok());
  ASSERT_THAT(OperatorNames(graph), ElementsAre("MatMul", "Elementwise"));
  EXPECT_EQ(Words(graph.nodes[1]), "add,relu,mul");
}

TEST_F(FuseElementwiseTest, HalvesAreChainsOfTheirOwn) {
  // Goal: in a graph for a GPU in FP16 chains have one type, and casts stay between them. Method: the whole pipeline;
  // the product of squares is of halves from its input's cast on.
  Graph graph = Bound(Rows()
                          .Node("Mul", {"x", "x"}, {"square"})
                          .Node("Sigmoid", {"square"}, {"gate"})
                          .Node("Mul", {"gate", "x"}, {"y"})
                          .Serialize(),
                      {{3, 4}});
  const gpu::KernelFeatures features{.low_precision = true};
  ASSERT_TRUE(
      SimplifyBound(graph, ReadSignature(*files_.back(), graph), {{{3, 4}}}, *device_, features, Precision::kFp16)
          .ok());
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Cast", "Elementwise", "Cast"));
  EXPECT_EQ(graph.value(graph.nodes[1].inputs[0]).type, DataType::kFp16);
  EXPECT_EQ(graph.value(graph.nodes[1].outputs[0]).type, DataType::kFp16);
  EXPECT_EQ(Words(graph.nodes[1]), "mul,sigmoid,mul");
}

TEST_F(FuseElementwiseTest, KnowsHowImagesLie) {
  // Goal: between convolutions with the channels last a chain reads a bias of channels and a gate of places where they
  // are in memory. Method: two convolutions that pass their input on, and what is between them by hand.
  OnnxWriter writer;
  writer.Input("x", DataType::kFp32, {-1, 2, 2, 2})
      .Output("y", DataType::kFp32, {-1, 2, 2, 2})
      .Floats("w", {2, 2, 1, 1}, {1, 0, 0, 1})
      .Floats("channels", {1, 2, 1, 1}, {10, 20})
      .Floats("places", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Node("Conv", {"x", "w"}, {"image"})
      .Node("Neg", {"image"}, {"neg"})
      .Node("Mul", {"neg", "places"}, {"scaled"})
      .Node("Sub", {"scaled", "channels"}, {"shifted"})
      .Node("Conv", {"shifted", "w"}, {"y"});
  Graph graph = Bound(writer.Serialize(), {{1, 2, 2, 2}});
  AssignLayouts(graph);
  FuseElementwise(graph);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Transpose", "Conv", "Elementwise", "Conv", "Transpose"));
  EXPECT_TRUE(graph.value(graph.nodes[2].outputs[0]).channels_last);
  const auto outputs = Run(writer.Serialize(), {{1, 2, 2, 2}}, {ToBytes<float>({1, 2, 3, 4, 5, 6, 7, 8})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), ElementsAre(-11, -14, -19, -26, -25, -32, -41, -52));
}

TEST_F(FuseElementwiseTest, ComputesTheSame) {
  // Goal: a fused graph's numbers. Method: by formula, for rows that the output may lie over.
  const auto outputs = Run(Rows()
                               .Floats("scale", {4}, {1, 2, 3, 4})
                               .Node("Mul", {"x", "scale"}, {"a"})
                               .Node("Sigmoid", {"a"}, {"b"})
                               .Node("Mul", {"a", "b"}, {"c"})
                               .Node("Sub", {"x", "c"}, {"y"})
                               .Serialize(),
                           {{2, 4}}, {ToBytes<float>({1, -1, 2, -2, 0, 0.5f, -0.5f, 3})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const std::vector<float> x = {1, -1, 2, -2, 0, 0.5f, -0.5f, 3}, y = FromBytes<float>((*outputs)[0]);
  ASSERT_EQ(y.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = x[i] * static_cast<double>(i % 4 + 1);
    EXPECT_NEAR(y[i], x[i] - a / (1 + std::exp(-a)), 1e-5) << i;
  }
}

TEST_F(FuseElementwiseTest, FilesCannotNameTheOperator) {
  // Goal: only passes make it. Method: a file that names it.
  const auto graph = BuildGraphOf(Rows().Node("Elementwise", {"x"}, {"y"}).Serialize());
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(graph.status().message()), HasSubstr("this operator is not supported"));
}

}  // namespace
}  // namespace sluice::model
