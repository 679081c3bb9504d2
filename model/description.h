// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/data_type.h"
#include "model/model.h"

namespace sluice::model {

// What graphs and plans look like to people. Plain data, copied out of what it describes.

/// A tensor of a graph. Without dims until shapes are bound, -1 for an open dimension.
struct ValueDescription {
  std::string name;
  DataType type = DataType::kInvalid;  ///< kInvalid: not known before shapes are bound.
  std::optional<Shape> dims;
  bool is_constant = false;
};

/// An operator applied; inputs and outputs are positions in GraphDescription::values, -1 for one that is left out.
struct NodeDescription {
  std::string op;
  std::string name;
  std::string fused;  ///< An activation the node applies to its own result, or a chain's steps; mostly empty.
  std::vector<int32_t> inputs, outputs;
};

/// A graph, or the beginning of one that is too long. Values that no listed node touches are left out.
struct GraphDescription {
  std::vector<ValueDescription> values;
  std::vector<NodeDescription> nodes;
  std::vector<int32_t> inputs, outputs;  ///< Of the graph.
  size_t node_count = 0;                 ///< Of the whole graph.
  bool cut = false;                      ///< Something is missing here.
};

/// Bound on what one described graph comes to as JSON, roughly.
inline constexpr size_t kMostGraphBytes = size_t{1} << 19;

struct LaunchDescription {
  std::string kernel;
  absl::Duration time;  ///< Alone on the device, when the plan was built.
};

/// A run of launches that the gate grants as one.
struct UnitDescription {
  size_t first_launch = 0;
  size_t launch_count = 0;
  absl::Duration profiled;   ///< Sum of its launches when the plan was built.
  absl::Duration predicted;  ///< As corrected by what was measured since.
  bool captured = false;     ///< Launched as a graph, not kernel by kernel.
};

struct PlanDescription {
  std::vector<LaunchDescription> launches;  ///< In order; the first and the last are stamps.
  std::vector<UnitDescription> units;       ///< Cover the launches, in order.
  absl::Duration whole;                     ///< All launches in a row, as one graph.
  // Areas of one slot, in bytes. Workspace is part of the activations: the most that one launch takes.
  size_t input_bytes = 0;
  size_t output_bytes = 0;
  size_t activation_bytes = 0;
  size_t workspace_bytes = 0;
};

}  // namespace sluice::model
