// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "model/graph.h"
#include "model/model.h"
#include "model/onnx_reader.h"

namespace sluice::model {

/// Gives a parsed file its meaning: names become values, nodes find their operators, nodes are put in order. The
/// graph's constants point into `file`, which must outlive it. INVALID_ARGUMENT for names given twice or never, cycles,
/// and outputs without a declared shape; UNIMPLEMENTED naming domain, node or operator for what Sluice does not run.
absl::StatusOr<Graph> BuildGraph(const OnnxFile& file);

/// Inputs and outputs as `file` declares them; `graph` is the one built from it.
Signature ReadSignature(const OnnxFile& file, const Graph& graph);

}  // namespace sluice::model
