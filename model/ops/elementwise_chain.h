// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernels/elementwise_chain.h"
#include "model/graph.h"
#include "model/ops/context.h"

namespace sluice::model {

// The operator "Elementwise", which passes/fuse_elementwise alone makes: a chain of steps over its inputs
// (gpu/kernels/elementwise_chain.h).

/// What an elementwise node computes, as steps over its own inputs: value i is input i. Empty for what is not a step of
/// a chain, such as comparisons. Types and shapes are not looked at.
std::vector<gpu::ElementwiseStep> ElementwiseStepsOf(const NodeContext& context);

/// Input `i` of an elementwise node as it is broadcast in memory: beside a result with the channels last, what has only
/// channels, or only one channel, lies as if it had them last too.
Shape StoredOperand(const NodeContext& context, size_t i);

void SetChain(Node& node, const std::vector<gpu::ElementwiseStep>& steps);
/// What SetChain left on the node; INTERNAL when that is nothing.
absl::StatusOr<std::vector<gpu::ElementwiseStep>> ChainOf(const Node& node);

}  // namespace sluice::model
