// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "attention_harness.h"
#include "model/ops/operators.h"
#include "model/passes/passes.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

// All lengths that a wrong order could mistake for another are equal: only the order itself tells.
constexpr int64_t kBatch = 2, kLength = 4, kHeads = 4, kSize = 4, kWidth = kHeads * kSize;

constexpr DataType kFp32 = DataType::kFp32;

/// One way to write attention. The default is the TorchScript exporter's, eager, with a mask.
struct Spelling {
  int64_t opset = 17;
  Shape q_turn = {0, 2, 1, 3}, k_turn = {0, 2, 3, 1}, v_turn = {0, 2, 1, 3}, output_turn = {0, 2, 1, 3};
  Shape k_turn_again = {};    ///< A second Transpose; none.
  bool k_by_reshape = false;  ///< The heads merged with the batch around that second Transpose.
  std::string scale = "Div";  ///< Of the scores; empty for none.
  Shape scale_dims = {};
  bool scales_operands = false;
  Shape mask = {kBatch, 1, 1, kLength};  ///< Empty for none.
  bool constant_mask = false;
  bool guard = false;
  float guard_value = 0;
  int64_t axis = -1;
  int64_t values_length = kLength;
  std::vector<std::string> more_outputs = {};
  std::string between = "";  ///< Operator between softmax and V.
  bool ends = false;         ///< Without the last Transpose and Reshape.
};

std::string File(const Spelling& s) {
  const Shape tokens = {kBatch, kLength, kWidth}, heads = {kBatch, kHeads, kLength, kSize};
  OnnxWriter w(s.opset);
  w.Input("q", kFp32, tokens).Input("k", kFp32, tokens).Input("v", kFp32, tokens);
  w.Ints("split", {4}, {kBatch, kLength, kHeads, kSize}).Ints("join", {3}, tokens);
  int64_t scales = 1;
  for (const int64_t dim : s.scale_dims) scales *= dim;
  w.Floats("scale", s.scale_dims, std::vector<float>(static_cast<size_t>(scales), s.scale == "Div" ? 2.0f : 0.5f));
  for (const char* name : {"q", "k", "v"}) w.Node("Reshape", {name, "split"}, {absl::StrCat(name, "_split")});
  w.Node("Transpose", {"q_split"}, {"q_heads"}, {IntsAttribute("perm", s.q_turn)});
  w.Node("Transpose", {"k_split"}, {"k_once"}, {IntsAttribute("perm", s.k_turn)});
  w.Node("Transpose", {"v_split"}, {"v_heads"}, {IntsAttribute("perm", s.v_turn)});
  std::string q = "q_heads", k = "k_once";
  if (s.k_by_reshape) {
    w.Ints("flat", {3}, {kBatch * kHeads, kLength, kSize}).Ints("deep", {4}, {kBatch, kHeads, kSize, kLength});
    w.Node("Reshape", {k, "flat"}, {"k_flat"});
    w.Node("Transpose", {"k_flat"}, {"k_turned"}, {IntsAttribute("perm", {0, 2, 1})});
    w.Node("Reshape", {"k_turned", "deep"}, {"k_heads"});
    k = "k_heads";
  } else if (!s.k_turn_again.empty()) {
    w.Node("Transpose", {k}, {"k_heads"}, {IntsAttribute("perm", s.k_turn_again)});
    k = "k_heads";
  }
  if (s.scales_operands) {
    w.Floats("root", {}, {0.75f}).Node("Mul", {q, "root"}, {"q_scaled"}).Node("Mul", {"root", k}, {"k_scaled"});
    q = "q_scaled", k = "k_scaled";
  }
  w.Node("MatMul", {q, k}, {"product"});
  std::string scores = "product";
  if (!s.scale.empty()) {
    w.Node(s.scale, {scores, "scale"}, {"scaled"});
    scores = "scaled";
  }
  if (!s.mask.empty()) {
    int64_t count = 1;
    for (const int64_t dim : s.mask) count *= dim;
    std::vector<float> mask(static_cast<size_t>(count));
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 0 ? -1e30f : static_cast<float>(i % 5) * 0.25f;
    if (s.constant_mask) w.Floats("mask", s.mask, mask);
    if (!s.constant_mask) w.Input("mask", kFp32, s.mask);
    w.Node("Add", {scores, "mask"}, {"masked"});
    scores = "masked";
  }
  w.Node("Softmax", {scores}, {"softmax"}, {IntAttribute("axis", s.axis)});
  std::string weights = "softmax";
  if (s.guard) {
    w.Floats("zero", {1}, {s.guard_value}).Node("IsNaN", {weights}, {"is_nan"});
    w.Node("Where", {"is_nan", "zero", weights}, {"guarded"});
    weights = "guarded";
  }
  if (!s.between.empty()) {
    w.Node(s.between, {weights}, {"between"});
    weights = "between";
  }
  w.Node("MatMul", {weights, "v_heads"}, {"sums"});
  if (s.ends) return w.Output("sums", kFp32, heads).Serialize();
  w.Node("Transpose", {"sums"}, {"turned"}, {IntsAttribute("perm", s.output_turn)});
  w.Node("Reshape", {"turned", "join"}, {"y"}).Output("y", kFp32, tokens);
  for (const std::string& more : s.more_outputs) w.Output(more, kFp32, {kBatch, kHeads, kLength, kLength});
  return w.Serialize();
}

