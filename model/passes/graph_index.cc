// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/passes/graph_index.h"

#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

const std::vector<int64_t> kSwap = {1, 0, 2};

/// A value like `from`, of other dimensions.
ValueIndex AddLike(Graph& graph, ValueIndex from, const char* what, Shape dims) {
  Value value{.name = absl::StrCat(graph.value(from).name, "/", what), .type = graph.value(from).type};
  value.dims = std::move(dims);
  return graph.AddValue(std::move(value));
}

}  // namespace

GraphIndex::GraphIndex(const Graph& graph)
    : graph_(graph), producers_(graph.Producers()), uses_(graph.UseCounts()), readers_(graph.values.size(), -1) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueIndex input : graph.nodes[i].inputs) {
      if (input != kNoValue) readers_[static_cast<size_t>(input)] = static_cast<int>(i);
    }
  }
}

int GraphIndex::producer(ValueIndex value) const {
  const auto index = static_cast<size_t>(value);  // Of kNoValue: beyond the end.
  return index < producers_.size() ? producers_[index] : -1;
}

int GraphIndex::uses(ValueIndex value) const {
  const auto index = static_cast<size_t>(value);
  return index < uses_.size() ? uses_[index] : 0;
}

const Node* GraphIndex::Producer(ValueIndex value, absl::string_view name) const {
  const int position = producer(value);
  if (position < 0) return nullptr;
  const Node& node = graph_.nodes[static_cast<size_t>(position)];
  return node.entry->name == name ? &node : nullptr;
}

std::optional<double> ScalarOf(const Graph& graph, ValueIndex index) {
  const Value& value = graph.value(index);
  if (!value.is_constant || value.type != DataType::kFp32 || value.bytes.size() != sizeof(float)) return std::nullopt;
  float number;
  std::memcpy(&number, value.bytes.data(), sizeof(number));
  return number;
}

Node MakeReshape(Graph& graph, ValueIndex from, Shape dims, ValueIndex to) {
  std::vector<std::byte> bytes(dims.size() * sizeof(int64_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), dims.data(), bytes.size());
  const std::string name = absl::StrCat(graph.value(from).name, "/reshape");
  const ValueIndex shape = graph.AddConstant(absl::StrCat(name, "/shape"), DataType::kInt64,
                                             {static_cast<int64_t>(dims.size())}, std::move(bytes));
  if (to == kNoValue) to = AddLike(graph, from, "reshape", std::move(dims));
  return {.name = name, .entry = FindOperator("Reshape", kMaxOpset), .inputs = {from, shape}, .outputs = {to}};
}

Node MakeSwap(Graph& graph, ValueIndex from, ValueIndex to) {
  const Shape dims = *graph.value(from).dims;
  if (to == kNoValue) to = AddLike(graph, from, "swap", {dims[1], dims[0], dims[2]});
  return {.name = absl::StrCat(graph.value(from).name, "/swap"),
          .entry = FindOperator("Transpose", kMaxOpset),
          .inputs = {from},
          .outputs = {to},
          .attributes = {{"perm", kSwap}}};
}

bool IsSwap(const Node& node) {
  if (node.entry->name != "Transpose") return false;
  const Attribute* permutation = node.FindAttribute("perm");
  if (permutation == nullptr) return false;
  const auto* axes = std::get_if<std::vector<int64_t>>(&permutation->value);
  return axes != nullptr && *axes == kSwap;
}

}  // namespace sluice::model
