// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/graph_builder.h"
#include "model/ops/activation.h"
#include "model/ops/registry.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;

class PassesTest : public ModelTest {
 protected:
  static std::vector<float> Floats(const Graph& graph, ValueIndex index) {
    const ByteSpan bytes = graph.value(index).bytes;
    return FromBytes<float>(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  static bool HasRelu(const Node& node) { return node.FindAttribute(kActivationAttribute) != nullptr; }
};

OnnxWriter ImageIn() {
  OnnxWriter writer;
  writer.Input("x", DataType::kFp32, {-1, 2, 3, 3})
      .Output("y", DataType::kFp32, {-1, 2, 3, 3})
      .Floats("w", {2, 2, 1, 1}, {1, 2, 3, 4});
  return writer;
}

TEST_F(PassesTest, BindShapesChecksTheSignature) {
  // Goal: a bucket that does not fit is refused by the input's name. Method: wrong count, rank, fixed and zero
  // dimensions.
  auto graph = BuildGraphOf(ImageIn().Node("Relu", {"x"}, {"y"}).Serialize());
  ASSERT_TRUE(graph.ok());
  const Signature signature = ReadSignature(*files_.back(), *graph);
  EXPECT_TRUE(BindShapes(*graph, signature, {{{5, 2, 3, 3}}}).ok());
  EXPECT_EQ(*graph->value(graph->inputs[0]).dims, (Shape{5, 2, 3, 3}));
  for (const std::vector<Shape>& shapes : std::vector<std::vector<Shape>>{
           {}, {{1, 2, 3, 3}, {1}}, {{1, 2, 3}}, {{1, 2, 3, 4}}, {{0, 2, 3, 3}}, {{-1, 2, 3, 3}}}) {
    EXPECT_EQ(BindShapes(*graph, signature, {shapes}).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(PassesTest, FoldConstantsComputesAndKeepsBroadcasts) {
  // Goal: constant subgraphs vanish, but a small constant blown up to many megabytes does not. Method: a sum of two
  // constants, and an Expand to 16 MiB.
  const Graph graph = Bound(ImageIn()
                                .Floats("a", {2}, {1, 2})
                                .Floats("b", {2}, {10, 20})
                                .Floats("one", {1}, {1})
                                .Ints("big", {1}, {4 << 20})
                                .Node("Add", {"a", "b"}, {"c"})
                                .Node("Expand", {"one", "big"}, {"huge"})
                                .Node("Relu", {"x"}, {"y"})
                                .Output("c", DataType::kFp32, {2})
                                .Output("huge", DataType::kFp32, {4 << 20})
                                .Serialize(),
                            {{1, 2, 3, 3}});
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Expand", "Relu"));
  EXPECT_THAT(Floats(graph, graph.outputs[1]), ElementsAre(11, 22));
}

TEST_F(PassesTest, EqualConstantsShareAName) {
  // Goal: what plans make anew is shared between them. Method: two graphs that fold the same sum, and another sum.
  const auto folded = [&](float b) {
    const Graph graph = Bound(ImageIn()
                                  .Floats("a", {2}, {1, 2})
                                  .Floats("b", {2}, {b, b})
                                  .Node("Add", {"a", "b"}, {"c"})
                                  .Node("Relu", {"x"}, {"y"})
                                  .Output("c", DataType::kFp32, {2})
                                  .Serialize(),
                              {{1, 2, 3, 3}});
    return graph.value(graph.outputs[1]).constant_name;
  };
  EXPECT_EQ(folded(1), folded(1));
  EXPECT_NE(folded(1), folded(2));
}

TEST_F(PassesTest, RemoveIdentitiesDropsWhatDoesNothing) {
  // Goal: every kind of node without effect goes, and a graph's output keeps its node. Method: a chain of them.
  Graph graph = Bound(ImageIn()
                          .Ints("shape", {4}, {-1, 2, 3, 3})
                          .Ints("zero", {1}, {0})
                          .Ints("end", {1}, {1000})
                          .Node("Identity", {"x"}, {"a"})
                          .Node("Dropout", {"a"}, {"b"})
                          .Node("Reshape", {"b", "shape"}, {"c"})
                          .Node("Slice", {"c", "zero", "end"}, {"d"})
                          .Node("Transpose", {"d"}, {"e"}, {IntsAttribute("perm", {0, 1, 2, 3})})
                          .Node("Cast", {"e"}, {"f"}, {IntAttribute("to", 1)})
                          .Node("Concat", {"f"}, {"g"}, {IntAttribute("axis", 0)})
                          .Node("Relu", {"g"}, {"h"})
                          .Node("Identity", {"h"}, {"y"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  RemoveIdentities(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Relu", "Identity"));
  EXPECT_EQ(graph.nodes[0].inputs[0], graph.inputs[0]);
}

TEST_F(PassesTest, RemoveIdentitiesKeepsReversals) {
  // Goal: a slice that keeps the shape but reverses is not an identity. Method: a step of -1.
  Graph graph = Bound(ImageIn()
                          .Ints("start", {1}, {-1})
                          .Ints("end", {1}, {-1000})
                          .Ints("axis", {1}, {2})
                          .Ints("step", {1}, {-1})
                          .Node("Slice", {"x", "start", "end", "axis", "step"}, {"a"})
                          .Node("Relu", {"a"}, {"y"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  RemoveIdentities(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Slice", "Relu"));
}

TEST_F(PassesTest, FoldBatchNormScalesTheWeights) {
  // Goal: normalisation moves into weights and bias. Method: factors 2 and 0.5, worked out by hand.
  auto graph = BuildGraphOf(ImageIn()
                                .Floats("bias", {2}, {1, 1})
                                .Floats("scale", {2}, {4, 1})
                                .Floats("shift", {2}, {10, 20})
                                .Floats("mean", {2}, {3, 5})
                                .Floats("variance", {2}, {4, 4})
                                .Node("Conv", {"x", "w", "bias"}, {"c"})
                                .Node("BatchNormalization", {"c", "scale", "shift", "mean", "variance"}, {"y"},
                                      {FloatAttribute("epsilon", 0)})
                                .Serialize());
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(FoldBatchNorm(*graph).ok());
  ASSERT_THAT(OperatorNames(*graph), ElementsAre("Conv"));
  EXPECT_THAT(Floats(*graph, graph->nodes[0].inputs[1]), Pointwise(FloatNear(1e-6f), {2.f, 4.f, 1.5f, 2.f}));
  EXPECT_THAT(Floats(*graph, graph->nodes[0].inputs[2]), Pointwise(FloatNear(1e-6f), {6.f, 18.f}));
  EXPECT_EQ(graph->nodes[0].outputs[0], graph->outputs[0]);
}

TEST_F(PassesTest, FoldBatchNormLeavesSharedConvolutionsAlone) {
  // Goal: a convolution that others read keeps its meaning. Method: its result is a graph output too.
  auto graph = BuildGraphOf(ImageIn()
                                .Floats("p", {2}, {1, 1})
                                .Node("Conv", {"x", "w"}, {"c"})
                                .Node("BatchNormalization", {"c", "p", "p", "p", "p"}, {"y"})
                                .Output("c", DataType::kFp32, {-1, 2, 3, 3})
                                .Serialize());
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(FoldBatchNorm(*graph).ok());
  EXPECT_THAT(OperatorNames(*graph), ElementsAre("Conv", "BatchNormalization"));
}

TEST_F(PassesTest, FusesBiasResidualAndActivationIntoAConvolution) {
  // Goal: conv, bias, residual and Relu become one node. Method: that chain; the residual comes from a node that stands
  // after the convolution.
  Graph graph = Bound(ImageIn()
                          .Floats("b", {2, 1, 1}, {1, 2})
                          .Node("Conv", {"x", "w"}, {"c"})
                          .Node("Add", {"c", "b"}, {"d"})
                          .Node("Tanh", {"x"}, {"r"})
                          .Node("Add", {"r", "d"}, {"e"})
                          .Node("Relu", {"e"}, {"y"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  FuseBias(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Conv", "Tanh", "Add", "Relu"));
  EXPECT_EQ(*graph.value(graph.nodes[0].inputs[2]).dims, Shape{2});
  FuseResidual(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Tanh", "Conv", "Relu"));
  EXPECT_EQ(graph.nodes[1].inputs.size(), 4u);
  EXPECT_EQ(graph.nodes[1].inputs[3], graph.nodes[0].outputs[0]);
  FuseActivation(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Tanh", "Conv"));
  EXPECT_TRUE(HasRelu(graph.nodes[1]));
  EXPECT_EQ(graph.nodes[1].outputs[0], graph.outputs[0]);
}

TEST_F(PassesTest, DoesNotFuseAcrossOtherReaders) {
  // Goal: a result that somebody else reads is computed as it is. Method: the convolution's result feeds two nodes; the
  // added constant varies along the width.
  Graph graph = Bound(ImageIn()
                          .Floats("b", {1, 3}, {1, 2, 3})
                          .Node("Conv", {"x", "w"}, {"c"})
                          .Node("Relu", {"c"}, {"r"})
                          .Node("Add", {"c", "r"}, {"s"})
                          .Node("Conv", {"s", "w"}, {"d"})
                          .Node("Add", {"d", "b"}, {"y"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  FuseBias(graph);
  FuseResidual(graph);
  FuseActivation(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Conv", "Relu", "Add", "Conv", "Add"));
}

TEST_F(PassesTest, FusesClipAndSwishIntoAConvolution) {
  // Goal: what only a convolution's result goes through becomes its activation, with its bounds. Method: a Clip, then
  // x * Sigmoid(x) with the product written either way round; a Sigmoid that somebody else reads stays.
  for (const bool turned : {false, true}) {
    Graph graph = Bound(ImageIn()
                            .Floats("low", {}, {-1})
                            .Floats("high", {}, {6})
                            .Node("Conv", {"x", "w"}, {"a"})
                            .Node("Clip", {"a", "low", "high"}, {"b"})
                            .Node("Conv", {"b", "w"}, {"c"})
                            .Node("Sigmoid", {"c"}, {"d"})
                            .Node("Mul", {turned ? "d" : "c", turned ? "c" : "d"}, {"y"})
                            .Serialize(),
                        {{1, 2, 3, 3}});
    FuseConvActivation(graph);
    ASSERT_THAT(OperatorNames(graph), ElementsAre("Conv", "Conv"));
    const auto activation = [&](size_t i) {
      return std::get<std::string>(graph.nodes[i].FindAttribute(kActivationAttribute)->value);
    };
    EXPECT_EQ(activation(0), "Clip");
    EXPECT_EQ(std::get<float>(graph.nodes[0].FindAttribute(kLowAttribute)->value), -1);
    EXPECT_EQ(std::get<float>(graph.nodes[0].FindAttribute(kHighAttribute)->value), 6);
    EXPECT_EQ(activation(1), "Swish");
  }
  Graph kept = Bound(ImageIn()
                         .Output("d", DataType::kFp32, {-1, 2, 3, 3})
                         .Node("Conv", {"x", "w"}, {"c"})
                         .Node("Sigmoid", {"c"}, {"d"})
                         .Node("Mul", {"c", "d"}, {"y"})
                         .Serialize(),
                     {{1, 2, 3, 3}});
  FuseConvActivation(kept);
  EXPECT_THAT(OperatorNames(kept), ElementsAre("Conv", "Sigmoid", "Mul"));
  // A product that has an activation of its own is more than a swish.
  Graph more = Bound(ImageIn()
                         .Node("Conv", {"x", "w"}, {"c"})
                         .Node("Sigmoid", {"c"}, {"d"})
                         .Node("Mul", {"c", "d"}, {"e"})
                         .Node("Relu", {"e"}, {"y"})
                         .Serialize(),
                     {{1, 2, 3, 3}});
  FuseActivation(more);
  FuseConvActivation(more);
  EXPECT_THAT(OperatorNames(more), ElementsAre("Conv", "Sigmoid", "Mul"));
  EXPECT_TRUE(HasRelu(more.nodes[2]));
}

TEST_F(PassesTest, LayoutsChangeAtTheBordersOfConvolutions) {
  // Goal: between two convolutions the channels stay last, through what does not care, and are first again for whoever
  // does; each value is turned once. Method: convolutions with a Relu and a gate of one place between, a reshape that
  // reads the first one's result and an output.
  Graph graph = Bound(ImageIn()
                          .Floats("gate", {2, 1, 1}, {2, 3})
                          .Ints("flat", {2}, {1, 18})
                          .Output("z", DataType::kFp32, {-1, 18})
                          .Node("Conv", {"x", "w"}, {"a"})
                          .Node("Relu", {"a"}, {"b"})
                          .Node("Mul", {"b", "gate"}, {"c"})
                          .Node("Conv", {"c", "w"}, {"y"})
                          .Node("Reshape", {"a", "flat"}, {"z"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  AssignLayouts(graph);
  EXPECT_THAT(OperatorNames(graph),
              ElementsAre("Transpose", "Conv", "Relu", "Mul", "Conv", "Transpose", "Reshape", "Transpose"));
  for (const ValueIndex output : graph.outputs) EXPECT_FALSE(graph.value(output).channels_last);
  EXPECT_TRUE(graph.value(graph.nodes[3].outputs[0]).channels_last);
}

TEST_F(PassesTest, LayoutsSurviveResultsOfOnePlaceOrOneChannel) {
  // Goal: a convolution or pool whose result, or whose input, is the same in both orders still reads and writes the
  // right one. Method: to one place, to one channel and back to two, and a pool to one place, each behind a convolution
  // that leaves its result with the channels last, against sums worked out here.
  std::vector<float> x(18), all(36);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 7) - 3;
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i * 5 % 11) - 5;
  const std::string file = ImageIn()
                               .Floats("all", {2, 2, 3, 3}, all)
                               .Floats("mix", {1, 2, 1, 1}, {2, -1})
                               .Floats("spread", {2, 1, 1, 1}, {1, -1})
                               .Output("place", DataType::kFp32, {-1, 2, 1, 1})
                               .Output("pooled", DataType::kFp32, {-1, 2, 1, 1})
                               .Node("Conv", {"x", "w"}, {"a"})
                               .Node("Conv", {"a", "all"}, {"place"})
                               .Node("MaxPool", {"a"}, {"pooled"}, {IntsAttribute("kernel_shape", {3, 3})})
                               .Node("Conv", {"a", "mix"}, {"one"})
                               .Node("Conv", {"one", "spread"}, {"y"})
                               .Serialize();
  const auto outputs = Run(file, {{1, 2, 3, 3}}, {ToBytes(x)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  std::vector<float> a(18), y(18), place(2), pooled(2, -1e9f);
  for (size_t i = 0; i < 9; ++i) {
    a[i] = x[i] + 2 * x[9 + i];
    a[9 + i] = 3 * x[i] + 4 * x[9 + i];
    y[i] = 2 * a[i] - a[9 + i];
    y[9 + i] = -y[i];
    for (size_t c = 0; c < 2; ++c) {
      pooled[c] = std::max(pooled[c], a[9 * c + i]);
      for (size_t m = 0; m < 2; ++m) place[m] += a[9 * c + i] * all[(m * 2 + c) * 9 + i];
    }
  }
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-4f), y));
  EXPECT_THAT(FromBytes<float>((*outputs)[1]), Pointwise(FloatNear(1e-4f), place));
  EXPECT_THAT(FromBytes<float>((*outputs)[2]), Pointwise(FloatNear(1e-4f), pooled));
}

TEST_F(PassesTest, LayoutsLeaveALoneConvolution) {
  // Goal: one convolution among nodes that want the channels first is not worth turning for. Method: one before a Relu,
  // and two with a Softmax between them.
  const auto names = [&](OnnxWriter& writer) {
    Graph graph = Bound(writer.Serialize(), {{1, 2, 3, 3}});
    AssignLayouts(graph);
    return OperatorNames(graph);
  };
  OnnxWriter one = ImageIn();
  one.Node("Conv", {"x", "w"}, {"a"}).Node("Relu", {"a"}, {"y"});
  EXPECT_THAT(names(one), ElementsAre("Conv", "Relu"));
  OnnxWriter apart = ImageIn();
  apart.Node("Conv", {"x", "w"}, {"a"}).Node("Softmax", {"a"}, {"b"}).Node("Conv", {"b", "w"}, {"y"});
  EXPECT_THAT(names(apart), ElementsAre("Conv", "Softmax", "Conv"));
}

TEST_F(PassesTest, LayoutsLeaveWhatTheyCannotTurn) {
  // Goal: a constant as large as the images, and one along the width, is not read in the wrong order. Method: sums with
  // both between convolutions: they are computed with the channels first.
  Graph graph = Bound(ImageIn()
                          .Floats("image", {1, 2, 3, 3}, std::vector<float>(18, 1))
                          .Floats("row", {3}, {1, 2, 3})
                          .Node("Conv", {"x", "w"}, {"a"})
                          .Node("Mul", {"a", "image"}, {"b"})
                          .Node("Mul", {"b", "row"}, {"c"})
                          .Node("Conv", {"c", "w"}, {"y"})
                          .Serialize(),
                      {{1, 2, 3, 3}});
  AssignLayouts(graph);
  EXPECT_THAT(OperatorNames(graph),
              ElementsAre("Transpose", "Conv", "Transpose", "Mul", "Mul", "Transpose", "Conv", "Transpose"));
}

TEST_F(PassesTest, FusesBiasAndReluIntoAMatrixProduct) {
  // Goal: MatMul, Add and Relu become one node. Method: that chain, and one whose Add would broadcast the product.
  OnnxWriter writer;
  writer.Input("x", DataType::kFp32, {-1, 2})
      .Floats("w", {2, 2}, {1, 2, 3, 4})
      .Floats("b", {2}, {1, 2})
      .Floats("wide", {3, 1, 2}, {1, 2, 3, 4, 5, 6})
      .Node("MatMul", {"x", "w"}, {"p"})
      .Node("Add", {"b", "p"}, {"q"})
      .Node("Relu", {"q"}, {"y"})
      .Node("MatMul", {"x", "w"}, {"p2"})
      .Node("Add", {"p2", "wide"}, {"z"})
      .Output("y", DataType::kFp32, {-1, 2})
      .Output("z", DataType::kFp32, {-1, -1, 2});
  Graph graph = Bound(writer.Serialize(), {{1, 2}});
  FuseBias(graph);
  FuseActivation(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("MatMul", "MatMul", "Add"));
  const size_t fused = graph.nodes[0].inputs.size() == 3 ? 0 : 1;
  EXPECT_TRUE(HasRelu(graph.nodes[fused]));
}

TEST_F(PassesTest, FusesBothSpellingsOfGelu) {
  // Goal: the exporters' chains become one Gelu; one with another constant does not. Method: erf, tanh and a near miss.
  const auto erf_chain = [](float root) {
    return OnnxWriter()
        .Input("x", DataType::kFp32, {-1, 2})
        .Output("y", DataType::kFp32, {-1, 2})
        .Floats("root", {}, {root})
        .Floats("one", {}, {1})
        .Floats("half", {}, {0.5f})
        .Node("Div", {"x", "root"}, {"a"})
        .Node("Erf", {"a"}, {"b"})
        .Node("Add", {"b", "one"}, {"c"})
        .Node("Mul", {"x", "c"}, {"d"})
        .Node("Mul", {"d", "half"}, {"y"})
        .Serialize();
  };
  Graph erf = Bound(erf_chain(1.41421354f), {{1, 2}});
  FuseGelu(erf);
  EXPECT_THAT(OperatorNames(erf), ElementsAre("Gelu"));
  Graph miss = Bound(erf_chain(1.5f), {{1, 2}});
  FuseGelu(miss);
  EXPECT_THAT(OperatorNames(miss), ElementsAre("Div", "Erf", "Add", "Mul", "Mul"));
  Graph tanh = Bound(OnnxWriter()
                         .Input("x", DataType::kFp32, {-1, 2})
                         .Output("y", DataType::kFp32, {-1, 2})
                         .Floats("cubic", {}, {0.044715f})
                         .Floats("root", {1, 1}, {0.7978846f})
                         .Floats("one", {}, {1})
                         .Floats("half", {}, {0.5f})
                         .Floats("three", {}, {3})
                         .Node("Pow", {"x", "three"}, {"a"})
                         .Node("Mul", {"cubic", "a"}, {"b"})
                         .Node("Add", {"x", "b"}, {"c"})
                         .Node("Mul", {"c", "root"}, {"d"})
                         .Node("Tanh", {"d"}, {"e"})
                         .Node("Add", {"one", "e"}, {"f"})
                         .Node("Mul", {"half", "f"}, {"g"})
                         .Node("Mul", {"x", "g"}, {"y"})
                         .Serialize(),
                     {{1, 2}});
  FuseGelu(tanh);
  ASSERT_THAT(OperatorNames(tanh), ElementsAre("Gelu"));
  EXPECT_EQ(std::get<std::string>(tanh.nodes[0].FindAttribute("approximate")->value), "tanh");
}

TEST_F(PassesTest, FusesExactGeluIntoAMatrixProduct) {
  // Goal: Gelu behind a product becomes its activation where the device has that, and only the exact form. Method: both
  // forms, with and without.
  const auto file = [](const std::string& form) {
    return OnnxWriter(20)
        .Input("x", DataType::kFp32, {-1, 2})
        .Output("y", DataType::kFp32, {-1, 2})
        .Floats("w", {2, 2}, {1, 2, 3, 4})
        .Node("MatMul", {"x", "w"}, {"p"})
        .Node("Gelu", {"p"}, {"y"}, {StringAttribute("approximate", form)})
        .Serialize();
  };
  Graph exact = Bound(file("none"), {{1, 2}});
  FuseActivation(exact);
  EXPECT_THAT(OperatorNames(exact), ElementsAre("MatMul", "Gelu"));
  FuseActivation(exact, /*gelu=*/true);
  EXPECT_THAT(OperatorNames(exact), ElementsAre("MatMul"));
  Graph approximate = Bound(file("tanh"), {{1, 2}});
  FuseActivation(approximate, /*gelu=*/true);
  EXPECT_THAT(OperatorNames(approximate), ElementsAre("MatMul", "Gelu"));
}

/// One-hot of `x` (any integers) times a table of three rows, plus a constant, through a Tanh.
std::string OneHotFile() {
  return OnnxWriter(15)
      .Input("x", DataType::kInt32, {-1, 8, 1})
      .Output("y", DataType::kFp32, {-1, 8, 2})
      .Initializer(RawTensor("iota", DataType::kInt32, {1, 1, 3}, std::vector<int32_t>{0, 1, 2}))
      .Floats("table", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Floats("b", {1, 1, 2}, {0.5f, -0.5f})
      .Node("Equal", {"x", "iota"}, {"e"})
      .Node("Cast", {"e"}, {"c"}, {IntAttribute("to", 1)})
      .Node("MatMul", {"c", "table"}, {"m"})
      .Node("Add", {"m", "b"}, {"a"})
      .Node("Tanh", {"a"}, {"y"})
      .Serialize();
}

TEST_F(PassesTest, OneHotProductBecomesAGatherOfAHoistedTable) {
  // Goal: the product, and what follows row by row, is one Gather, also right for indices outside the table. Method:
  // the passes on such a chain, then the whole way, against the definition.
  Graph graph = Bound(OneHotFile(), {{1, 8, 1}});
  ASSERT_TRUE(FuseOneHot(graph).ok());
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Clip", "Reshape", "Gather", "Add", "Tanh"));
  ASSERT_TRUE(HoistGather(graph, *device_).ok());
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Clip", "Reshape", "Gather"));
  const std::vector<int32_t> indices = {0, 1, 2, 3, -1, -2, 1000, -1000};
  const auto outputs = Run(OneHotFile(), {{1, 8, 1}}, {ToBytes(indices)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  std::vector<float> expected;
  for (const int32_t index : indices) {
    for (int column = 0; column < 2; ++column) {
      const float row = index >= 0 && index < 3 ? static_cast<float>(2 * index + column + 1) : 0.0f;
      expected.push_back(std::tanh(row + (column == 0 ? 0.5f : -0.5f)));
    }
  }
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-5f), expected));
}

TEST_F(PassesTest, RemoveDeadCodeKeepsOnlyWhatIsRead) {
  // Goal: chains nobody reads go, also when one hangs off a live node. Method: two dead nodes and a live one.
  auto graph = BuildGraphOf(
      ImageIn().Node("Relu", {"x"}, {"y"}).Node("Tanh", {"y"}, {"dead"}).Node("Exp", {"dead"}, {"deader"}).Serialize());
  ASSERT_TRUE(graph.ok());
  RemoveDeadCode(*graph);
  EXPECT_THAT(OperatorNames(*graph), ElementsAre("Relu"));
  graph->outputs.clear();
  RemoveDeadCode(*graph);
  EXPECT_THAT(OperatorNames(*graph), IsEmpty());
}

}  // namespace
}  // namespace sluice::model
