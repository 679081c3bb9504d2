// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kMask = 3;

/// True for a constant all of whose elements are that number.
bool IsAll(const Value& value, float number) {
  if (!value.is_constant || value.type != DataType::kFp32 || value.bytes.empty()) return false;
  for (size_t i = 0; i < value.bytes.size(); i += sizeof(float)) {
    float element;
    std::memcpy(&element, value.bytes.data() + i, sizeof(element));
    if (element != number) return false;
  }
  return true;
}

bool IsAllTrue(const Value& value) {
  return value.is_constant && value.type == DataType::kBool && !value.bytes.empty() &&
         std::ranges::all_of(value.bytes, [](std::byte byte) { return byte != std::byte{0}; });
}

/// What says the same as the mask and is less work; kNoValue when there is nothing.
ValueIndex Simpler(const Graph& graph, const std::vector<int>& producers, ValueIndex mask) {
  const int producer = producers[static_cast<size_t>(mask)];
  if (producer < 0) return kNoValue;
  const Node& node = graph.nodes[static_cast<size_t>(producer)];
  if (node.entry->name == "Where" && IsAll(graph.value(node.inputs[1]), 0.0f) &&
      IsAll(graph.value(node.inputs[2]), -std::numeric_limits<float>::infinity())) {
    return node.inputs[0];
  }
  if (node.entry->name == "And") {
    if (IsAllTrue(graph.value(node.inputs[0]))) return node.inputs[1];
    if (IsAllTrue(graph.value(node.inputs[1]))) return node.inputs[0];
  }
  return kNoValue;
}

}  // namespace

void SimplifyMasks(Graph& graph) {
  const std::vector<int> producers = graph.Producers();
  for (Node& node : graph.nodes) {
    if (node.entry->name != "Attention" || node.inputs.size() <= kMask) continue;
    ValueIndex& mask = node.inputs[kMask];
    // What the constants were broadcast against, the mask still is: against the scores.
    for (ValueIndex next = mask; next != kNoValue;) {
      mask = next;
      next = Simpler(graph, producers, mask);
    }
  }
}

}  // namespace sluice::model
