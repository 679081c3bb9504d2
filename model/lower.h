// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/kernels/packed_weights.h"
#include "model/graph.h"
#include "model/ops/context.h"

namespace sluice::model {

/// Runs the node's shape rule. The types and shapes of all its inputs must be known. Errors name the node.
absl::Status InferNode(Graph& graph, size_t node_index);

/// Prepares the node's kernels on `device` and appends them to `lowered`; may add temporaries to the graph. Errors name
/// the node.
absl::Status LowerNode(Graph& graph, size_t node_index, gpu::Device& device, gpu::PackedWeights* pool,
                       Lowered& lowered);

/// Runs one node whose inputs are all constant on `host` and makes its outputs constant. Load time only: it blocks.
absl::Status EvaluateNode(Graph& graph, size_t node_index, gpu::Device& host);

}  // namespace sluice::model
