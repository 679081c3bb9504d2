// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

/// The Conv that makes `value`, has `uses` readers and no activation yet; else -1.
int FusableConv(const Graph& graph, const std::vector<int>& producers, const std::vector<int>& uses, ValueIndex value,
                int wanted_uses) {
  const auto index = static_cast<size_t>(value);
  if (value == kNoValue || producers[index] < 0 || uses[index] != wanted_uses) return -1;
  const Node& node = graph.nodes[static_cast<size_t>(producers[index])];
  const bool free = node.entry->name == "Conv" && node.FindAttribute(kActivationAttribute) == nullptr;
  return free ? producers[index] : -1;
}

/// The value x of x * Sigmoid(x), or kNoValue.
ValueIndex SwishInput(const Graph& graph, const std::vector<int>& producers, const std::vector<int>& uses,
                      const Node& product) {
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const ValueIndex gate = product.inputs[side];
    if (gate == kNoValue || producers[static_cast<size_t>(gate)] < 0 || uses[static_cast<size_t>(gate)] != 1) continue;
    const Node& sigmoid = graph.nodes[static_cast<size_t>(producers[static_cast<size_t>(gate)])];
    if (sigmoid.entry->name == "Sigmoid" && sigmoid.inputs[0] == product.inputs[1 - side]) return sigmoid.inputs[0];
  }
  return kNoValue;
}

}  // namespace

void FuseConvActivation(Graph& graph) {
  const std::vector<int> uses = graph.UseCounts();
  const std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  const auto fuse = [&](size_t i, int conv, const char* activation) -> Node& {
    Node fused = std::move(graph.nodes[static_cast<size_t>(conv)]);
    fused.outputs = graph.nodes[i].outputs;
    fused.SetAttribute(kActivationAttribute, std::string(activation));
    graph.nodes[i] = std::move(fused);
    merged[static_cast<size_t>(conv)] = true;
    return graph.nodes[i];
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.FindAttribute(kActivationAttribute) != nullptr) continue;  // It does more than its name says.
    if (node.entry->name == "Clip") {
      const int conv = FusableConv(graph, producers, uses, node.inputs[0], 1);
      const auto bounds = ClipBounds(NodeContext(graph, i));
      // Where the bounds cross, ONNX lets the upper one win; a kernel need not.
      if (conv < 0 || !bounds.ok() || !(bounds->first <= bounds->second)) continue;
      Node& fused = fuse(i, conv, "Clip");
      fused.SetAttribute(kLowAttribute, static_cast<float>(bounds->first));
      fused.SetAttribute(kHighAttribute, static_cast<float>(bounds->second));
    } else if (node.entry->name == "Mul") {
      const ValueIndex x = SwishInput(graph, producers, uses, node);
      const int conv = FusableConv(graph, producers, uses, x, 2);
      if (conv < 0) continue;
      const ValueIndex gate = node.inputs[node.inputs[0] == x ? 1 : 0];
      merged[static_cast<size_t>(producers[static_cast<size_t>(gate)])] = true;
      fuse(i, conv, "Swish");
    }
  }
  graph.EraseNodes(merged);
}

}  // namespace sluice::model
