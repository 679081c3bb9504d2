// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/graph.h"

namespace sluice::model {

/// A graph for people, one node a line with types and shapes; for debugging and tests.
std::string PrintGraph(const Graph& graph);

}  // namespace sluice::model
