// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

bool TakesActivation(absl::string_view name) {
  return name == "Conv" || name == "MatMul" || name == "Gemm" || name == "BatchNormalization" || name == "Add" ||
         name == "Sub" || name == "Mul" || name == "Div";
}

/// What a node applies to its input as an activation; empty for anything else.
absl::string_view ActivationOf(Graph& graph, size_t node, bool gelu) {
  const absl::string_view name = graph.nodes[node].entry->name;
  if (name == "Relu") return "Relu";
  if (name != "Gelu" || !gelu) return "";
  // The other form is an approximation that kernels would have to know too.
  const absl::StatusOr<absl::string_view> form = NodeContext(graph, node).String("approximate", "none");
  return form.ok() && *form == "none" ? "Gelu" : "";
}

}  // namespace

void FuseActivation(Graph& graph, bool gelu) {
  const std::vector<int> uses = graph.UseCounts();
  const std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const absl::string_view activation = ActivationOf(graph, i, gelu);
    if (activation.empty()) continue;
    const auto input = static_cast<size_t>(graph.nodes[i].inputs[0]);
    if (producers[input] < 0 || uses[input] != 1 || graph.values[input].type != DataType::kFp32) continue;
    const auto producer = static_cast<size_t>(producers[input]);
    const absl::string_view name = graph.nodes[producer].entry->name;
    if (!TakesActivation(name) || (activation == "Gelu" && name != "MatMul" && name != "Gemm") ||
        graph.nodes[producer].FindAttribute(kActivationAttribute) != nullptr ||
        graph.nodes[producer].outputs.size() != 1) {
      continue;
    }
    Node fused = std::move(graph.nodes[producer]);
    fused.outputs = graph.nodes[i].outputs;
    fused.SetAttribute(kActivationAttribute, std::string(activation));
    graph.nodes[i] = std::move(fused);
    merged[producer] = true;
  }
  graph.EraseNodes(merged);
}

}  // namespace sluice::model
