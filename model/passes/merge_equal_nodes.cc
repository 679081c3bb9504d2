// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "model/passes/passes.h"

namespace sluice::model {
namespace {

bool Equal(const ConstantTensor& a, const ConstantTensor& b) {
  return a.type == b.type && a.dims == b.dims && std::ranges::equal(a.bytes, b.bytes);
}

bool Equal(const Attribute& a, const Attribute& b) {
  if (a.name != b.name || a.value.index() != b.value.index()) return false;
  return std::visit(
      [&](const auto& value) {
        const auto& other = std::get<std::decay_t<decltype(value)>>(b.value);
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, ConstantTensor>) {
          return Equal(value, other);
        } else {
          return value == other;
        }
      },
      a.value);
}

/// In any order: files write them as they like.
bool HaveEqualAttributes(const Node& a, const Node& b) {
  return a.attributes.size() == b.attributes.size() &&
         std::ranges::all_of(a.attributes, [&](const Attribute& attribute) {
           const Attribute* other = b.FindAttribute(attribute.name);
           return other != nullptr && Equal(attribute, *other);
         });
}

}  // namespace

void MergeEqualNodes(Graph& graph) {
  // Small constants of equal bytes count as one value, whatever the file calls them.
  constexpr size_t kSmallBytes = 1024;
  std::map<std::string, ValueIndex> by_name;
  const auto canonical = [&](ValueIndex index) {
    if (index == kNoValue || !graph.value(index).is_constant) return index;
    const Value& value = graph.value(index);
    const std::string name =
        value.bytes.size() <= kSmallBytes ? ContentName(value.type, *value.dims, value.bytes) : value.constant_name;
    return by_name.try_emplace(name, index).first->second;
  };
  std::map<std::pair<const OperatorEntry*, std::vector<ValueIndex>>, std::vector<size_t>> seen;
  std::vector<ValueIndex> same_as(graph.values.size());
  for (size_t i = 0; i < same_as.size(); ++i) same_as[i] = static_cast<ValueIndex>(i);
  std::vector<bool> erased(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    std::vector<ValueIndex> key;
    for (ValueIndex& input : node.inputs) {
      if (input != kNoValue) input = same_as[static_cast<size_t>(input)];
      key.push_back(canonical(input));
    }
    if (std::ranges::any_of(node.outputs, [&](ValueIndex o) { return o != kNoValue && graph.IsOutput(o); })) continue;
    std::vector<size_t>& candidates = seen[{node.entry, std::move(key)}];
    const auto first = std::ranges::find_if(candidates, [&](size_t other) {
      return graph.nodes[other].outputs.size() == node.outputs.size() && HaveEqualAttributes(graph.nodes[other], node);
    });
    if (first == candidates.end()) {
      candidates.push_back(i);
      continue;
    }
    const Node& kept = graph.nodes[*first];
    // An optional output that only one of them has: left alone.
    bool both = true;
    for (size_t o = 0; o < node.outputs.size(); ++o)
      both &= (node.outputs[o] == kNoValue) == (kept.outputs[o] == kNoValue);
    if (!both) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] != kNoValue) same_as[static_cast<size_t>(node.outputs[o])] = kept.outputs[o];
    }
    erased[i] = true;
  }
  graph.EraseNodes(erased);
}

}  // namespace sluice::model
