// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "gpu/kernels/tensor.h"
#include "model/ops/activation.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kBias = 2;  // Of Conv and of MatMul, as ops/linear.cc reads them.

/// True when `bias`, aligned to the right of a convolution's result, has one value per channel.
bool IsPerChannel(const Shape& bias, const Shape& result) {
  if (bias.size() > result.size() || result.size() < 3) return false;
  const size_t missing = result.size() - bias.size();
  for (size_t i = 0; i < bias.size(); ++i) {
    const size_t axis = missing + i;
    if (bias[i] != (axis == 1 ? result[1] : 1)) return false;
  }
  return missing <= 1;
}

bool TakesBias(const Graph& graph, const Node& node, const Value& bias, const Value& result) {
  if (node.inputs.size() > kBias || node.FindAttribute(kActivationAttribute) != nullptr) return false;
  if (bias.type != DataType::kFp32 || result.type != DataType::kFp32) return false;
  if (node.entry->name == "Conv") return IsPerChannel(*bias.dims, *result.dims);
  if (node.entry->name != "MatMul") return false;
  // A vector operand's missing dimension would change what the bias lines up with.
  if (graph.value(node.inputs[0]).dims->size() < 2 || graph.value(node.inputs[1]).dims->size() < 2) return false;
  const auto broadcast = gpu::BroadcastDims(*result.dims, *bias.dims);
  return broadcast.ok() && *broadcast == *result.dims;
}

}  // namespace

void FuseBias(Graph& graph) {
  const std::vector<int> uses = graph.UseCounts();
  const std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].entry->name != "Add") continue;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueIndex result = graph.nodes[i].inputs[side];
      const ValueIndex bias = graph.nodes[i].inputs[1 - side];
      const int producer = producers[static_cast<size_t>(result)];
      if (producer < 0 || uses[static_cast<size_t>(result)] != 1 || !graph.value(bias).is_constant) continue;
      Node& product = graph.nodes[static_cast<size_t>(producer)];
      if (!TakesBias(graph, product, graph.value(bias), graph.value(result))) continue;
      ValueIndex taken = bias;
      if (product.entry->name == "Conv") {
        // The kernel takes a vector; the bytes are the same.
        Value vector = graph.value(bias);
        vector.dims = Shape{(*graph.value(result).dims)[1]};
        vector.constant_name += "/per-channel";
        taken = graph.AddValue(std::move(vector));
      }
      Node fused = std::move(graph.nodes[static_cast<size_t>(producer)]);
      fused.inputs.resize(kBias + 1, kNoValue);
      fused.inputs[kBias] = taken;
      fused.outputs = graph.nodes[i].outputs;
      graph.nodes[i] = std::move(fused);
      merged[static_cast<size_t>(producer)] = true;
      break;
    }
  }
  graph.EraseNodes(merged);
}

}  // namespace sluice::model
