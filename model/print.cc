// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/print.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/kernels/chain_program.h"
#include "model/ops/activation.h"
#include "model/ops/elementwise_chain.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

std::string PrintValue(const Graph& graph, ValueIndex index) {
  if (index == kNoValue) return "-";
  const Value& value = graph.value(index);
  return absl::StrCat(value.is_constant ? "const " : "", value.name, ":", WireName(value.type),
                      value.dims.has_value() ? ShapeToString(*value.dims) : "[?]");
}

std::string PrintValues(const Graph& graph, const std::vector<ValueIndex>& values) {
  return absl::StrJoin(values, ", ",
                       [&](std::string* out, ValueIndex index) { absl::StrAppend(out, PrintValue(graph, index)); });
}

/// "mul,add,sigmoid" for a chain; else empty.
std::string ChainWordsOf(const Node& node) {
  if (node.entry->name != "Elementwise") return "";
  const auto steps = ChainOf(node);
  return steps.ok() ? gpu::ChainWords(*steps) : "";
}

/// Copies nodes and the values they touch, as long as there is room.
class Describer {
 public:
  Describer(const Graph& graph, size_t most_bytes)
      : graph_(graph), room_bytes_(most_bytes), places_(graph.values.size(), kNoValue) {}

  GraphDescription Run() {
    result_.node_count = graph_.nodes.size();
    if (!AddTensors(graph_.inputs, result_.inputs) || !AddTensors(graph_.outputs, result_.outputs)) Cut();
    for (const Node& node : graph_.nodes) {
      if (!result_.cut && !AddNode(node)) Cut();
    }
    return std::move(result_);
  }

 private:
  // Braces, keys and quotes of JSON, and a number with its comma.
  static constexpr size_t kNodeBytes = 64;
  static constexpr size_t kValueBytes = 48;
  static constexpr size_t kDimBytes = 6;

  void Cut() { result_.cut = true; }

  bool Take(size_t size_bytes) {
    if (size_bytes > room_bytes_) return false;
    room_bytes_ -= size_bytes;
    return true;
  }

  bool AddTensors(const std::vector<ValueIndex>& indices, std::vector<int32_t>& places) {
    for (const ValueIndex index : indices) {
      if (index == kNoValue) {
        places.push_back(kNoValue);
        continue;
      }
      const Value& value = graph_.value(index);
      const size_t rank = value.dims.has_value() ? value.dims->size() : 0;
      if (!Take(kValueBytes + value.name.size() + rank * kDimBytes)) return false;
      int32_t& place = places_[static_cast<size_t>(index)];
      if (place == kNoValue) {
        place = static_cast<int32_t>(result_.values.size());
        result_.values.push_back({value.name, value.type, value.dims, value.is_constant});
      }
      places.push_back(place);
    }
    return true;
  }

  bool AddNode(const Node& node) {
    NodeDescription described;
    described.op = std::string(node.entry->name);
    described.name = node.name;
    described.fused = ChainWordsOf(node);
    if (const Attribute* activation = node.FindAttribute(kActivationAttribute)) {
      if (const auto* word = std::get_if<std::string>(&activation->value)) described.fused = *word;
    }
    if (!Take(kNodeBytes + described.op.size() + node.name.size()) || !AddTensors(node.inputs, described.inputs) ||
        !AddTensors(node.outputs, described.outputs)) {
      return false;
    }
    result_.nodes.push_back(std::move(described));
    return true;
  }

  const Graph& graph_;
  size_t room_bytes_;
  std::vector<int32_t> places_;  // Of the graph's values in result_.values.
  GraphDescription result_;
};

}  // namespace

GraphDescription DescribeGraph(const Graph& graph, size_t most_bytes) { return Describer(graph, most_bytes).Run(); }

std::string PrintGraph(const Graph& graph) {
  std::string text = absl::StrCat("opset ", graph.opset, "\ninputs ", PrintValues(graph, graph.inputs), "\n");
  for (const Node& node : graph.nodes) {
    const std::string words = ChainWordsOf(node);
    absl::StrAppend(&text, PrintValues(graph, node.outputs), " = ", node.entry->name, words.empty() ? "" : " ", words,
                    "(", PrintValues(graph, node.inputs), ")  # ", node.name, "\n");
  }
  absl::StrAppend(&text, "outputs ", PrintValues(graph, graph.outputs), "\n");
  return text;
}

}  // namespace sluice::model
