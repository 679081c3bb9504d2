// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/passes/passes.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

using MergeEqualNodesTest = ModelTest;

TEST_F(MergeEqualNodesTest, MergesChainsOverEqualConstants) {
  // Goal: what two layers make of the same is made once, also through several nodes and with constants of their own of
  // equal bytes; what differs in an attribute, a constant or the order of inputs stays. Method: two equal chains, and
  // three nodes that are nearly equal.
  Graph graph = Bound(OnnxWriter()
                          .Input("x", DataType::kFp32, {-1, 2})
                          .Output("y", DataType::kFp32, {-1, 2})
                          .Floats("a", {2}, {1, 2})
                          .Floats("b", {2}, {1, 2})
                          .Floats("c", {2}, {1, 3})
                          .Node("Sub", {"x", "a"}, {"first"})
                          .Node("Relu", {"first"}, {"first_relu"})
                          .Node("Sub", {"x", "b"}, {"second"})
                          .Node("Relu", {"second"}, {"second_relu"})
                          .Node("Sub", {"x", "c"}, {"other"})
                          .Node("Sub", {"a", "x"}, {"turned"})
                          .Node("Softmax", {"x"}, {"rows"}, {IntAttribute("axis", 1)})
                          .Node("Softmax", {"x"}, {"columns"}, {IntAttribute("axis", 0)})
                          .Node("Sum", {"first_relu", "second_relu", "other", "turned", "rows", "columns"}, {"y"})
                          .Serialize(),
                      {{3, 2}});
  MergeEqualNodes(graph);
  ASSERT_THAT(OperatorNames(graph), ElementsAre("Sub", "Relu", "Sub", "Sub", "Softmax", "Softmax", "Sum"));
  EXPECT_EQ(graph.nodes.back().inputs[0], graph.nodes.back().inputs[1]);
}

TEST_F(MergeEqualNodesTest, OutputsKeepTheirNodes) {
  // Goal: two outputs of a model stay two tensors. Method: two equal nodes, both outputs, and a third that is not.
  Graph graph = Bound(OnnxWriter()
                          .Input("x", DataType::kFp32, {-1, 2})
                          .Output("y", DataType::kFp32, {-1, 2})
                          .Output("z", DataType::kFp32, {-1, 2})
                          .Node("Relu", {"x"}, {"y"})
                          .Node("Relu", {"x"}, {"z"})
                          .Serialize(),
                      {{1, 2}});
  MergeEqualNodes(graph);
  EXPECT_THAT(OperatorNames(graph), ElementsAre("Relu", "Relu"));
}

}  // namespace
}  // namespace sluice::model
