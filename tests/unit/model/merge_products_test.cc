// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "attention_harness.h"
#include "model/ops/operators.h"
#include "model/passes/passes.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr DataType kFp32 = DataType::kFp32;
const Shape kTokens = {2, 3, 4};

struct Products {
  bool q_bias = true, v_bias = true;
  std::string k_input = "x";
  bool k_is_output = false;
  bool k_relu = false;
  bool constant_weights = true;
  int64_t kv_heads = 2;
};

/// Three products of one input that feed an Attention.
std::string File(const Products& p) {
  OnnxWriter w(23);
  w.Input("x", kFp32, kTokens).Input("other", kFp32, kTokens).Output("y", kFp32, kTokens);
  const auto weights = [](float first) {
    std::vector<float> values(16);
    for (size_t i = 0; i < 16; ++i) values[i] = first + static_cast<float>(i) * 0.125f;
    return values;
  };
  w.Floats("wq", {4, 4}, weights(-1)).Floats("wv", {4, 4}, weights(1)).Floats("bq", {4}, {1, 2, 3, 4});
  w.Floats("bv", {1, 1, 4}, {5, 6, 7, 8});
  if (p.constant_weights) w.Floats("wk", {4, 4}, weights(0));
  if (!p.constant_weights) w.Input("wk", kFp32, {4, 4});
  w.Node("MatMul", {"x", "wq"}, {p.q_bias ? "q0" : "q"}).Node("MatMul", {p.k_input, "wk"}, {p.k_relu ? "k0" : "k"});
  w.Node("MatMul", {"x", "wv"}, {p.v_bias ? "v0" : "v"});
  if (p.q_bias) w.Node("Add", {"q0", "bq"}, {"q"});
  if (p.k_relu) w.Node("Relu", {"k0"}, {"k"});
  if (p.v_bias) w.Node("Add", {"bv", "v0"}, {"v"});
  if (p.k_is_output) w.Output("k", kFp32, kTokens);
  w.Node("Attention", {"q", "k", "v"}, {"y"},
         {IntAttribute("q_num_heads", 2), IntAttribute("kv_num_heads", p.kv_heads)});
  return w.Serialize();
}

