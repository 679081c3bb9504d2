// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/ops/activation.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

static_assert(kConvResidual == kProductResidual);

/// Position of the node that could take `other` as its residual, or -1.
int Fusable(const Graph& graph, const std::vector<int>& producers, const std::vector<int>& uses, ValueIndex sum,
            ValueIndex result, ValueIndex other, bool products) {
  const auto index = static_cast<size_t>(result);
  if (producers[index] < 0 || uses[index] != 1 || result == other) return -1;
  const Node& node = graph.nodes[static_cast<size_t>(producers[index])];
  const absl::string_view name = node.entry->name;
  const bool takes = name == "Conv" || (products && (name == "MatMul" || name == "Gemm"));
  if (!takes || node.inputs.size() > kConvResidual || node.FindAttribute(kActivationAttribute) != nullptr) return -1;
  const bool same_shape =
      graph.value(result).dims == graph.value(sum).dims && graph.value(other).dims == graph.value(sum).dims;
  return same_shape && graph.value(sum).type == DataType::kFp32 ? producers[index] : -1;
}

}  // namespace

void FuseResidual(Graph& graph, bool products) {
  const std::vector<int> uses = graph.UseCounts();
  std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& add = graph.nodes[i];
    if (add.entry->name != "Add" || add.FindAttribute(kActivationAttribute) != nullptr) continue;
    const ValueIndex sum = add.outputs[0];
    const int left = Fusable(graph, producers, uses, sum, add.inputs[0], add.inputs[1], products);
    const int right = Fusable(graph, producers, uses, sum, add.inputs[1], add.inputs[0], products);
    if (left < 0 && right < 0) continue;
    // The later of two convolutions: the earlier one's result is then there anyway.
    const bool take_left = left > right;
    const auto producer = static_cast<size_t>(take_left ? left : right);
    const ValueIndex other = add.inputs[take_left ? 1 : 0];
    Node fused = std::move(graph.nodes[producer]);
    fused.inputs.resize(kConvResidual + 1, kNoValue);
    fused.inputs[kConvResidual] = other;
    fused.outputs = {sum};
    graph.nodes[i] = std::move(fused);
    merged[producer] = true;
  }
  graph.EraseNodes(merged);
}

}  // namespace sluice::model
