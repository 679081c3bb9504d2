// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/passes/passes.h"

namespace sluice::model {

void RemoveDeadCode(Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const ValueIndex output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  std::vector<bool> dead(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueIndex output) {
      return output != kNoValue && needed[static_cast<size_t>(output)];
    });
    dead[i] = !read;
    if (!read) continue;
    for (const ValueIndex input : node.inputs) {
      if (input != kNoValue) needed[static_cast<size_t>(input)] = true;
    }
  }
  graph.EraseNodes(dead);
}

}  // namespace sluice::model
