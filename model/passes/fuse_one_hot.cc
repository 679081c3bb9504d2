// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/lower.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

/// What a one-hot product works on.
struct OneHotProduct {
  ValueIndex indices = kNoValue;  ///< [..., 1], INT32 or INT64.
  ValueIndex table = kNoValue;    ///< [depth, width], constant FP32.
};

const Node* ProducerOf(const Graph& graph, const std::vector<int>& producers, ValueIndex value,
                       absl::string_view name) {
  if (value == kNoValue) return nullptr;
  const int producer = producers[static_cast<size_t>(value)];
  if (producer < 0) return nullptr;
  const Node& node = graph.nodes[static_cast<size_t>(producer)];
  return node.entry != nullptr && node.entry->name == name ? &node : nullptr;
}

/// True for a constant 0, 1, ..., depth-1 along the last of its dimensions, the others being 1.
bool CountsUp(const Value& value, int64_t depth) {
  if (!value.is_constant || value.dims->empty() || value.dims->back() != depth) return false;
  const auto numbers = IntsOf(value);
  if (!numbers.ok() || static_cast<int64_t>(numbers->size()) != depth) return false;
  for (int64_t i = 0; i < depth; ++i) {
    if ((*numbers)[static_cast<size_t>(i)] != i) return false;
  }
  return true;
}

/// Fills `match` when `node` is MatMul(Cast(Equal(indices, counting)), table).
bool Match(const Graph& graph, const std::vector<int>& producers, const Node& node, OneHotProduct& match) {
  if (node.entry->name != "MatMul" || node.inputs.size() != 2) return false;
  const Value& table = graph.value(node.inputs[1]);
  if (!table.is_constant || table.type != DataType::kFp32 || table.dims->size() != 2) return false;
  const Node* cast = ProducerOf(graph, producers, node.inputs[0], "Cast");
  if (cast == nullptr) return false;
  const Node* equal = ProducerOf(graph, producers, cast->inputs[0], "Equal");
  if (equal == nullptr) return false;
  const int64_t depth = (*table.dims)[0];
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const Value& indices = graph.value(equal->inputs[side]);
    const Value& counting = graph.value(equal->inputs[1 - side]);
    if (!CountsUp(counting, depth) || indices.is_constant || !indices.dims.has_value()) continue;
    // The counting constant must not add dimensions, or the product's shape would not be the indices' own.
    if (indices.dims->empty() || indices.dims->back() != 1 || counting.dims->size() > indices.dims->size()) continue;
    match = {equal->inputs[side], node.inputs[1]};
    return true;
  }
  return false;
}

std::vector<std::byte> OneInt(DataType type, int64_t number) {
  std::vector<std::byte> bytes(ElementBytes(type));
  const auto narrow = static_cast<int32_t>(number);
  std::memcpy(bytes.data(), type == DataType::kInt32 ? static_cast<const void*>(&narrow) : &number, bytes.size());
  return bytes;
}

/// The nodes that stand for the product: indices outside go to a row of zeros behind the table's own (index -1 counts
/// from the back), exactly as no position of a one-hot row would match them.
absl::StatusOr<std::vector<Node>> Replacement(Graph& graph, const Node& product, const OneHotProduct& match) {
  const Value table = graph.value(match.table);
  const DataType index_type = graph.value(match.indices).type;
  const Shape column_dims = *graph.value(match.indices).dims;
  const int64_t depth = (*table.dims)[0];
  const int64_t width = (*table.dims)[1];
  std::vector<std::byte> rows(table.bytes.begin(), table.bytes.end());
  rows.resize(rows.size() + static_cast<size_t>(width) * sizeof(float), std::byte{0});
  const ValueIndex table_rows =
      graph.AddConstant(absl::StrCat(table.name, "/rows"), DataType::kFp32, {depth + 1, width}, std::move(rows));
  const ValueIndex low = graph.AddConstant(absl::StrCat(product.name, "/low"), index_type, {}, OneInt(index_type, -1));
  const ValueIndex high =
      graph.AddConstant(absl::StrCat(product.name, "/high"), index_type, {}, OneInt(index_type, depth));
  const Shape index_dims(column_dims.begin(), column_dims.end() - 1);
  std::vector<std::byte> shape_bytes(index_dims.size() * sizeof(int64_t));
  if (!shape_bytes.empty()) std::memcpy(shape_bytes.data(), index_dims.data(), shape_bytes.size());
  const ValueIndex shape = graph.AddConstant(absl::StrCat(product.name, "/shape"), DataType::kInt64,
                                             {static_cast<int64_t>(index_dims.size())}, std::move(shape_bytes));
  const ValueIndex clipped =
      graph.AddValue({.name = absl::StrCat(product.name, "/clipped"), .type = index_type, .dims = column_dims});
  const ValueIndex flat =
      graph.AddValue({.name = absl::StrCat(product.name, "/indices"), .type = index_type, .dims = index_dims});
  std::vector<Node> nodes(3);
  nodes[0] = {
      absl::StrCat(product.name, "/clip"), FindOperator("Clip", kMaxOpset), {match.indices, low, high}, {clipped}, {}};
  nodes[1] = {absl::StrCat(product.name, "/reshape"), FindOperator("Reshape", kMaxOpset), {clipped, shape}, {flat}, {}};
  nodes[2] = {product.name, FindOperator("Gather", kMaxOpset), {table_rows, flat}, product.outputs, {}};
  return nodes;
}

}  // namespace

absl::Status FuseOneHot(Graph& graph) {
  if (graph.opset < 12) return absl::OkStatus();  // A Clip of integers does not exist before.
  const std::vector<int> producers = graph.Producers();
  std::vector<std::pair<size_t, OneHotProduct>> matches;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    OneHotProduct match;
    if (Match(graph, producers, graph.nodes[i], match)) matches.emplace_back(i, match);
  }
  if (matches.empty()) return absl::OkStatus();
  std::vector<Node> rewritten;
  size_t next = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (next == matches.size() || matches[next].first != i) {
      rewritten.push_back(std::move(graph.nodes[i]));
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(std::vector<Node> nodes, Replacement(graph, graph.nodes[i], matches[next].second));
    for (Node& node : nodes) rewritten.push_back(std::move(node));
    ++next;
  }
  graph.nodes = std::move(rewritten);
  RemoveDeadCode(graph);
  return absl::OkStatus();
}

}  // namespace sluice::model
