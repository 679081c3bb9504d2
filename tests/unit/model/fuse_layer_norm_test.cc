// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "model/passes/passes.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Not;
using ::testing::Pointwise;

constexpr DataType kFp32 = DataType::kFp32;
const Shape kInput = {2, 3, 4};

/// One way to write layer normalisation. The default is the TorchScript exporter's below opset 17.
struct Spelling {
  int64_t opset = 14;
  std::vector<int64_t> axes = {-1};
  std::vector<int64_t> variance_axes = {};  ///< Others than `axes`.
  std::string square = "Pow";               ///< Or Mul.
  float exponent = 2;
  std::string inverse = "Div";    ///< By the root; or Reciprocal, One (1 / root), Power (to -0.5) and Mul.
  bool scales_inverse = false;    ///< Mul(x - mean, inverse * scale).
  bool factored = false;          ///< x * factor + (bias - mean * factor), or without bias a difference.
  bool twice = false;             ///< x - mean is computed twice.
  Shape scale = {4}, bias = {4};  ///< Empty for none.
  bool bias_first = false;
  std::string more_output = "";  ///< A value that is an output of the graph too.
};

std::vector<float> Filled(const Shape& dims, float first) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i) * 0.25f);
  return values;
}

std::string File(const Spelling& s) {
  OnnxWriter w(s.opset);
  w.Input("x", kFp32, kInput).Output("y", kFp32, kInput);
  if (!s.more_output.empty()) w.Output(s.more_output, kFp32, Shape(3, -1));
  w.Floats("two", {}, {s.exponent}).Floats("one", {}, {1}).Floats("epsilon", {}, {0.125f}).Floats("power", {}, {-0.5f});
  if (!s.scale.empty()) w.Floats("scale", s.scale, Filled(s.scale, 0.5f));
  if (!s.bias.empty()) w.Floats("bias", s.bias, Filled(s.bias, -1));
  const auto mean = [&](const std::string& from, const std::string& to, const std::vector<int64_t>& axes) {
    if (s.opset < 18) {
      w.Node("ReduceMean", {from}, {to}, {IntsAttribute("axes", axes)});
      return;
    }
    w.Ints(to + "_axes", {static_cast<int64_t>(axes.size())}, axes);
    w.Node("ReduceMean", {from, to + "_axes"}, {to});
  };
  mean("x", "mean", s.axes);
  w.Node("Sub", {"x", "mean"}, {"d"});
  if (s.twice) w.Node("Sub", {"x", "mean"}, {"again"});
  if (s.square == "Pow") w.Node("Pow", {"d", "two"}, {"square"});
  if (s.square == "Mul") w.Node("Mul", {"d", "d"}, {"square"});
  mean("square", "variance", s.variance_axes.empty() ? s.axes : s.variance_axes);
  w.Node("Add", {"variance", "epsilon"}, {"v"});
  if (s.inverse != "Power") w.Node("Sqrt", {"v"}, {"root"});
  std::string inverse = "inverse";
  if (s.inverse == "Reciprocal") w.Node("Reciprocal", {"root"}, {"inverse"});
  if (s.inverse == "One") w.Node("Div", {"one", "root"}, {"inverse"});
  if (s.inverse == "Power") w.Node("Pow", {"v", "power"}, {"inverse"});
  if (s.scales_inverse || (s.factored && !s.scale.empty())) {
    w.Node("Mul", {"inverse", "scale"}, {"factor"});
    inverse = "factor";
  }
  if (s.factored) {
    w.Node("Mul", {"x", inverse}, {"xk"}).Node("Mul", {"mean", inverse}, {"mk"});
    if (s.bias.empty()) return w.Node("Sub", {"xk", "mk"}, {"y"}).Serialize();
    return w.Node("Sub", {"bias", "mk"}, {"shift"}).Node("Add", {"xk", "shift"}, {"y"}).Serialize();
  }
  const std::string difference = s.twice ? "again" : "d";
  const bool scaled = !s.scale.empty() && !s.scales_inverse;
  const std::string normal = scaled ? "n" : s.bias.empty() ? "y" : "scaled";
  if (s.inverse == "Div") w.Node("Div", {difference, "root"}, {normal});
  if (s.inverse != "Div") w.Node("Mul", {inverse, difference}, {normal});
  if (scaled) w.Node("Mul", {"n", "scale"}, {s.bias.empty() ? "y" : "scaled"});
  if (s.bias.empty()) return w.Serialize();
  return w
      .Node("Add",
            s.bias_first ? std::vector<std::string>{"bias", "scaled"} : std::vector<std::string>{"scaled", "bias"},
            {"y"})
      .Serialize();
}

/// Of the input to every test.
std::vector<float> Values() {
  std::vector<float> values;
  for (int i = 0; i < 24; ++i) values.push_back(std::sin(static_cast<float>(i * i)) * 3 + 10);
  return values;
}

