// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/inspection.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

// Units shown when not all are asked for.
constexpr size_t kLongestUnits = 10;
// Characters of one side of a graph.
constexpr size_t kGraphWidth = 64;
constexpr size_t kNameWidth = 28;

// Reading without exceptions: what is missing or of another type is null, empty or 0.

const json& At(const json& object, const char* key) {
  static const json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string Text(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }
double Number(const json& value) { return value.is_number() ? value.get<double>() : 0; }
int64_t Integer(const json& value) { return value.is_number_integer() ? value.get<int64_t>() : 0; }
bool Flag(const json& value) { return value.is_boolean() && value.get<bool>(); }

std::string Us(const json& value) { return absl::StrFormat("%.1f", Number(value)); }
std::string Megabytes(double bytes) { return absl::StrFormat("%.3f", bytes / 1e6); }
std::string Megabytes(const json& value) { return Megabytes(Number(value)); }

std::string PercentEncode(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '~') {
      encoded.push_back(c);
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

/// The plan that standard and batch work runs in; null when there is none.
const json* MicroBatch(const json& bucket) {
  for (const json& plan : At(bucket, "plans")) {
    if (Flag(At(plan, "micro_batch"))) return &plan;
  }
  return nullptr;
}

std::string RenderPlans(const json& bucket) {
  TextTable table({"rows", "whole us", "us a row", "units", "graphs", "longest us", "classes", "longest kernel"});
  for (const json& plan : At(bucket, "plans")) {
    std::vector<std::string> classes;
    for (const json& word : At(plan, "classes")) classes.push_back(Text(word));
    table.AddRow({absl::StrCat(Integer(At(plan, "rows")), Flag(At(plan, "micro_batch")) ? "*" : ""),
                  Us(At(plan, "whole_us")), Us(At(plan, "us_per_row")), absl::StrCat(Integer(At(plan, "unit_count"))),
                  absl::StrCat(Integer(At(plan, "captured_unit_count"))), Us(At(plan, "longest_unit_us")),
                  absl::StrJoin(classes, ","), Text(At(plan, "longest_kernel"))});
  }
  return table.Render();
}

std::string RenderUnits(const json& plan, bool all) {
  std::vector<std::pair<size_t, const json*>> units;
  for (const json& unit : At(plan, "units")) units.emplace_back(units.size(), &unit);
  const size_t listed = units.size();
  if (!all && listed > kLongestUnits) {
    std::stable_sort(units.begin(), units.end(), [](const auto& left, const auto& right) {
      return Number(At(*left.second, "us")) > Number(At(*right.second, "us"));
    });
    units.resize(kLongestUnits);
  }
  std::string text = absl::StrFormat("Units of %d rows", Integer(At(plan, "rows")));
  if (units.size() < listed)
    absl::StrAppendFormat(&text, ", the %d longest of %d (--units: all)", units.size(), listed);
  if (Flag(At(plan, "cut"))) absl::StrAppendFormat(&text, ", cut: it has %d", Integer(At(plan, "unit_count")));
  TextTable table({"unit", "us", "now us", "kernels", "launched", "first kernel", "last kernel"});
  for (const auto& [index, unit] : units) {
    table.AddRow({absl::StrCat(index), Us(At(*unit, "us")), Us(At(*unit, "predicted_us")),
                  absl::StrCat(Integer(At(*unit, "launch_count"))), Flag(At(*unit, "captured")) ? "graph" : "plain",
                  Text(At(*unit, "first_kernel")), Text(At(*unit, "last_kernel"))});
  }
  return absl::StrCat(text, "\n", table.Render());
}

std::string RenderKernels(const json& plan) {
  TextTable table({"kernel", "us", "name"});
  size_t index = 0;
  for (const json& kernel : At(plan, "kernels")) {
    table.AddRow({absl::StrCat(index++), Us(At(kernel, "us")), Text(At(kernel, "name"))});
  }
  return absl::StrFormat(
      "Kernels of %d rows%s\n%s", Integer(At(plan, "rows")),
      Flag(At(plan, "cut")) ? absl::StrFormat(", cut: it has %d", Integer(At(plan, "kernel_count"))) : "",
      table.Render());
}

std::string RenderMemory(const json& memory) {
  TextTable table({"rows", "latency", "standard", "batch", "device MB", "pinned MB", "inputs", "outputs", "activations",
                   "workspace", "all MB"});
  for (const json& plan : At(memory, "plans")) {
    const json& slots = At(plan, "slots");
    table.AddRow({absl::StrCat(Integer(At(plan, "rows"))), absl::StrCat(Integer(At(slots, "latency"))),
                  absl::StrCat(Integer(At(slots, "standard"))), absl::StrCat(Integer(At(slots, "batch"))),
                  Megabytes(At(plan, "slot_device_bytes")), Megabytes(At(plan, "slot_pinned_bytes")),
                  Megabytes(At(plan, "input_bytes")), Megabytes(At(plan, "output_bytes")),
                  Megabytes(At(plan, "activation_bytes")), Megabytes(At(plan, "workspace_bytes")),
                  Megabytes(Number(At(plan, "device_bytes")) + Number(At(plan, "pinned_bytes")))});
  }
  return absl::StrFormat("Memory: slots by class, and MB of one slot\n%sweights %s + slots %s + pinned %s = %s MB\n",
                         table.Render(), Megabytes(At(memory, "weight_bytes")),
                         Megabytes(At(memory, "slot_device_bytes")), Megabytes(At(memory, "slot_pinned_bytes")),
                         Megabytes(At(memory, "total_bytes")));
}

std::string RenderDevice(const json& device, const InspectionView& view) {
  std::string text;
  for (const json& bucket : At(device, "shape_buckets")) {
    const json& choice = At(bucket, "micro_batch");
    absl::StrAppendFormat(&text,
                          "\n%s in %s: standard and batch work runs %d rows at a time (%s)\n%s\n"
                          "%.1f %% of the best throughput given up\n\n%s",
                          Text(At(device, "device")), Text(At(device, "precision")), Integer(At(choice, "rows")),
                          Text(At(choice, "rule")), Text(At(choice, "why")), 100 * Number(At(choice, "cost")),
                          RenderPlans(bucket));
    const json* const plan = MicroBatch(bucket);
    if (plan == nullptr) continue;
    absl::StrAppend(&text, "\n", RenderUnits(*plan, view.all_units));
    if (view.kernels) absl::StrAppend(&text, "\n", RenderKernels(*plan));
  }
  return absl::StrCat(text, "\n", RenderMemory(At(device, "memory")));
}

/// "y:FP32[1,64]"; of a long name the end, where names of one file differ.
std::string ValueText(const json& value) {
  if (value.is_null()) return "-";
  std::string text = Text(At(value, "name"));
  if (text.size() > kNameWidth) text = absl::StrCat("...", text.substr(text.size() - (kNameWidth - 3)));
  const std::string type = Text(At(value, "type"));
  if (!type.empty()) absl::StrAppend(&text, ":", type);
  const json& dims = At(value, "dims");
  if (!dims.is_array()) return text;
  std::vector<std::string> sizes;
  for (const json& dim : dims) sizes.push_back(absl::StrCat(Integer(dim)));
  return absl::StrCat(text, "[", absl::StrJoin(sizes, ","), "]");
}

/// "Conv+Relu -> y:FP32[1,64]"
std::string NodeText(const json& node) {
  std::vector<std::string> outputs;
  for (const json& output : At(node, "outputs")) outputs.push_back(ValueText(output));
  const std::string fused = Text(At(node, "fused"));
  std::string text =
      absl::StrCat(Text(At(node, "op")), fused.empty() ? "" : "+", fused, " -> ", absl::StrJoin(outputs, ", "));
  if (text.size() > kGraphWidth) text = absl::StrCat(text.substr(0, kGraphWidth - 3), "...");
  return text;
}

/// What a node makes, by which the two graphs are lined up.
std::string FirstOutput(const json& node) {
  const json& outputs = At(node, "outputs");
  return outputs.is_array() && !outputs.empty() ? Text(At(outputs.front(), "name")) : "";
}

std::string RenderGraph(const json& graph) {
  const json& before = At(graph, "before");
  const json& after = At(graph, "after");
  std::vector<const json*> right;
  std::map<std::string, size_t> right_by_output;
  for (const json& node : At(after, "nodes")) {
    right_by_output.emplace(FirstOutput(node), right.size());
    right.push_back(&node);
  }
  std::vector<bool> matched(right.size(), false);
  std::vector<std::pair<const json*, size_t>> left;  // With the place of its match; the number of nodes: none.
  for (const json& node : At(before, "nodes")) {
    const auto found = right_by_output.find(FirstOutput(node));
    const bool has_match = found != right_by_output.end() && !matched[found->second];
    left.emplace_back(&node, has_match ? found->second : right.size());
    if (has_match) matched[found->second] = true;
  }
  TextTable table({"before", "|", "after"});
  size_t next = 0;  // What passes made new is shown before the first match that comes after it.
  const auto add_new = [&](size_t end) {
    for (; next < end; ++next) {
      if (!matched[next]) table.AddRow({"", "|", NodeText(*right[next])});
    }
  };
  for (const auto& [node, match] : left) {
    if (match < right.size()) add_new(match);
    table.AddRow({NodeText(*node), "|", match < right.size() ? NodeText(*right[match]) : ""});
  }
  add_new(right.size());
  std::string text =
      absl::StrFormat("Graph: %d nodes before passes, %d after them for %d rows\n", Integer(At(before, "node_count")),
                      Integer(At(after, "node_count")), Integer(At(graph, "after_rows")));
  if (Flag(At(before, "cut")) || Flag(At(after, "cut")))
    absl::StrAppend(&text, "Too long: only the beginning is here.\n");
  return absl::StrCat(text, table.Render());
}

}  // namespace

std::string InspectPath(absl::string_view model, absl::string_view version) {
  return absl::StrCat("/inspect?model=", PercentEncode(model),
                      version.empty() ? "" : "&version=", PercentEncode(version));
}

absl::StatusOr<json> ParseInspection(absl::string_view text) {
  json inspection = json::parse(text.begin(), text.end(), nullptr, false);
  if (At(inspection, "model").is_string() && At(inspection, "devices").is_array() &&
      At(inspection, "graph").is_object()) {
    return inspection;
  }
  return absl::DataLossError("the answer is not a description of a model; is this a Sluice server's metrics port?");
}

std::string RenderInspection(const json& inspection, const InspectionView& view) {
  std::string text = absl::StrFormat("%s version %d, up to %d rows a request\n", Text(At(inspection, "model")),
                                     Integer(At(inspection, "version")),
                                     std::max<int64_t>(1, Integer(At(inspection, "max_batch_size"))));
  for (const json& device : At(inspection, "devices")) absl::StrAppend(&text, RenderDevice(device, view));
  if (view.graph) absl::StrAppend(&text, "\n", RenderGraph(At(inspection, "graph")));
  return text;
}

}  // namespace sluice::client