class MergeProductsTest : public AttentionPassTest {
 protected:
  Graph After(const Products& p) {
    std::vector<Shape> shapes = {kTokens, kTokens};
    if (!p.constant_weights) shapes.push_back({4, 4});
    auto graph = Simplified(File(p), shapes, true);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? *std::move(graph) : Graph();
  }
  static std::vector<float> Floats(const Graph& graph, ValueIndex index) {
    const ByteSpan bytes = graph.value(index).bytes;
    return FromBytes<float>(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
};

TEST_F(MergeProductsTest, PutsWeightsSideBySide) {
  // Goal: one product with the columns of all three, zeros for a bias that is missing, and an Attention that knows.
  // Method: the graph and its constants, and outputs with and without the pass.
  const Graph graph = After({});
  ASSERT_THAT(OperatorNames(graph), ElementsAre("MatMul", "Attention"));
  const Node& product = graph.nodes[0];
  const Node& attention = graph.nodes[1];
  EXPECT_THAT(attention.inputs, ElementsAreArray(std::vector<ValueIndex>(3, product.outputs[0])));
  EXPECT_NE(attention.FindAttribute(kMergedAttribute), nullptr);
  EXPECT_EQ(*graph.value(product.outputs[0]).dims, (Shape{2, 3, 12}));
  EXPECT_EQ(*graph.value(product.inputs[1]).dims, (Shape{4, 12}));
  const std::vector<float> weights = Floats(graph, product.inputs[1]);
  EXPECT_THAT(std::vector<float>(weights.begin() + 12, weights.begin() + 24),
              ElementsAre(-0.5, -0.375, -0.25, -0.125, 0.5, 0.625, 0.75, 0.875, 1.5, 1.625, 1.75, 1.875));
  EXPECT_THAT(Floats(graph, product.inputs[2]), ElementsAre(1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8));
  for (const Products& p : {Products{}, Products{.q_bias = false, .v_bias = false}}) {
    ExpectSameOutputs(File(p), {kTokens, kTokens}, {ToBytes(Numbers(24, 1)), ToBytes(Numbers(24, 2))}, "");
  }
  EXPECT_EQ(After({.q_bias = false, .v_bias = false}).nodes[0].inputs.size(), 2u);
}

TEST_F(MergeProductsTest, SharesWeightsBetweenPlans) {
  // Goal: plans of several buckets hold one copy of the merged weights. Method: the constants' names in two graphs.
  const Graph one = After({}), two = After({});
  EXPECT_EQ(one.value(one.nodes[0].inputs[1]).constant_name, two.value(two.nodes[0].inputs[1]).constant_name);
}

TEST_F(MergeProductsTest, LeavesOthersAlone) {
  // Goal: products that differ in more than their weights stay. Method: one difference at a time.
  for (const Products& p : {Products{.k_input = "other"}, Products{.k_is_output = true}, Products{.k_relu = true},
                            Products{.constant_weights = false}}) {
    EXPECT_EQ(CountOf(After(p), "MatMul"), 3);
  }
}

TEST_F(MergeProductsTest, MergedAttentionRunsWithoutAKernelForIt) {
  // Goal: the merged form also lowers where a device has no kernel for a node of it. Method: a graph made for a device
  // with attention, run on the host with oneDNN, which has none, against the graph as it was.
  const std::vector<std::string> inputs = {ToBytes(Numbers(24, 1)), ToBytes(Numbers(24, 2))};
  const auto expected = Outputs(File({}), {kTokens, kTokens}, inputs, false);
  ASSERT_TRUE(expected.ok()) << expected.status();
  device_ = MakeDevice({});
  const auto actual = Outputs(File({}), {kTokens, kTokens}, inputs, true);
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_THAT(FromBytes<float>((*actual)[0]),
              ::testing::Pointwise(::testing::FloatNear(1e-4f), FromBytes<float>((*expected)[0])));
}

// Torch's multi-head attention works with the length first: swaps stand before its first product and behind its last.
std::string SwappedFile(bool reshaped, const Shape& last_swap, const Shape& bias) {
  OnnxWriter w(17);
  int64_t biases = 1;
  for (const int64_t dim : bias) biases *= dim;
  w.Input("x", kFp32, {2, 3, 4}).Output("y", kFp32, {2, 3, 5}).Floats("w", {4, 5}, std::vector<float>(20, 0.5f));
  w.Floats("b", bias, std::vector<float>(static_cast<size_t>(biases), 2))
      .Ints("flat", {2}, {6, 4})
      .Ints("deep", {3}, {3, 2, 5});
  w.Node("Transpose", {"x"}, {"s"}, {IntsAttribute("perm", {1, 0, 2})});
  if (reshaped) {
    w.Node("Reshape", {"s", "flat"}, {"f"}).Node("Gemm", {"f", "w", "b"}, {"g"}).Node("Reshape", {"g", "deep"}, {"p"});
  } else {
    w.Node("MatMul", {"s", "w"}, {"m"}).Node("Add", {"m", "b"}, {"p"});
  }
  return w.Node("Transpose", {"p"}, {"y"}, {IntsAttribute("perm", last_swap)}).Serialize();
}

TEST_F(MergeProductsTest, CancelsSwapsAroundProductsOfRows) {
  // Goal: swaps that undo each other around a product of rows vanish, and only those. Method: with a Reshape to rows
  // and without, against the graph as it was; a bias for each row, another order, no first swap.
  const std::vector<std::string> inputs = {ToBytes(Numbers(24, 3))};
  for (const bool reshaped : {false, true}) {
    const std::string file = SwappedFile(reshaped, {1, 0, 2}, {5});
    const auto graph = Simplified(file, {{2, 3, 4}}, true);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(CountOf(*graph, "Transpose"), 0);
    ExpectSameOutputs(file, {{2, 3, 4}}, inputs, reshaped ? "with Reshape" : "");
  }
  const auto by_row = Simplified(SwappedFile(false, {1, 0, 2}, {3, 1, 5}), {{2, 3, 4}}, true);
  ASSERT_TRUE(by_row.ok()) << by_row.status();
  EXPECT_EQ(CountOf(*by_row, "Transpose"), 2);
}

}  // namespace
}  // namespace sluice::model
