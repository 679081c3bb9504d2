// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/lower.h"
#include "model/onnx_reader.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

bool IsArithmetic(absl::string_view name) { return name == "Add" || name == "Sub" || name == "Mul" || name == "Div"; }

/// True when `gather` takes rows of a constant table that has fewer elements than what is gathered.
bool GathersRows(const Graph& graph, const Node& gather) {
  if (gather.entry->name != "Gather" || gather.FindAttribute("axis") != nullptr) return false;
  const Value& table = graph.value(gather.inputs[0]);
  if (!table.is_constant || table.dims->empty()) return false;
  const auto table_count = ElementCount(*table.dims);
  const auto gathered_count = ElementCount(*graph.value(gather.outputs[0]).dims);
  return table_count.ok() && gathered_count.ok() && *table_count < *gathered_count;
}

/// The constant's dimensions as they line up with the rows, or nothing when it also varies between gathered rows.
std::optional<Shape> RowDims(const Value& constant, size_t row_rank) {
  const Shape& dims = *constant.dims;
  if (dims.size() <= row_rank) return dims;
  const auto leading = static_cast<std::ptrdiff_t>(dims.size() - row_rank);
  if (std::any_of(dims.begin(), dims.begin() + leading, [](int64_t dim) { return dim != 1; })) return std::nullopt;
  return Shape(dims.begin() + leading, dims.end());
}

/// `node` with the table in the place of what was gathered from it, or nothing when it does not work row by row.
std::optional<Node> OnTable(Graph& graph, const Node& node, const Node& gather) {
  const ValueIndex gathered = gather.outputs[0];
  const size_t row_rank = graph.value(gather.inputs[0]).dims->size() - 1;
  Node on_table = node;
  if (IsUnaryOperator(node.entry->name)) {
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == gathered) return std::nullopt;
    }
    on_table.inputs[0] = gather.inputs[0];
    return on_table;
  }
  if (!IsArithmetic(node.entry->name)) return std::nullopt;
  if (graph.value(node.outputs[0]).dims != graph.value(gathered).dims) return std::nullopt;
  for (ValueIndex& input : on_table.inputs) {
    if (input == gathered) {
      input = gather.inputs[0];
      continue;
    }
    if (!graph.value(input).is_constant) return std::nullopt;
    std::optional<Shape> dims = RowDims(graph.value(input), row_rank);
    if (!dims.has_value()) return std::nullopt;
    Value rows = graph.value(input);
    rows.dims = std::move(*dims);
    input = graph.AddValue(std::move(rows));
  }
  return on_table;
}

/// Runs `node` on the host and returns the value that holds its result.
absl::StatusOr<ValueIndex> Evaluate(Graph& graph, Node node, gpu::Device& host) {
  const ValueIndex result = graph.AddValue({.name = absl::StrCat(node.name, "/table")});
  node.outputs = {result};
  graph.nodes.push_back(std::move(node));
  const size_t last = graph.nodes.size() - 1;
  absl::Status status = InferNode(graph, last);
  if (status.ok()) status = EvaluateNode(graph, last, host);
  graph.nodes.pop_back();
  SLUICE_RETURN_IF_ERROR(status);
  return result;
}

}  // namespace

absl::Status HoistGather(Graph& graph, gpu::Device& host) {
  const std::vector<int> uses = graph.UseCounts();
  std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    // Inputs made by this pass are constants, whose indices lie beyond the ones counted at the start.
    const std::vector<ValueIndex> inputs = graph.nodes[i].inputs;
    for (const ValueIndex input : inputs) {
      const auto index = static_cast<size_t>(input);
      if (input == kNoValue || index >= uses.size() || uses[index] != 1 || producers[index] < 0) continue;
      const auto producer = static_cast<size_t>(producers[index]);
      if (!GathersRows(graph, graph.nodes[producer])) continue;
      const Node gather = graph.nodes[producer];
      const std::optional<Node> on_table = OnTable(graph, graph.nodes[i], gather);
      if (!on_table.has_value()) continue;
      SLUICE_ASSIGN_OR_RETURN(const ValueIndex table, Evaluate(graph, *on_table, host));
      Node fused = gather;
      fused.inputs[0] = table;
      fused.outputs = graph.nodes[i].outputs;
      graph.nodes[i] = std::move(fused);
      merged[producer] = true;
      break;
    }
  }
  graph.EraseNodes(merged);
  return absl::OkStatus();
}

}  // namespace sluice::model