std::vector<Shape> ShapesOf(const Spelling& s) {
  std::vector<Shape> shapes(3, Shape{kBatch, kLength, kWidth});
  if (!s.mask.empty() && !s.constant_mask) shapes.push_back(s.mask);
  return shapes;
}

class FuseAttentionTest : public AttentionPassTest {
 protected:
  std::vector<std::string> InputsOf(const std::vector<Shape>& shapes) {
    std::vector<std::string> inputs;
    for (const Shape& shape : shapes) {
      size_t count = 1;
      for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
      inputs.push_back(ToBytes(Numbers(count, static_cast<uint32_t>(inputs.size()))));
    }
    return inputs;
  }

  void ExpectFused(const Spelling& s, const std::string& what) {
    const auto graph = Simplified(File(s), ShapesOf(s), true);
    ASSERT_TRUE(graph.ok()) << what << ": " << graph.status();
    EXPECT_THAT(OperatorNames(*graph), ::testing::ElementsAre("Attention")) << what;
    ExpectSameOutputs(File(s), ShapesOf(s), InputsOf(ShapesOf(s)), what);
  }

  void ExpectAlone(const Spelling& s, const std::string& what) {
    const auto graph = Simplified(File(s), ShapesOf(s), true);
    ASSERT_TRUE(graph.ok()) << what << ": " << graph.status();
    EXPECT_EQ(CountOf(*graph, "Attention"), 0) << what;
    EXPECT_EQ(CountOf(*graph, "Softmax"), 1) << what;
  }
};

TEST_F(FuseAttentionTest, FindsEverySpelling) {
  // Goal: what the exporters write becomes one node, which computes the same. Method: each difference on its own; the
  // graph, and its outputs with and without the pass.
  ExpectFused({}, "as is");
  ExpectFused({.scale = "Mul"}, "Mul");
  ExpectFused({.scale = ""}, "no scale");
  ExpectFused({.scale_dims = {1}}, "a scale of one dimension");
  ExpectFused({.mask = {}}, "no mask");
  ExpectFused({.mask = {kBatch, 1, kLength, kLength}}, "a mask for each query");
  ExpectFused({.mask = {kLength, kLength}}, "a mask of two dimensions");
  ExpectFused({.constant_mask = true}, "a constant mask");
  ExpectFused({.scale = "", .constant_mask = true}, "a constant mask that is the product's bias");
  ExpectFused({.k_turn = {0, 2, 1, 3}, .k_turn_again = {0, 1, 3, 2}}, "keys turned twice");
  ExpectFused({.k_turn = {0, 2, 1, 3}, .k_by_reshape = true, .scale = "", .scales_operands = true, .guard = true},
              "scaled_dot_product_attention");
  ExpectFused({.opset = 12, .axis = 3}, "an old Softmax");
  ExpectFused({.opset = 23}, "a new opset");
}

