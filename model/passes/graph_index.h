// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "model/graph.h"

namespace sluice::model {

/// Who makes and who reads each value, for passes that look for patterns; of the graph as it was when this was made.
/// Values added since have no producer and no reader.
class GraphIndex {
 public:
  explicit GraphIndex(const Graph& graph);

  /// Position of the node that makes `value`; -1 for inputs, constants and kNoValue.
  int producer(ValueIndex value) const;
  /// The node that makes `value` if it is a `name`; else null.
  const Node* Producer(ValueIndex value, absl::string_view name) const;
  /// How many node inputs and graph outputs read `value`.
  int uses(ValueIndex value) const;
  /// Position of the one node that reads `value`; -1 when none, several or the graph's outputs do.
  int only_reader(ValueIndex value) const { return uses(value) == 1 ? readers_[static_cast<size_t>(value)] : -1; }

 private:
  const Graph& graph_;
  const std::vector<int> producers_;
  const std::vector<int> uses_;
  std::vector<int> readers_;
};

/// The number of an FP32 constant that holds only one.
std::optional<double> ScalarOf(const Graph& graph, ValueIndex value);

/// A Reshape node from `from` to a new value of dimensions `dims`, or to `to` when there is one.
Node MakeReshape(Graph& graph, ValueIndex from, Shape dims, ValueIndex to = kNoValue);
/// Likewise the Transpose that swaps the first two of three dimensions.
Node MakeSwap(Graph& graph, ValueIndex from, ValueIndex to = kNoValue);
/// True for such a Transpose.
bool IsSwap(const Node& node);

}  // namespace sluice::model
