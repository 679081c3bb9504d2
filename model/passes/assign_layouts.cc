// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kRank = 4;

/// True when both orders are the same bytes: one channel, or one place.
bool IsSameInBoth(const Shape& dims) {
  Shape padded = dims;
  if (padded.size() > kRank) return false;
  padded.insert(padded.begin(), kRank - padded.size(), 1);
  return padded[1] == 1 || padded[2] * padded[3] == 1;
}

/// True for a reduction over both spatial dimensions and no other: what is left is the same in both orders.
bool ReducesPlaces(Graph& graph, size_t node) {
  const NodeContext context(graph, node);
  if (context.node().entry->name.substr(0, 6) != "Reduce" || context.dims(0).size() != kRank) return false;
  absl::StatusOr<std::vector<int64_t>> axes = context.Ints("axes");
  if (axes.ok() && axes->empty() && context.has_input(1)) axes = context.ConstantInts(1);
  if (!axes.ok()) return false;
  for (int64_t& axis : *axes) axis += axis < 0 ? static_cast<int64_t>(kRank) : 0;
  std::sort(axes->begin(), axes->end());
  return *axes == std::vector<int64_t>{2, 3};
}

/// Nodes that compute the same whatever the order is, as long as it is one.
bool TakesImagesOfAnyOrder(absl::string_view name) {
  return IsUnaryOperator(name) || name == "Add" || name == "Sub" || name == "Mul" || name == "Div" ||
         name == "MaxPool" || name == "AveragePool";
}

bool IsImage(const Graph& graph, ValueIndex index) {
  return index != kNoValue && graph.value(index).dims.has_value() && graph.value(index).dims->size() == kRank;
}

bool IsImageConv(const Graph& graph, const Node& node) {
  return node.entry->name == "Conv" && IsImage(graph, node.inputs[0]);
}

/// How many convolutions are joined by nodes that take any order. One alone gains nothing: what it needs turned before
/// and after, its kernel turns faster itself.
class Regions {
 public:
  explicit Regions(const Graph& graph) : parents_(graph.values.size()), convolutions_(graph.values.size(), 0) {
    std::iota(parents_.begin(), parents_.end(), size_t{0});
    for (const Node& node : graph.nodes) {
      const bool conv = IsImageConv(graph, node);
      if (!conv && !(TakesImagesOfAnyOrder(node.entry->name) && IsImage(graph, node.outputs[0]))) continue;
      const size_t inputs = conv ? 1 : node.inputs.size();
      for (size_t i = 0; i < inputs; ++i) {
        if (IsImage(graph, node.inputs[i])) parents_[Root(node.inputs[i])] = Root(node.outputs[0]);
      }
    }
    for (const Node& node : graph.nodes) {
      if (IsImageConv(graph, node)) ++convolutions_[Root(node.outputs[0])];
    }
  }
  bool HasSeveral(ValueIndex value) { return convolutions_[Root(value)] > 1; }

 private:
  size_t Root(ValueIndex value) {
    auto index = static_cast<size_t>(value);
    while (parents_[index] != index) index = parents_[index] = parents_[parents_[index]];
    return index;
  }

  std::vector<size_t> parents_;
  std::vector<int> convolutions_;
};

class Assignment {
 public:
  Assignment(Graph& graph, bool every) : graph_(graph), every_(every), regions_(graph) {}

  void Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      graph_.nodes.push_back(std::move(node));
      Place();
    }
    for (ValueIndex& output : graph_.outputs) output = InOrder(output, /*channels_last=*/false);
  }

 private:
  /// Decides for the node at the end, which may move behind changes of order that it needs.
  void Place() {
    Node node = std::move(graph_.nodes.back());
    graph_.nodes.back() = node;  // What it is, is asked with the node in its place.
    const bool is_conv = IsImageConv(graph_, node) && (every_ || regions_.HasSeveral(node.outputs[0]));
    const bool last = is_conv || FollowsChannelsLast(node);
    const bool any_order = !last && TakesEither(graph_.nodes.size() - 1);
    graph_.nodes.pop_back();
    for (size_t i = 0; i < node.inputs.size() && !any_order; ++i) {
      if (node.inputs[i] == kNoValue) continue;
      // A convolution's weights and bias are no images, and constants beside others lie the same in both orders.
      const Value& value = graph_.value(node.inputs[i]);
      // A convolution of halves turns an input of another type itself.
      const bool converts = is_conv && i == 0 && value.type != graph_.value(node.outputs[0]).type;
      const bool image = value.dims.has_value() && value.dims->size() == kRank && !converts &&
                         (is_conv ? i == 0 || i == kConvResidual : !value.is_constant);
      node.inputs[i] = InOrder(node.inputs[i], last && image);
    }
    if (last && !IsSameInBoth(*graph_.value(node.outputs[0]).dims)) graph_.value(node.outputs[0]).channels_last = true;
    graph_.nodes.push_back(std::move(node));
  }

  /// What takes any order goes on in the one that reaches it.
  bool FollowsChannelsLast(const Node& node) const {
    const absl::string_view name = node.entry->name;
    if (!TakesImagesOfAnyOrder(name) || node.outputs.size() != 1 || !IsImage(graph_, node.outputs[0])) return false;
    bool reaches = false;
    const size_t operands = IsUnaryOperator(name) ? 1 : node.inputs.size();
    for (size_t i = 0; i < operands; ++i) {
      const Value& value = graph_.value(node.inputs[i]);
      reaches |= value.channels_last;
      // A constant, or a tensor of another shape, can stay as it is only where the order makes no difference.
      const bool image = !value.is_constant && value.dims->size() == kRank;
      if (!image && !IsSameInBoth(*value.dims)) return false;
    }
    return reaches;
  }

  /// True for the node at `index` if it reads its input in either order and gives a result that is the same in both.
  bool TakesEither(size_t index) {
    const absl::string_view name = graph_.nodes[index].entry->name;
    return name == "GlobalAveragePool" || name == "GlobalMaxPool" || ReducesPlaces(graph_, index);
  }

  /// The value in that order: itself, or a copy made once.
  ValueIndex InOrder(ValueIndex index, bool channels_last) {
    if (graph_.value(index).channels_last == channels_last) return index;
    if (!graph_.value(index).dims.has_value() || IsSameInBoth(*graph_.value(index).dims)) return index;
    const auto [made, is_new] = copies_.try_emplace(index, kNoValue);
    if (!is_new) return made->second;
    Value copy = graph_.value(index);
    copy.name = absl::StrCat(copy.name, channels_last ? "/channels_last" : "/channels_first");
    copy.channels_last = channels_last;
    Node change;
    change.name = copy.name;
    change.entry = FindOperator("Transpose", kMaxOpset);
    change.inputs = {index};
    change.outputs = {graph_.AddValue(std::move(copy))};
    change.SetAttribute(kLayoutAttribute, std::string(channels_last ? "channels_last" : "channels_first"));
    made->second = change.outputs[0];
    graph_.nodes.push_back(std::move(change));
    return made->second;
  }

  Graph& graph_;
  const bool every_;
  Regions regions_;                          ///< Of the graph as it came.
  std::map<ValueIndex, ValueIndex> copies_;  ///< Each value has one order of its own and at most one other.
};

}  // namespace

void AssignLayouts(Graph& graph, bool every) { Assignment(graph, every).Run(); }

}  // namespace sluice::model
