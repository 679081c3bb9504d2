// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/status_macros.h"
#include "model/lower.h"
#include "model/onnx_reader.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

// Results up to this size are folded whatever they come from; larger ones only when they are not much larger than
// their inputs, so that a small file cannot ask for much memory by broadcasting.
constexpr size_t kAlwaysFoldedBytes = 1 << 20;

bool InputsHaveShapes(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueIndex input) {
    return input == kNoValue || (graph.value(input).type != DataType::kInvalid && graph.value(input).dims.has_value());
  });
}

bool AllConstant(const Graph& graph, const std::vector<ValueIndex>& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](ValueIndex index) { return index == kNoValue || graph.value(index).is_constant; });
}

bool IsWorthFolding(const Graph& graph, const Node& node) {
  size_t input_bytes = 0;
  for (const ValueIndex input : node.inputs) {
    if (input != kNoValue) input_bytes += graph.value(input).bytes.size();
  }
  size_t output_bytes = 0;
  for (const ValueIndex output : node.outputs) {
    if (output == kNoValue) continue;
    const auto count = ElementCount(*graph.value(output).dims);
    if (!count.ok()) return false;
    output_bytes += static_cast<size_t>(*count) * ElementBytes(graph.value(output).type);
  }
  return output_bytes <= std::max(kAlwaysFoldedBytes, 2 * input_bytes);
}

}  // namespace

absl::Status FoldConstants(Graph& graph, gpu::Device& host) {
  std::vector<bool> folded(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!InputsHaveShapes(graph, graph.nodes[i])) continue;
    SLUICE_RETURN_IF_ERROR(InferNode(graph, i));
    const Node& node = graph.nodes[i];
    if (!AllConstant(graph, node.outputs)) {
      if (node.entry->lower == nullptr || !AllConstant(graph, node.inputs) || !IsWorthFolding(graph, node)) continue;
      SLUICE_RETURN_IF_ERROR(EvaluateNode(graph, i, host));
    }
    folded[i] = true;
  }
  graph.EraseNodes(folded);
  return absl::OkStatus();
}

}  // namespace sluice::model