TEST_F(FuseAttentionTest, LeavesOthersAlone) {
  // Goal: no wrong rewrite where shapes alone would allow one, and none of what others read. Method: one thing changed
  // at a time in a network whose lengths, heads and sizes are equal.
  const Shape as_is = {0, 1, 2, 3}, keys_last = {0, 2, 3, 1};
  ExpectAlone({.q_turn = as_is}, "queries of other heads");
  ExpectAlone({.q_turn = keys_last}, "queries turned");
  ExpectAlone({.k_turn = {0, 2, 1, 3}}, "keys not turned");
  ExpectAlone({.k_turn = {0, 1, 3, 2}}, "keys of other heads");
  ExpectAlone({.k_turn = {0, 1, 2, 3}, .k_by_reshape = true}, "keys of other heads, by a Reshape");
  ExpectAlone({.v_turn = keys_last}, "values turned");
  ExpectAlone({.v_turn = as_is}, "values of other heads");
  ExpectAlone({.output_turn = {0, 1, 2, 3}}, "a result by heads");
  ExpectAlone({.output_turn = {0, 3, 1, 2}}, "a result turned");
  ExpectAlone({.output_turn = {1, 2, 0, 3}}, "a result by heads and length");
  ExpectAlone({.ends = true}, "a result that is the graph's");
  ExpectAlone({.more_outputs = {"softmax"}}, "weights that are an output");
  ExpectAlone({.more_outputs = {"product"}}, "products that are an output");
  ExpectAlone({.more_outputs = {"scaled"}}, "scores that are an output");
  ExpectAlone({.more_outputs = {"masked"}}, "masked scores that are an output");
  ExpectAlone({.guard = true, .more_outputs = {"softmax"}}, "guarded weights that are an output");
  ExpectAlone({.guard = true, .guard_value = 1}, "a guard with another value");
  ExpectAlone({.axis = 2}, "softmax over queries");
  ExpectAlone({.opset = 12, .axis = 2}, "an old Softmax over more");
  ExpectAlone({.scale_dims = {kLength}}, "a scale for each key");
  ExpectAlone({.scale = "Sub"}, "a shift");
  ExpectAlone({.between = "Relu"}, "an activation between");
}

TEST_F(FuseAttentionTest, ScaleOfMaskedScoresIsNotTheScores) {
  // Goal: a scale after a constant mask, which FuseBias has put into the product, would scale the mask too. Method:
  // such a network, whose operators are otherwise those of an attention.
  const Shape tokens = {1, 4, 8};
  OnnxWriter w(17);
  w.Input("x", kFp32, tokens).Output("y", kFp32, tokens);
  w.Ints("split", {4}, {1, 4, 2, 4}).Ints("join", {3}, tokens).Floats("mask", {4}, {0, 1, 2, 3});
  w.Floats("scale", {}, {0.5f});
  w.Node("Reshape", {"x", "split"}, {"s"}).Node("Transpose", {"s"}, {"q"}, {IntsAttribute("perm", {0, 2, 1, 3})});
  w.Node("Transpose", {"s"}, {"k"}, {IntsAttribute("perm", {0, 2, 3, 1})});
  w.Node("MatMul", {"q", "k"}, {"p"}).Node("Add", {"p", "mask"}, {"m"}).Node("Mul", {"m", "scale"}, {"a"});
  w.Node("Softmax", {"a"}, {"b"}, {IntAttribute("axis", -1)}).Node("MatMul", {"b", "q"}, {"c"});
  w.Node("Transpose", {"c"}, {"d"}, {IntsAttribute("perm", {0, 2, 1, 3})}).Node("Reshape", {"d", "join"}, {"y"});
  const auto graph = Simplified(w.Serialize(), {tokens}, true);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(CountOf(*graph, "Attention"), 0);
}

