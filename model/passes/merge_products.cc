// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kWeights = 1, kBias = 2;  // Inputs of MatMul, as ops/linear.cc reads them.
constexpr size_t kParts = 3;

/// True for a MatMul of rows with constant FP32 weights [depth, width], a constant bias of one row or none, and nothing
/// else, whose result one node reads.
bool IsMergeable(const Graph& graph, const GraphIndex& index, const Node& product, int64_t width) {
  if (product.entry->name != "MatMul" || product.FindAttribute(kActivationAttribute) != nullptr) return false;
  const Value& weights = graph.value(product.inputs[kWeights]);
  if (!weights.is_constant || weights.type != DataType::kFp32 || weights.dims->size() != 2 ||
      (*weights.dims)[1] != width || index.only_reader(product.outputs[0]) < 0) {
    return false;
  }
  if (product.inputs.size() <= kBias || product.inputs[kBias] == kNoValue) return true;
  const Value& bias = graph.value(product.inputs[kBias]);
  return bias.is_constant && bias.type == DataType::kFp32 && !bias.dims->empty() && bias.dims->back() == width &&
         bias.bytes.size() == static_cast<size_t>(width) * sizeof(float);
}

/// Positions of the three products that `attention` has its Q, K and V from, if they can be merged.
std::optional<std::array<size_t, kParts>> ProductsOf(Graph& graph, const GraphIndex& index, size_t attention) {
  const NodeContext context(graph, attention);
  if (context.node().entry->name != "Attention" || context.has_attribute(kMergedAttribute)) return std::nullopt;
  const Shape& dims = context.dims(0);
  // Merged ones are for as many heads of keys as of queries, all of one size, and there is one input.
  const auto q_heads = context.Int("q_num_heads", 0), kv_heads = context.Int("kv_num_heads", 0);
  if (dims.size() != 3 || context.dims(1) != dims || context.dims(2) != dims || !q_heads.ok() || !kv_heads.ok() ||
      *q_heads != *kv_heads) {
    return std::nullopt;
  }
  std::array<size_t, kParts> products;
  ValueIndex input = kNoValue;
  for (size_t part = 0; part < kParts; ++part) {
    const int producer = index.producer(context.input_index(part));
    if (producer < 0) return std::nullopt;
    products[part] = static_cast<size_t>(producer);
    const Node& product = graph.nodes[products[part]];
    if (!IsMergeable(graph, index, product, dims[2])) return std::nullopt;
    if (part > 0 && product.inputs[0] != input) return std::nullopt;
    input = product.inputs[0];
  }
  return products;
}

/// Row by row, the parts' rows side by side; zeros for a part that is missing.
std::vector<std::byte> SideBySide(const std::array<ByteSpan, kParts>& parts, size_t rows, size_t row_bytes) {
  std::vector<std::byte> result(kParts * rows * row_bytes);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t part = 0; part < kParts; ++part) {
      if (parts[part].empty()) continue;
      std::memcpy(result.data() + (row * kParts + part) * row_bytes, parts[part].data() + row * row_bytes, row_bytes);
    }
  }
  return result;
}

/// The product of the same input with the parts' weights side by side.
Node Merge(Graph& graph, const std::array<size_t, kParts>& products, Shape dims) {
  std::array<ByteSpan, kParts> weights, biases;
  bool has_bias = false;
  for (size_t part = 0; part < kParts; ++part) {
    const Node& product = graph.nodes[products[part]];
    weights[part] = graph.value(product.inputs[kWeights]).bytes;
    if (product.inputs.size() <= kBias || product.inputs[kBias] == kNoValue) continue;
    biases[part] = graph.value(product.inputs[kBias]).bytes;
    has_bias = true;
  }
  const Node& first = graph.nodes[products[0]];
  const int64_t depth = (*graph.value(first.inputs[kWeights]).dims)[0], width = dims[2];
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
  Node merged{.name = absl::StrCat(first.name, "/merged"), .entry = first.entry, .inputs = {first.inputs[0]}};
  const auto add = [&](const char* what, Shape shape, const std::array<ByteSpan, kParts>& parts, size_t rows) {
    merged.inputs.push_back(graph.AddConstant(absl::StrCat(merged.name, what), DataType::kFp32, std::move(shape),
                                              SideBySide(parts, rows, row_bytes)));
  };
  add("/weights", {depth, 3 * width}, weights, static_cast<size_t>(depth));
  if (has_bias) add("/bias", {3 * width}, biases, 1);
  Value result{.name = absl::StrCat(merged.name, "/result"), .type = DataType::kFp32};
  dims[2] = 3 * width;
  result.dims = std::move(dims);
  merged.outputs = {graph.AddValue(std::move(result))};
  return merged;
}

}  // namespace

void MergeProducts(Graph& graph) {
  const GraphIndex index(graph);
  std::vector<bool> replaced(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::optional<std::array<size_t, kParts>> products = ProductsOf(graph, index, i);
    if (!products.has_value()) continue;
    Node merged = Merge(graph, *products, *graph.value(graph.nodes[i].inputs[0]).dims);
    Node& attention = graph.nodes[i];
    for (size_t part = 0; part < kParts; ++part) attention.inputs[part] = merged.outputs[0];
    attention.SetAttribute(kMergedAttribute, int64_t{1});
    // Where the last of them stood is after their input and before the attention.
    const size_t last = *std::max_element(products->begin(), products->end());
    for (const size_t product : *products) replaced[product] = product != last;
    graph.nodes[last] = std::move(merged);
  }
  graph.EraseNodes(replaced);
}

}  // namespace sluice::model
