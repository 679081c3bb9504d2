// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kMaxSteps = 8;  // Between two swaps.

/// Rows in order: [first, second, width], or [first * second, width] after a Reshape.
struct Rows {
  int64_t first, second;
};

bool AreRows(const Shape& dims, const Rows& rows) {
  if (dims.size() == 3) return dims[0] == rows.first && dims[1] == rows.second;
  return dims.size() == 2 && dims[0] == rows.first * rows.second;
}

/// True when C of a product, if there is one, is the same for every row.
bool AddsOneRow(const NodeContext& node) {
  if (!node.has_input(2)) return true;
  const Shape& dims = node.dims(2);
  return dims.empty() || std::all_of(dims.begin(), dims.end() - 1, [](int64_t dim) { return dim == 1; });
}

/// True when node `i` makes row r of its result from row r of its first input alone.
bool IsByRow(Graph& graph, size_t i, const Rows& rows) {
  const NodeContext node(graph, i);
  if (node.output_count() != 1 || node.input_count() < 2 || !node.is_constant(1)) return false;
  if (!AreRows(node.dims(0), rows) || !AreRows(node.output_dims(0), rows)) return false;
  const absl::string_view name = node.node().entry->name;
  if (name == "Reshape") return node.dims(0).back() == node.output_dims(0).back();
  if (node.dims(1).size() != 2 || !AddsOneRow(node)) return false;
  if (name == "MatMul") return true;
  const auto transposed = node.Int("transA", 0);
  return name == "Gemm" && transposed.ok() && *transposed == 0;
}

/// Positions of the nodes from behind a swap up to the swap at `last`, last first; nothing when it is not undone.
std::optional<std::vector<size_t>> StepsBefore(Graph& graph, const GraphIndex& index, size_t last) {
  const Node& swap = graph.nodes[last];
  if (!IsSwap(swap)) return std::nullopt;
  ValueIndex value = swap.inputs[0];
  const Shape& dims = *graph.value(value).dims;
  const Rows rows{dims[0], dims[1]};
  std::vector<size_t> steps;
  while (index.producer(value) >= 0 && index.only_reader(value) >= 0 && steps.size() < kMaxSteps) {
    const auto producer = static_cast<size_t>(index.producer(value));
    if (!IsByRow(graph, producer, rows)) break;
    steps.push_back(producer);
    value = graph.nodes[producer].inputs[0];
  }
  const int first = index.producer(value);
  if (steps.empty() || first < 0 || !IsSwap(graph.nodes[static_cast<size_t>(first)]) ||
      !AreRows(*graph.value(value).dims, rows)) {
    return std::nullopt;
  }
  return steps;
}

}  // namespace

void CancelSwaps(Graph& graph) {
  const GraphIndex index(graph);
  std::vector<bool> cancelled(graph.nodes.size(), false);
  const size_t count = graph.nodes.size();
  for (size_t i = 0; i < count; ++i) {
    const auto steps = StepsBefore(graph, index, i);
    if (!steps.has_value()) continue;
    const auto before = static_cast<size_t>(index.producer(graph.nodes[steps->back()].inputs[0]));
    if (cancelled[before]) continue;
    graph.nodes[steps->back()].inputs[0] = graph.nodes[before].inputs[0];
    graph.nodes[steps->front()].outputs = graph.nodes[i].outputs;
    cancelled[i] = true;
    for (const size_t step : *steps) {
      Node& node = graph.nodes[step];
      Value& result = graph.value(node.outputs[0]);
      if (step != steps->front() && result.dims->size() == 3) std::swap((*result.dims)[0], (*result.dims)[1]);
      if (node.entry->name == "Reshape") node = MakeReshape(graph, node.inputs[0], *result.dims, node.outputs[0]);
    }
  }
  graph.EraseNodes(cancelled);
  RemoveDeadCode(graph);
}

}  // namespace sluice::model