TEST_F(FuseAttentionTest, TurnsAttentionByHeadsToTokens) {
  // Goal: an Attention node between Transposes takes tokens as they are, with its scale, mask and causality. Method:
  // with and without each, against the graph as it was; by heads that differ it stays.
  const Shape tokens = {2, 3, 8};
  const auto file = [&](const std::vector<std::string>& attributes, bool masked, int64_t kv_heads) {
    OnnxWriter w(23);
    const Shape kv = {2, 3, kv_heads * 4};
    w.Input("q", kFp32, tokens).Input("k", kFp32, kv).Input("v", kFp32, kv).Output("y", kFp32, tokens);
    w.Ints("split", {4}, {2, 3, 2, 4}).Ints("kv_split", {4}, {2, 3, kv_heads, 4}).Ints("join", {3}, tokens);
    std::vector<std::string> inputs;
    for (const std::string name : {"q", "k", "v"}) {
      w.Node("Reshape", {name, name == "q" ? "split" : "kv_split"}, {name + "s"});
      w.Node("Transpose", {name + "s"}, {name + "h"}, {IntsAttribute("perm", {0, 2, 1, 3})});
      inputs.push_back(name + "h");
    }
    if (masked) {
      w.Initializer(RawTensor<uint8_t>("mask", DataType::kBool, {2, 1, 1, 3}, {1, 0, 1, 1, 1, 0}));
      inputs.emplace_back("mask");
    }
    w.Node("Attention", inputs, {"a"}, attributes);
    w.Node("Transpose", {"a"}, {"t"}, {IntsAttribute("perm", {0, 2, 1, 3})}).Node("Reshape", {"t", "join"}, {"y"});
    return w.Serialize();
  };
  const std::vector<Shape> shapes(3, tokens);
  for (const bool masked : {false, true}) {
    for (const std::vector<std::string>& attributes :
         {std::vector<std::string>{}, {FloatAttribute("scale", 0.7f)}, {IntAttribute("is_causal", 1)}}) {
      const auto graph = Simplified(file(attributes, masked, 2), shapes, true);
      ASSERT_TRUE(graph.ok()) << graph.status();
      EXPECT_THAT(OperatorNames(*graph), ::testing::ElementsAre("Attention"));
      ExpectSameOutputs(file(attributes, masked, 2), shapes, InputsOf(shapes), "");
    }
  }
  const auto grouped = Simplified(file({}, false, 1), {tokens, {2, 3, 4}, {2, 3, 4}}, true);
  ASSERT_TRUE(grouped.ok()) << grouped.status();
  EXPECT_EQ(CountOf(*grouped, "Transpose"), 4);
}

/// Q, K and V cut out of one product in one of the ways that exporters have; the mask is left out.
std::string PackedFile(const std::string& way, int64_t batch) {
  const int64_t length = 5, heads = 2, size = 3, width = heads * size;
  const bool length_first = way == "length first";
  const Shape tokens = length_first ? Shape{length, batch, width} : Shape{batch, length, width};
  OnnxWriter w(17);
  w.Input("x", kFp32, {tokens[0], tokens[1], 3 * width}).Output("y", kFp32, tokens).Ints("join", {3}, tokens);
  std::vector<std::string> parts = {"q", "k", "v"};
  if (way == "gather") {
    w.Ints("five", {5}, {batch, length, 3, heads, size}).Node("Reshape", {"x", "five"}, {"r"});
    w.Node("Transpose", {"r"}, {"t"}, {IntsAttribute("perm", {2, 0, 3, 1, 4})});
    for (int64_t i = 0; i < 3; ++i) {
      w.Ints("i" + std::to_string(i), {}, {i - (i == 2 ? 3 : 0)});
      w.Node("Gather", {"t", "i" + std::to_string(i)}, {parts[static_cast<size_t>(i)]});
    }
  } else {
    w.Ints("thirds", {3}, {width, width, width})
        .Node("Split", {"x", "thirds"}, {"qs", "ks", "vs"}, {IntAttribute("axis", 2)});
    w.Ints("four", {4}, {tokens[0], tokens[1], heads, size});
    for (const std::string& part : parts) {
      w.Node("Reshape", {part + "s", "four"}, {part + "r"});
      const Shape turn = length_first ? Shape{1, 2, 0, 3} : Shape{0, 2, 1, 3};
      w.Node("Transpose", {part + "r"}, {part}, {IntsAttribute("perm", turn)});
    }
  }
  if (way == "order") std::swap(parts[0], parts[1]);
  w.Node("Transpose", {parts[1]}, {"kt"}, {IntsAttribute("perm", {0, 1, 3, 2})});
  w.Node("MatMul", {parts[0], "kt"}, {"p"}).Node("Softmax", {"p"}, {"s"}, {IntAttribute("axis", -1)});
  w.Node("MatMul", {"s", parts[2]}, {"a"});
  w.Node("Transpose", {"a"}, {"t2"}, {IntsAttribute("perm", length_first ? Shape{2, 0, 1, 3} : Shape{0, 2, 1, 3})});
  return w.Node("Reshape", {"t2", "join"}, {"y"}).Serialize();
}

