// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "model/description.h"
#include "model/graph.h"

namespace sluice::model {

/// A graph for people, one node a line with types and shapes; for debugging and tests.
std::string PrintGraph(const Graph& graph);

/// The same as data. Nodes are listed from the first on while they come to `most_bytes` as JSON, roughly.
GraphDescription DescribeGraph(const Graph& graph, size_t most_bytes);

}  // namespace sluice::model
