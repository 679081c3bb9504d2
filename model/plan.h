// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "model/constant_pool.h"
#include "model/graph.h"
#include "model/model.h"

namespace sluice::model {

/// Builds the plan of a graph that passes/ has bound and simplified, for `device`. `device` and `pool` must outlive it.
absl::StatusOr<std::unique_ptr<Plan>> BuildPlanFromGraph(Graph graph, const Bucket& bucket, gpu::Device& device,
                                                         ConstantPool& pool, const PlanOptions& options);

}  // namespace sluice::model