TEST_F(FuseAttentionTest, TakesThePartsOfOneProduct) {
  // Goal: Q, K and V as thirds of one value are read where they are, batch or length first; thirds in another order are
  // read as values of their own. Method: the merged attribute, and outputs with and without the pass.
  for (const std::string way : {"gather", "split", "length first", "order"}) {
    for (const int64_t batch : {1, 3}) {
      const std::string file = PackedFile(way, batch), what = absl::StrCat(way, ", batch ", batch);
      const Shape shape = way == "length first" ? Shape{5, batch, 18} : Shape{batch, 5, 18};
      const auto graph = Simplified(file, {shape}, true);
      ASSERT_TRUE(graph.ok()) << what << graph.status();
      ASSERT_EQ(CountOf(*graph, "Attention"), 1) << what;
      EXPECT_EQ(CountOf(*graph, "Transpose"), way == "length first" && batch > 1 ? 2 : 0) << what;
      for (const Node& node : graph->nodes) {
        if (node.entry->name != "Attention") continue;
        EXPECT_EQ(node.FindAttribute(kMergedAttribute) != nullptr, way != "order") << what;
      }
      ExpectSameOutputs(file, {shape}, InputsOf({shape}), what);
    }
  }
}

TEST_F(FuseAttentionTest, MasksOfNothingGiveZeros) {
  // Goal: what torch's guard against NaN promises, a query that sees no key gives zeros, holds without it. Method: the
  // guarded spelling under a mask of minus infinity everywhere for one batch element.
  Spelling s{.k_turn = {0, 2, 1, 3}, .k_by_reshape = true, .guard = true};
  std::vector<std::string> inputs = InputsOf(ShapesOf(s));
  std::vector<float> mask(kBatch * kLength, 0);
  std::fill(mask.begin(), mask.begin() + kLength, -std::numeric_limits<float>::infinity());
  inputs.back() = ToBytes(mask);
  ExpectSameOutputs(File(s), ShapesOf(s), inputs, "all masked");
}

// Small networks of every exporter (tests/models/README.md); each has two attentions.
class SmallNetworks : public AttentionPassTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SmallNetworks, HaveTheirAttentionFound) {
  // Goal: every attention of real exports is found, reads one merged product, and the networks compute the same.
  // Method: the graphs' nodes, and outputs with and without the passes, at one row and at several.
  std::ifstream in(absl::StrCat(SLUICE_SOURCE_DIR, "/tests/models/small/", GetParam(), "/1/model.onnx"),
                   std::ios::binary);
  std::stringstream file;
  file << in.rdbuf();
  auto unbound = BuildGraphOf(file.str());
  ASSERT_TRUE(unbound.ok()) << unbound.status();
  const Signature signature = ReadSignature(*files_.back(), *unbound);
  for (const int64_t rows : {1, 3}) {
    std::vector<Shape> shapes;
    std::vector<std::string> inputs;
    for (const TensorSignature& input : signature.inputs) {
      Shape& shape = shapes.emplace_back(input.dims);
      for (size_t i = 0; i < shape.size(); ++i) shape[i] = shape[i] >= 0 ? shape[i] : i == 0 ? rows : 16;
      size_t count = 1;
      for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
      std::vector<int64_t> indices(count);
      for (size_t i = 0; i < count; ++i) {
        indices[i] = input.name == "attention_mask"
                         ? i % 16 < 11
                         : static_cast<int64_t>(i * 7 % (input.name == "input_ids" ? 90 : 2));
      }
      inputs.push_back(input.type == kFp32 ? ToBytes(Numbers(count, 1)) : ToBytes(indices));
    }
    const auto graph = Simplified(file.str(), shapes, true);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(CountOf(*graph, "Attention"), 2);
    EXPECT_EQ(CountOf(*graph, "Softmax"), 0);
    for (const Node& node : graph->nodes) {
      EXPECT_EQ(node.FindAttribute(kMergedAttribute) != nullptr, node.entry->name == "Attention") << node.name;
    }
    ExpectSameOutputs(file.str(), shapes, inputs, absl::StrCat(GetParam(), " ", rows));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmallNetworks,
                         ::testing::Values("bert_dy18_eager", "bert_dy18_sdpa", "bert_dy20_eager", "bert_dy20_sdpa",
                                           "bert_dy23_eager", "bert_dy23_sdpa", "bert_ts14_eager", "bert_ts14_sdpa",
                                           "bert_ts17_eager", "bert_ts17_sdpa", "vit_b_16_dy18"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice::model
