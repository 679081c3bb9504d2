// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/kernels/chain_program.h"
#include "gpu/kernels/elementwise_chain.h"
#include "model/ops/context.h"
#include "model/ops/elementwise_chain.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

/// Grows one chain backwards from the node that makes its result.
class Growth {
 public:
  Growth(Graph& graph, const GraphIndex& index, const std::vector<bool>& taken, size_t root)
      : graph_(graph), index_(index), taken_(taken), result_(graph.nodes[root].outputs[0]) {
    if (!Fits(root)) return;
    Join(root);
    // The last producer first: whatever reads a value stands behind it, and so has been decided.
    while (!candidates_.empty()) {
      const size_t candidate = *candidates_.begin();
      candidates_.erase(candidates_.begin());
      const ValueIndex value = graph_.nodes[candidate].outputs[0];
      if (reads_.at(value) != index_.uses(value)) continue;  // Somebody else needs it.
      members_.insert(candidate);
      const bool within_bounds = gpu::MakeChainProgram(Describe().second).ok();
      members_.erase(candidate);
      if (within_bounds) Join(candidate);
    }
  }

  const std::set<size_t>& members() const { return members_; }

  Node MakeNode() {
    auto [inputs, description] = Describe();
    Node node{.name = graph_.nodes[*members_.rbegin()].name,
              .entry = FindOperator("Elementwise", kInternalOpset),
              .inputs = std::move(inputs),
              .outputs = {result_}};
    SetChain(node, description.steps);
    return node;
  }

 private:
  static size_t OperandsOf(const std::vector<gpu::ElementwiseStep>& steps) {
    return std::holds_alternative<gpu::BinaryKind>(steps[0].kind) ? 2 : 1;
  }

  /// True for an elementwise node of one floating type, of the result's shape and order in memory.
  bool Fits(size_t position) {
    if (taken_[position] || graph_.nodes[position].outputs.size() != 1) return false;
    const NodeContext context(graph_, position);
    const std::vector<gpu::ElementwiseStep> steps = ElementwiseStepsOf(context);
    if (steps.empty()) return false;
    const Value& result = graph_.value(result_);
    const Value& output = context.output(0);
    const bool floating =
        output.type == DataType::kFp32 || output.type == DataType::kFp16 || output.type == DataType::kBf16;
    if (!floating || output.type != result.type || !output.dims.has_value() || output.dims != result.dims ||
        output.channels_last != result.channels_last) {
      return false;
    }
    for (size_t i = 0; i < OperandsOf(steps); ++i) {
      if (context.input(i).type != output.type || !context.input(i).dims.has_value()) return false;
    }
    return true;
  }

  void Join(size_t position) {
    members_.insert(position);
    const NodeContext context(graph_, position);
    for (size_t i = 0; i < OperandsOf(ElementwiseStepsOf(context)); ++i) {
      const ValueIndex operand = context.input_index(i);
      const int producer = index_.producer(operand);
      if (++reads_[operand] > 1 || producer < 0) continue;
      if (Fits(static_cast<size_t>(producer))) candidates_.insert(static_cast<size_t>(producer));
    }
  }

  /// The members as a chain over the values that come from outside.
  std::pair<std::vector<ValueIndex>, gpu::ElementwiseChainDescription> Describe() {
    std::vector<ValueIndex> inputs;
    gpu::ElementwiseChainDescription description{.type = graph_.value(result_).type};
    std::map<ValueIndex, size_t> numbers;
    for (const size_t member : members_) numbers[graph_.nodes[member].outputs[0]] = 0;  // Made inside.
    for (const size_t member : members_) {
      const NodeContext context(graph_, member);
      for (size_t i = 0; i < OperandsOf(ElementwiseStepsOf(context)); ++i) {
        if (!numbers.try_emplace(context.input_index(i), inputs.size()).second) continue;
        inputs.push_back(context.input_index(i));
        description.inputs.push_back(StoredOperand(context, i));
      }
    }
    for (const size_t member : members_) {
      const NodeContext context(graph_, member);
      std::vector<gpu::ElementwiseStep> steps = ElementwiseStepsOf(context);
      const size_t operands = OperandsOf(steps);
      const size_t first = inputs.size() + description.steps.size();
      const auto number_of = [&](size_t local) {
        return local < operands ? numbers.at(context.input_index(local)) : first + local - operands;
      };
      for (gpu::ElementwiseStep& step : steps) {
        step.a = number_of(step.a);
        step.b = std::holds_alternative<gpu::BinaryKind>(step.kind) ? number_of(step.b) : 0;
        description.steps.push_back(step);
      }
      numbers[context.output_index(0)] = inputs.size() + description.steps.size() - 1;
    }
    return {std::move(inputs), std::move(description)};
  }

  Graph& graph_;
  const GraphIndex& index_;
  const std::vector<bool>& taken_;
  const ValueIndex result_;
  std::set<size_t> members_;  ///< In the graph's order.
  std::set<size_t, std::greater<>> candidates_;
  std::map<ValueIndex, int> reads_;  ///< By members.
};

}  // namespace

void FuseElementwise(Graph& graph) {
  const GraphIndex index(graph);
  std::vector<bool> taken(graph.nodes.size(), false);  // Nodes that are gone, or chains.
  std::vector<bool> erased(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Growth growth(graph, index, taken, i);
    if (growth.members().size() < 2) continue;
    Node chain = growth.MakeNode();
    for (const size_t member : growth.members()) taken[member] = erased[member] = true;
    erased[i] = false;
    graph.nodes[i] = std::move(chain);
  }
  graph.EraseNodes(erased);
}

}  // namespace sluice::model
