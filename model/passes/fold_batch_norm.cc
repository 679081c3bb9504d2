// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

std::vector<float> FloatsOf(const Value& constant) {
  std::vector<float> values(constant.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), constant.bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

bool IsFloatVector(const Graph& graph, ValueIndex index, int64_t length) {
  const Value& value = graph.value(index);
  return value.is_constant && value.type == DataType::kFp32 && *value.dims == Shape{length};
}

/// True when `conv` can take the normalisation `norm` into its weights.
bool CanFold(const Graph& graph, const Node& conv, const Node& norm) {
  if (conv.entry->name != "Conv" || conv.inputs.size() > 3 || conv.FindAttribute(kActivationAttribute) != nullptr) {
    return false;
  }
  const Value& weights = graph.value(conv.inputs[1]);
  if (!weights.is_constant || weights.type != DataType::kFp32 || weights.dims->size() < 3) return false;
  const int64_t channels = (*weights.dims)[0];
  if (conv.inputs.size() == 3 && conv.inputs[2] != kNoValue && !IsFloatVector(graph, conv.inputs[2], channels)) {
    return false;
  }
  if (channels <= 0 || norm.FindAttribute("training_mode") != nullptr) return false;
  for (size_t i = 1; i < 5; ++i) {
    if (!IsFloatVector(graph, norm.inputs[i], channels)) return false;
  }
  return true;
}

/// Gives `conv` weights and bias with the normalisation in them.
absl::Status Fold(Graph& graph, Node& conv, const Node& norm, float epsilon) {
  const Value weights_value = graph.value(conv.inputs[1]);
  std::vector<float> weights = FloatsOf(weights_value);
  const auto channels = static_cast<size_t>((*weights_value.dims)[0]);
  const std::vector<float> scale = FloatsOf(graph.value(norm.inputs[1]));
  const std::vector<float> shift = FloatsOf(graph.value(norm.inputs[2]));
  const std::vector<float> mean = FloatsOf(graph.value(norm.inputs[3]));
  const std::vector<float> variance = FloatsOf(graph.value(norm.inputs[4]));
  std::vector<float> bias(channels, 0.0f);
  if (conv.inputs.size() == 3 && conv.inputs[2] != kNoValue) bias = FloatsOf(graph.value(conv.inputs[2]));
  const size_t per_channel = weights.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    const double factor = scale[c] / std::sqrt(static_cast<double>(variance[c]) + epsilon);
    for (size_t k = 0; k < per_channel; ++k) {
      float& weight = weights[c * per_channel + k];
      weight = static_cast<float>(weight * factor);
    }
    bias[c] = static_cast<float>((static_cast<double>(bias[c]) - mean[c]) * factor + shift[c]);
  }
  conv.inputs.resize(3, kNoValue);
  conv.inputs[1] = graph.AddConstant(absl::StrCat(weights_value.name, "/normalized"), DataType::kFp32,
                                     *weights_value.dims, BytesOf(weights));
  conv.inputs[2] = graph.AddConstant(absl::StrCat(weights_value.name, "/normalized bias"), DataType::kFp32,
                                     {static_cast<int64_t>(channels)}, BytesOf(bias));
  return absl::OkStatus();
}

}  // namespace

absl::Status FoldBatchNorm(Graph& graph) {
  const std::vector<int> uses = graph.UseCounts();
  const std::vector<int> producers = graph.Producers();
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].entry->name != "BatchNormalization") continue;
    const auto input = static_cast<size_t>(graph.nodes[i].inputs[0]);
    if (producers[input] < 0 || uses[input] != 1) continue;
    const auto producer = static_cast<size_t>(producers[input]);
    if (!CanFold(graph, graph.nodes[producer], graph.nodes[i])) continue;
    const auto epsilon = NodeContext(graph, i).Float("epsilon", 1e-5f);
    if (!epsilon.ok()) return AtNode(graph.nodes[i], epsilon.status());
    Node fused = std::move(graph.nodes[producer]);
    SLUICE_RETURN_IF_ERROR(Fold(graph, fused, graph.nodes[i], *epsilon));
    fused.outputs = graph.nodes[i].outputs;
    graph.nodes[i] = std::move(fused);
    merged[producer] = true;
  }
  graph.EraseNodes(merged);
  return absl::OkStatus();
}

}  // namespace sluice::model
