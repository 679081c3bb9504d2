// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/graph_builder.h"

#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

absl::Status CheckOpset(const OperatorDomain& domain, int64_t opset) {
  if (opset >= domain.min_opset && opset <= domain.max_opset) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("opset ", opset, " of domain ", domain.name, ": supported are ",
                                               domain.min_opset, " to ", domain.max_opset));
}

absl::Status UnknownOperator(const OperatorDomain& domain, int64_t opset, absl::string_view name) {
  if (domain.Knows(name)) {
    return absl::UnimplementedError(
        absl::StrCat("this operator is not supported at opset ", opset, " of domain ", domain.name));
  }
  // scikit-learn's classifiers are exported with it unless one asks for tensors.
  const absl::string_view advice =
      name == "ZipMap" ? "; switch it off when exporting (skl2onnx: options={'zipmap': False})" : "";
  return absl::UnimplementedError(
      absl::StrCat("this operator is not supported (domain ", domain.name, ", opset ", opset, ")", advice));
}

absl::Status NotATensor(absl::string_view path, const std::string& name) {
  return absl::UnimplementedError(absl::StrCat(path, " '", name, "': sequences, maps and optionals are not supported"));
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const OnnxFile& file) : file_(file) {}

  absl::StatusOr<Graph> Build() && {
    SLUICE_RETURN_IF_ERROR(ReadOpsets());
    SLUICE_RETURN_IF_ERROR(AddInitializers());
    SLUICE_RETURN_IF_ERROR(AddInputs());
    SLUICE_RETURN_IF_ERROR(AddNodeOutputs());
    for (const OnnxNode& node : file_.nodes) SLUICE_RETURN_IF_ERROR(AddNode(node));
    SLUICE_RETURN_IF_ERROR(AddOutputs());
    TrimUnusedOutputs();
    for (const Node& node : graph_.nodes) SLUICE_RETURN_IF_ERROR(CheckArity(node));
    SLUICE_RETURN_IF_ERROR(Sort());
    return std::move(graph_);
  }

 private:
  absl::Status ReadOpsets() {
    // Other domains than ai.onnx are checked when a node uses them: exporters import domains in advance.
    for (const auto& [name, opset] : file_.opset_imports) {
      if (const OperatorDomain* domain = FindDomain(name)) opsets_[domain] = opset;
    }
    const OperatorDomain* const standard = FindDomain("");
    if (!opsets_.contains(standard)) return absl::InvalidArgumentError("no opset of domain ai.onnx is imported");
    graph_.opset = opsets_.at(standard);
    return CheckOpset(*standard, graph_.opset);
  }

  absl::StatusOr<const OperatorEntry*> FindEntry(const OnnxNode& node) const {
    const OperatorDomain* const domain = FindDomain(node.domain);
    if (domain == nullptr) {
      return absl::UnimplementedError(absl::StrCat("operators of domain '", node.domain, "' are not supported"));
    }
    const auto opset = opsets_.find(domain);
    if (opset == opsets_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no opset of its domain ", domain->name, " is imported"));
    }
    SLUICE_RETURN_IF_ERROR(CheckOpset(*domain, opset->second));
    const OperatorEntry* const entry = domain->Find(node.operator_name, opset->second);
    if (entry == nullptr) return UnknownOperator(*domain, opset->second, node.operator_name);
    return entry;
  }

  absl::Status Define(const std::string& name, Value value, absl::string_view what) {
    value.name = name;
    const ValueIndex index = graph_.AddValue(std::move(value));
    if (!names_.emplace(name, index).second) {
      return absl::InvalidArgumentError(absl::StrCat(what, " '", name, "': the name is already taken"));
    }
    return absl::OkStatus();
  }

  absl::Status AddInitializers() {
    for (const ConstantTensor& tensor : file_.initializers) {
      Value value{.type = tensor.type, .dims = tensor.dims, .is_constant = true, .bytes = tensor.bytes};
      value.constant_name = absl::StrCat("file:", tensor.name);
      SLUICE_RETURN_IF_ERROR(Define(tensor.name, std::move(value), "initializer"));
    }
    return absl::OkStatus();
  }

  absl::Status AddInputs() {
    for (const OnnxValueInfo& input : file_.inputs) {
      const auto known = names_.find(input.name);
      // An input with an initializer is a constant with a default that Sluice never overrides.
      if (known != names_.end() && graph_.value(known->second).is_constant) continue;
      if (!input.is_tensor) return NotATensor("graph.input", input.name);
      if (!input.dims.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat("graph.input '", input.name, "': declares no shape"));
      }
      SLUICE_RETURN_IF_ERROR(Define(input.name, {.type = input.type}, "graph.input"));
      graph_.inputs.push_back(names_.at(input.name));
    }
    return absl::OkStatus();
  }

  absl::Status AddNodeOutputs() {
    for (const OnnxNode& node : file_.nodes) {
      for (const std::string& output : node.outputs) {
        if (output.empty()) continue;
        SLUICE_RETURN_IF_ERROR(Define(output, {}, absl::StrCat("node '", node.name, "': output")));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(const OnnxNode& source) {
    const std::string at = absl::StrCat("node '", source.name, "' (", source.operator_name, "): ");
    const absl::StatusOr<const OperatorEntry*> entry = FindEntry(source);
    if (!entry.ok()) return absl::Status(entry.status().code(), absl::StrCat(at, entry.status().message()));
    Node node{.name = source.name, .entry = *entry};
    for (const std::string& input : source.inputs) {
      ValueIndex index = kNoValue;
      if (!input.empty()) {
        const auto known = names_.find(input);
        if (known == names_.end()) {
          return absl::InvalidArgumentError(absl::StrCat(at, "nothing produces its input '", input, "'"));
        }
        index = known->second;
      }
      node.inputs.push_back(index);
    }
    for (const std::string& output : source.outputs) {
      node.outputs.push_back(output.empty() ? kNoValue : names_.at(output));
    }
    for (const Attribute& attribute : source.attributes) {
      // Passes mark what they fused with such names, and trust them.
      if (absl::StartsWith(attribute.name, "sluice.")) {
        return absl::InvalidArgumentError(absl::StrCat(at, "attribute '", attribute.name, "' is reserved"));
      }
      node.attributes.push_back(attribute);
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status AddOutputs() {
    if (file_.outputs.empty()) return absl::InvalidArgumentError("graph.output: the graph has no outputs");
    for (const OnnxValueInfo& output : file_.outputs) {
      const auto known = names_.find(output.name);
      if (known == names_.end()) {
        return absl::InvalidArgumentError(absl::StrCat("graph.output '", output.name, "': nothing produces it"));
      }
      if (!output.is_tensor) return NotATensor("graph.output", output.name);
      if (!output.dims.has_value()) {
        return absl::UnimplementedError(absl::StrCat("graph.output '", output.name, "': declares no shape"));
      }
      if (graph_.IsOutput(known->second)) {
        return absl::InvalidArgumentError(absl::StrCat("graph.output '", output.name, "': listed twice"));
      }
      graph_.outputs.push_back(known->second);
    }
    return absl::OkStatus();
  }

  /// Optional results that nobody reads (a pool's indices, a dropout's mask) are as good as left out; so are optional
  /// inputs that are left out at the end.
  void TrimUnusedOutputs() {
    const std::vector<int> uses = graph_.UseCounts();
    for (Node& node : graph_.nodes) {
      while (node.outputs.size() > 1 &&
             (node.outputs.back() == kNoValue || uses[static_cast<size_t>(node.outputs.back())] == 0) &&
             node.outputs.size() > node.entry->max_outputs) {
        node.outputs.pop_back();
      }
      while (!node.inputs.empty() && node.inputs.back() == kNoValue) node.inputs.pop_back();
    }
  }

  absl::Status CheckArity(const Node& node) const {
    const OperatorEntry& entry = *node.entry;
    const std::string at = absl::StrCat("node '", node.name, "' (", entry.name, "): ");
    if (node.inputs.size() < entry.min_inputs || node.inputs.size() > entry.max_inputs) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, node.inputs.size(), " inputs; expected ", entry.min_inputs, " to ", entry.max_inputs));
    }
    for (size_t i = 0; i < entry.min_inputs; ++i) {
      if (node.inputs[i] == kNoValue) {
        return absl::InvalidArgumentError(absl::StrCat(at, "its input ", i, " is required but left out"));
      }
    }
    if (node.outputs.empty() || node.outputs[0] == kNoValue) {
      return absl::InvalidArgumentError(absl::StrCat(at, "its first output is left out"));
    }
    if (node.outputs.size() > entry.max_outputs) {
      return absl::UnimplementedError(absl::StrCat(at, "only the first ", entry.max_outputs, " outputs are supported"));
    }
    return absl::OkStatus();
  }

  /// Kahn's algorithm, taking the node that the file lists first: a file in order stays as it is, and keeps the
  /// lifetimes its exporter chose.
  absl::Status Sort() {
    const std::vector<int> producers = graph_.Producers();
    std::vector<size_t> waiting(graph_.nodes.size(), 0);
    std::vector<std::vector<size_t>> readers(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueIndex input : graph_.nodes[i].inputs) {
        if (input == kNoValue || producers[static_cast<size_t>(input)] < 0) continue;
        readers[static_cast<size_t>(producers[static_cast<size_t>(input)])].push_back(i);
        ++waiting[i];
      }
    }
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] == 0) ready.push(i);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const size_t reader : readers[order.back()]) {
        if (--waiting[reader] == 0) ready.push(reader);
      }
    }
    if (order.size() != graph_.nodes.size()) {
      for (size_t i = 0; i < waiting.size(); ++i) {
        if (waiting[i] > 0) {
          return absl::InvalidArgumentError(absl::StrCat("node '", graph_.nodes[i].name, "' (",
                                                         graph_.nodes[i].entry->name, "): depends on its own result"));
        }
      }
    }
    std::vector<Node> sorted;
    sorted.reserve(order.size());
    for (const size_t index : order) sorted.push_back(std::move(graph_.nodes[index]));
    graph_.nodes = std::move(sorted);
    return absl::OkStatus();
  }

  const OnnxFile& file_;
  std::map<const OperatorDomain*, int64_t> opsets_;
  Graph graph_;
  std::unordered_map<std::string, ValueIndex> names_;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const OnnxFile& file) { return GraphBuilder(file).Build(); }

Signature ReadSignature(const OnnxFile& file, const Graph& graph) {
  Signature signature;
  for (const OnnxValueInfo& input : file.inputs) {
    for (const ValueIndex index : graph.inputs) {
      if (graph.value(index).name == input.name) signature.inputs.push_back({input.name, input.type, *input.dims});
    }
  }
  for (const OnnxValueInfo& output : file.outputs) {
    signature.outputs.push_back({output.name, output.type, *output.dims});
  }
  return signature;
}

}  // namespace sluice::model
