// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/print.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

}  // namespace

std::string PrintGraph(const Graph& graph) {
  std::string text = absl::StrCat("opset ", graph.opset, "\ninputs ", PrintValues(graph, graph.inputs), "\n");
  for (const Node& node : graph.nodes) {
    absl::StrAppend(&text, PrintValues(graph, node.outputs), " = ", node.entry->name, "(",
                    PrintValues(graph, node.inputs), ")  # ", node.name, "\n");
  }
  absl::StrAppend(&text, "outputs ", PrintValues(graph, graph.outputs), "\n");
  return text;
}

}  // namespace sluice::model
