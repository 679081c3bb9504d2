// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <numeric>

#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/ops/slice.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

template <size_t kCount>
bool IsOneOf(absl::string_view name, const std::array<absl::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Without effect always; when input and output have one shape; when there is a single input.
constexpr std::array<absl::string_view, 2> kAlways = {"Identity", "Dropout"};
constexpr std::array<absl::string_view, 5> kSameShape = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"};
constexpr std::array<absl::string_view, 4> kSingleInput = {"Concat", "Sum", "Max", "Min"};

bool TakesEverything(const NodeContext& context) {
  const auto slice = DescribeSlice(context);
  return slice.ok() && slice->output == slice->input &&
         std::all_of(slice->steps.begin(), slice->steps.end(), [](int64_t step) { return step == 1; });
}

bool IsIdentityPermutation(const NodeContext& context) {
  const auto permutation = context.Ints("perm");
  if (!permutation.ok()) return false;
  if (permutation->empty()) return context.dims(0).size() <= 1;
  Shape ascending(permutation->size());
  std::iota(ascending.begin(), ascending.end(), 0);
  return *permutation == ascending;
}

bool IsIdentity(Graph& graph, size_t node_index) {
  const NodeContext context(graph, node_index);
  const absl::string_view name = context.node().entry->name;
  if (!context.has_input(0)) return false;
  if (IsOneOf(name, kAlways)) return true;
  if (context.input_count() == 1 && IsOneOf(name, kSingleInput)) return true;
  if (!context.input(0).dims.has_value() || !context.output(0).dims.has_value()) return false;
  if (IsOneOf(name, kSameShape)) return context.dims(0) == context.output_dims(0);
  if (name == "Cast") return context.input(0).type == context.output(0).type;
  if (name == "Slice") return TakesEverything(context);
  if (name == "Transpose") return IsIdentityPermutation(context);
  return false;
}

}  // namespace

void RemoveIdentities(Graph& graph) {
  std::vector<ValueIndex> stands_for(graph.values.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  std::vector<bool> is_output(graph.values.size(), false);
  for (const ValueIndex output : graph.outputs) is_output[static_cast<size_t>(output)] = true;
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (ValueIndex& input : node.inputs) {
      if (input != kNoValue) input = stands_for[static_cast<size_t>(input)];
    }
    const auto output = static_cast<size_t>(node.outputs[0]);
    if (is_output[output] || !IsIdentity(graph, i)) continue;
    stands_for[output] = node.inputs[0];
    removed[i] = true;
  }
  graph.EraseNodes(removed);
}

}  // namespace sluice::model
