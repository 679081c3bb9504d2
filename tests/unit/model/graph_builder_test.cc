// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/registry.h"
#include "model/print.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphBuilderTest : public ModelTest {};

OnnxWriter Base(int64_t opset = 13) {
  OnnxWriter writer(opset);
  writer.Input("x", DataType::kFp32, {-1, 2}).Output("y", DataType::kFp32, {-1, 2});
  return writer;
}

TEST_F(GraphBuilderTest, PutsNodesInOrder) {
  // Goal: a file may list nodes in any order; the graph does not. Method: three nodes listed backwards.
  const auto graph =
      BuildGraphOf(Base().Node("Exp", {"b"}, {"y"}).Node("Tanh", {"a"}, {"b"}).Node("Relu", {"x"}, {"a"}).Serialize());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(OperatorNames(*graph), ElementsAre("Relu", "Tanh", "Exp"));
  EXPECT_THAT(PrintGraph(*graph), HasSubstr("y:INVALID[?] = Exp(b:INVALID[?])  # y_node"));
}

TEST_F(GraphBuilderTest, RefusesWhatIsNotAGraph) {
  // Goal: errors name node or value. Method: a table of files that parse but mean nothing, or nothing Sluice runs.
  const struct {
    std::string file;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {Base().Node("Relu", {"nowhere"}, {"y"}).Serialize(), absl::StatusCode::kInvalidArgument,
       "node 'y_node' (Relu): nothing produces its input 'nowhere'"},
      {Base().Node("Relu", {"x"}, {"z"}).Serialize(), absl::StatusCode::kInvalidArgument,
       "graph.output 'y': nothing produces it"},
      {Base().Node("Relu", {"x"}, {"y"}).Node("Tanh", {"x"}, {"y"}).Serialize(), absl::StatusCode::kInvalidArgument,
       "'y': the name is already taken"},
      {Base().Node("Relu", {"x"}, {"x"}).Serialize(), absl::StatusCode::kInvalidArgument, "already taken"},
      {Base().Node("Add", {"x", "b"}, {"a"}).Node("Relu", {"a"}, {"b"}).Node("Relu", {"a"}, {"y"}).Serialize(),
       absl::StatusCode::kInvalidArgument, "depends on its own result"},
      {Base().Node("Frobnicate", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented,
       "node 'y_node' (Frobnicate): this operator is not supported (domain ai.onnx, opset 13)"},
      {Base().Node("Gelu", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented, "not supported at opset 13"},
      {Base().Node("Relu", {"x"}, {"y"}, {}, "com.example").Serialize(), absl::StatusCode::kUnimplemented,
       "domain 'com.example'"},
      {Base().Node("Scaler", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented, "domain ai.onnx, opset 13"},
      {Base().Node("Scaler", {"x"}, {"y"}, {}, "ai.onnx.ml").Serialize(), absl::StatusCode::kInvalidArgument,
       "node 'y_node' (Scaler): no opset of its domain ai.onnx.ml is imported"},
      {Base().Import("ai.onnx.ml", 6).Node("Scaler", {"x"}, {"y"}, {}, "ai.onnx.ml").Serialize(),
       absl::StatusCode::kUnimplemented, "node 'y_node' (Scaler): opset 6 of domain ai.onnx.ml: supported are 1 to 5"},
      {Base().Import("ai.onnx.ml", 3).Node("TreeEnsembleRegressor", {"x"}, {"y"}, {}, "ai.onnx.ml").Serialize(),
       absl::StatusCode::kUnimplemented,
       "node 'y_node' (TreeEnsembleRegressor): this operator is not supported (domain ai.onnx.ml, opset 3)"},
      {Base().Import("ai.onnx.ml", 1).Node("Relu", {"x"}, {"y"}, {}, "ai.onnx.ml").Serialize(),
       absl::StatusCode::kUnimplemented, "(domain ai.onnx.ml, opset 1)"},
      {OnnxWriter()
           .Import("ai.onnx.ml", 1)
           .Input("x", DataType::kFp32, {-1, 2})
           .Node("ZipMap", {"x"}, {"y"}, {}, "ai.onnx.ml")
           .Map(12, "y")
           .Serialize(),
       absl::StatusCode::kUnimplemented,
       "node 'y_node' (ZipMap): this operator is not supported (domain ai.onnx.ml, opset 1); switch it off when "
       "exporting (skl2onnx: options={'zipmap': False})"},
      {Base().Map(11, "s").Node("Relu", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented,
       "graph.input 's': sequences, maps and optionals are not supported"},
      {Base().Map(12, "x").Node("Relu", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented,
       "graph.output 'x': sequences, maps and optionals are not supported"},
      {Base(6).Node("Relu", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented, "opset 6 of domain ai.onnx"},
      {Base(24).Node("Relu", {"x"}, {"y"}).Serialize(), absl::StatusCode::kUnimplemented, "opset 24"},
      {Base().Node("Add", {"x"}, {"y"}).Serialize(), absl::StatusCode::kInvalidArgument, "1 inputs; expected 2 to 2"},
      {Base().Node("Add", {"", "x"}, {"y"}).Serialize(), absl::StatusCode::kInvalidArgument, "required but left out"},
      {Base().Node("Conv", {"x", "x", "x", "x"}, {"y"}).Serialize(), absl::StatusCode::kInvalidArgument,
       "4 inputs; expected 2 to 3"},
      {Base().Node("Relu", {"x"}, {"y"}, {StringAttribute("sluice.activation", "Relu")}).Serialize(),
       absl::StatusCode::kInvalidArgument, "reserved"},
      {OnnxWriter().Input("x", DataType::kFp32, {1}).Node("Relu", {"x"}, {"y"}).Serialize(),
       absl::StatusCode::kInvalidArgument, "no outputs"},
      {Base().Output("y", DataType::kFp32, {1}).Node("Relu", {"x"}, {"y"}).Serialize(),
       absl::StatusCode::kInvalidArgument, "listed twice"},
      {Base().Node("MaxPool", {"x"}, {"y", "i"}).Output("i", DataType::kInt64, {1}).Serialize(),
       absl::StatusCode::kUnimplemented, "only the first 1 outputs"},
  };
  for (const auto& test : cases) {
    const absl::Status status = BuildGraphOf(test.file).status();
    EXPECT_EQ(status.code(), test.code) << test.message << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
}

TEST_F(GraphBuilderTest, SignatureLeavesInitializedInputsOut) {
  // Goal: an input with a default value is a constant. Method: a file of the old kind, which lists weights as inputs.
  const std::string file =
      Base().Input("w", DataType::kFp32, {2}).Floats("w", {2}, {1, 2}).Node("Mul", {"x", "w"}, {"y"}).Serialize();
  const auto graph = BuildGraphOf(file);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Signature signature = ReadSignature(*files_.back(), *graph);
  ASSERT_EQ(signature.inputs.size(), 1u);
  EXPECT_EQ(signature.inputs[0].name, "x");
  EXPECT_EQ(signature.inputs[0].dims, (Shape{-1, 2}));
  ASSERT_EQ(signature.outputs.size(), 1u);
  EXPECT_EQ(signature.outputs[0].type, DataType::kFp32);
}

TEST_F(GraphBuilderTest, UnreadOptionalOutputsAreDropped) {
  // Goal: exporters list a dropout's mask although nobody reads it. Method: such a node.
  const auto graph = BuildGraphOf(Base().Node("Dropout", {"x", "", ""}, {"y", "mask"}).Serialize());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->nodes[0].outputs.size(), 1u);
  EXPECT_EQ(graph->nodes[0].inputs.size(), 1u);
}

TEST(RegistryTest, EntriesAreUniqueAndComplete) {
  // Goal: the tables have no contradictions. Method: every entry is found by its name at both ends of its range, and by
  // nobody else's, in its own domain alone; what passes alone make is known to no file.
  for (const OperatorDomain& domain : OperatorDomains()) {
    EXPECT_EQ(FindDomain(domain.name), &domain);
    for (const OperatorEntry& entry : domain.operators) {
      EXPECT_EQ(domain.Find(entry.name, entry.min_opset), &entry) << std::string(entry.name);
      EXPECT_EQ(domain.Find(entry.name, entry.max_opset), &entry) << std::string(entry.name);
      const bool internal = entry.max_opset == kInternalOpset;
      EXPECT_GE(entry.min_opset, internal ? kInternalOpset : domain.min_opset) << std::string(entry.name);
      EXPECT_LE(entry.max_opset, domain.max_opset) << std::string(entry.name);
      EXPECT_LE(entry.min_inputs, entry.max_inputs);
      EXPECT_NE(entry.infer, nullptr);
      for (const OperatorDomain& other : OperatorDomains()) {
        EXPECT_EQ(other.Knows(entry.name), &other == &domain && !internal) << std::string(entry.name);
      }
    }
  }
  EXPECT_EQ(FindDomain(""), FindDomain("ai.onnx"));
  EXPECT_EQ(FindDomain("com.example"), nullptr);
  EXPECT_EQ(FindOperator("Loop", 13), nullptr);
  EXPECT_FALSE(FindDomain("ai.onnx")->Knows("Loop"));
}

}  // namespace
}  // namespace sluice::model