class FuseLayerNormTest : public ModelTest {
 protected:
  Graph After(const std::string& file) {
    Graph graph = Bound(file, {kInput});
    MergeEqualNodes(graph);
    FuseLayerNorm(graph);
    return graph;
  }
  /// By the formula, over the last `length` elements.
  static std::vector<float> Expected(const Spelling& s, size_t length) {
    const std::vector<float> x = Values(), scale = Filled(s.scale, 0.5f), bias = Filled(s.bias, -1);
    std::vector<float> result;
    for (size_t i = 0; i < x.size(); ++i) {
      const float* row = x.data() + i / length * length;
      double mean = 0, variance = 0;
      for (size_t k = 0; k < length; ++k) mean += row[k] / static_cast<double>(length);
      for (size_t k = 0; k < length; ++k) variance += (row[k] - mean) * (row[k] - mean) / static_cast<double>(length);
      result.push_back(
          static_cast<float>((x[i] - mean) / std::sqrt(variance + 0.125) * (s.scale.empty() ? 1 : scale[i % length]) +
                             (s.bias.empty() ? 0 : bias[i % length])));
    }
    return result;
  }
};

TEST_F(FuseLayerNormTest, FusesEverySpelling) {
  // Goal: each way to write it is one LayerNormalization with the right epsilon, scale and bias. Method: the graph, and
  // the outputs of the whole way against the formula.
  const std::vector<Spelling> spellings = {
      {},
      {.opset = 18},
      {.axes = {2}},
      {.square = "Mul"},
      {.twice = true},
      {.square = "Mul", .inverse = "Reciprocal"},
      {.inverse = "One"},
      {.inverse = "Power"},
      {.inverse = "Reciprocal", .scales_inverse = true},
      {.square = "Mul", .inverse = "Reciprocal", .factored = true},
      {.inverse = "Reciprocal", .factored = true, .bias = {}},
      {.inverse = "Reciprocal", .factored = true, .scale = {}},
      {.scale = {}},
      {.bias = {}},
      {.scale = {}, .bias = {}},
      {.scale = {1, 1, 4}, .bias = {1, 4}, .bias_first = true},
      {.axes = {-2, -1}, .scale = {3, 4}, .bias = {1, 3, 4}},
      {.axes = {2, 1}, .scale = {3, 4}, .bias = {}},
  };
  for (size_t i = 0; i < spellings.size(); ++i) {
    const Spelling& s = spellings[i];
    const Graph graph = After(File(s));
    ASSERT_THAT(OperatorNames(graph), ElementsAre("LayerNormalization")) << "spelling " << i;
    const size_t length = s.axes.size() == 1 ? 4 : 12;
    const Shape normalized = length == 4 ? Shape{4} : Shape{3, 4};
    const Node& norm = graph.nodes[0];
    EXPECT_EQ(norm.inputs.size(), s.bias.empty() ? 2 : 3) << "spelling " << i;
    for (size_t k = 1; k < norm.inputs.size(); ++k) EXPECT_EQ(*graph.value(norm.inputs[k]).dims, normalized);
    const auto outputs = Run(File(s), {kInput}, {ToBytes(Values())});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-5f), Expected(s, length))) << "spelling " << i;
  }
}

TEST_F(FuseLayerNormTest, LeavesOthersAlone) {
  // Goal: what is not layer normalisation over the last dimensions, or is read elsewhere, stays. Method: one difference
  // at a time.
  for (const Spelling& s :
       {Spelling{.axes = {1}, .scale = {}, .bias = {}}, Spelling{.axes = {0, 2}, .scale = {}, .bias = {}},
        Spelling{.axes = {-1}, .variance_axes = {1}}, Spelling{.exponent = 3}, Spelling{.more_output = "mean"},
        Spelling{.more_output = "d"}, Spelling{.more_output = "root"}}) {
    EXPECT_THAT(OperatorNames(After(File(s))), Not(Contains("LayerNormalization")));
  }
}

TEST_F(FuseLayerNormTest, StopsWhereParametersDoNotFit) {
  // Goal: a scale or bias of another shape, or a result that others read in between, ends the normalisation before it.
  // Method: the nodes that are left.
  EXPECT_THAT(OperatorNames(After(File({.scale = {3, 4}}))), ElementsAre("LayerNormalization", "Mul", "Add"));
  EXPECT_THAT(OperatorNames(After(File({.scale = {1}}))), ElementsAre("LayerNormalization", "Mul", "Add"));
  EXPECT_THAT(OperatorNames(After(File({.bias = {3, 4}}))), ElementsAre("LayerNormalization", "Add"));
  EXPECT_THAT(OperatorNames(After(File({.more_output = "scaled"}))), ElementsAre("LayerNormalization", "Add"));
  EXPECT_THAT(OperatorNames(After(File({.more_output = "n"}))), ElementsAre("LayerNormalization", "Mul", "Add"));
}

TEST_F(FuseLayerNormTest, NothingIsLeftOfThoseInBert) {
  // Goal: the five of a BERT of two layers, as the exporter writes them at opset 14. Method: the small one under
  // tests/models, bound to two rows.
  std::ifstream stream(SLUICE_SOURCE_DIR "/tests/models/small/bert_ts14_eager/1/model.onnx", std::ios::binary);
  ASSERT_TRUE(stream.is_open());
  std::stringstream file;
  file << stream.rdbuf();
  Graph graph = Bound(file.str(), std::vector<Shape>(3, Shape{2, 16}));
  FuseLayerNorm(graph);
  const std::vector<std::string> names = OperatorNames(graph);
  EXPECT_THAT(names, Contains("LayerNormalization").Times(5));
  EXPECT_THAT(names, Not(Contains(AnyOf("ReduceMean", "Sqrt", "Sub"))));
}

}  // namespace
}  // namespace sluice::model
