// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/kernels/normalize.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kMostAddends = gpu::kMostLayerNormAddends;

struct Addend {
  ValueIndex tensor = kNoValue;
  ValueIndex indices = kNoValue;  ///< Of rows of the tensor.
};

/// Finds what a LayerNormalization normalises the sum of.
class SumFinder {
 public:
  SumFinder(Graph& graph, const GraphIndex& index, const Node& norm) : graph_(graph), index_(index), norm_(norm) {
    const Attribute* axis = norm.FindAttribute("axis");
    if (axis != nullptr) axis_ = std::get<int64_t>(axis->value);
  }

  /// The addends; empty when its input is no sum that the kernel takes.
  std::vector<Addend> Find() const {
    std::vector<ValueIndex> terms = Terms(norm_.inputs[0]);
    for (size_t i = 0; i < terms.size() && terms.size() < kMostAddends;) {
      const std::vector<ValueIndex> inner = index_.uses(terms[i]) == 1 ? Terms(terms[i]) : std::vector<ValueIndex>();
      if (inner.empty()) {
        ++i;
        continue;
      }
      terms[i] = inner[0];
      terms.insert(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1, inner[1]);
    }
    std::vector<Addend> addends;
    for (const ValueIndex term : terms) addends.push_back(Gathered(term).value_or(Addend{term}));
    return addends;
  }

 private:
  /// Both operands of the Add that makes `sum`, if they can be addends.
  std::vector<ValueIndex> Terms(ValueIndex sum) const {
    const Node* add = index_.Producer(sum, "Add");
    if (add == nullptr || add->FindAttribute(kActivationAttribute) != nullptr) return {};
    const Shape& input = *graph_.value(norm_.inputs[0]).dims;
    const bool fit = std::all_of(add->inputs.begin(), add->inputs.end(), [&](ValueIndex operand) {
      return gpu::LayerNormAddendRows(input, axis_, *graph_.value(operand).dims).ok();
    });
    return fit ? add->inputs : std::vector<ValueIndex>();
  }

  /// `term` as rows of a table, if it is a Gather of them that nobody else reads.
  std::optional<Addend> Gathered(ValueIndex term) const {
    const Node* gather = index_.uses(term) == 1 ? index_.Producer(term, "Gather") : nullptr;
    if (gather == nullptr) return std::nullopt;
    const NodeContext context(graph_, static_cast<size_t>(index_.producer(term)));
    const Shape &table = context.dims(0), &input = *graph_.value(norm_.inputs[0]).dims;
    const auto axis = context.Int("axis", 0);
    const auto first = gpu::NormalizeAxis(axis_, input.size());
    if (!axis.ok() || !first.ok() || table.empty() || table[0] == 0) return std::nullopt;
    const bool first_axis = *axis == 0 || *axis == -static_cast<int64_t>(table.size());
    const Shape row(table.begin() + 1, table.end()), normalized(input.begin() + *first, input.end());
    return first_axis && row == normalized ? std::optional(Addend{gather->inputs[0], gather->inputs[1]}) : std::nullopt;
  }

  Graph& graph_;
  const GraphIndex& index_;
  const Node& norm_;
  int64_t axis_ = -1;
};

/// `norm` of the sum of the addends.
Node NormOf(const Node& norm, const std::vector<Addend>& addends) {
  Node fused = norm;
  fused.inputs.resize(kNormIndices + kMostAddends, kNoValue);
  for (size_t k = 0; k < addends.size(); ++k) {
    fused.inputs[k == 0 ? 0 : kNormAddends + k - 1] = addends[k].tensor;
    fused.inputs[kNormIndices + k] = addends[k].indices;
  }
  while (fused.inputs.back() == kNoValue) fused.inputs.pop_back();
  return fused;
}

}  // namespace

void FuseAddNorm(Graph& graph) {
  const GraphIndex index(graph);
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& norm = graph.nodes[i];
    if (norm.entry->name != "LayerNormalization") continue;
    const ValueIndex sum = norm.inputs[0];
    const int add = index.producer(sum);
    // It takes the Add's place, since others may read the sum from there on.
    if (std::any_of(norm.inputs.begin() + 1, norm.inputs.end(),
                    [&](ValueIndex v) { return index.producer(v) > add; })) {
      continue;
    }
    const std::vector<Addend> addends = SumFinder(graph, index, norm).Find();
    if (addends.empty()) continue;
    Node fused = NormOf(norm, addends);
    if (index.uses(sum) > 1) fused.outputs.push_back(sum);
    graph.nodes[static_cast<size_t>(add)] = std::move(fused);
    merged[i] = true;
  }
  graph.EraseNodes(merged);
  RemoveDeadCode(graph);  // The Adds and Gathers that it was made of.
}

}  // namespace sluice::model
