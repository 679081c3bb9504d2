// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "server/execution/model_instance.h"
#include "server/metrics/family.h"

namespace sluice::server {

/// A model on one of its devices.
struct InspectedInstance {
  std::string device;  ///< "cuda:0"
  const ModelInstance* instance = nullptr;
};

/// Units and kernels that InspectModel lists of one model, on all devices and in all plans together.
inline constexpr size_t kMostListedLaunches = 8192;

/// What a model became when it was loaded, as JSON (server/execution/README.md has the fields): its graph before and
/// after passes, and for each device every plan with its units, kernels and their times, which plan is the micro-batch
/// and why, and its memory, in sums that add up. Times are microseconds, sizes bytes. At most about 4 MB; what had to
/// be left out is marked `cut`. `instances` has at least one, all of the same model. Any thread; allocates.
std::string InspectModel(std::span<const InspectedInstance> instances);

/// Appends how the model's batch work is cut on `device`, for metrics: of its first shape bucket. Any thread.
void ReadBatchPlan(const ModelInstance& instance, const std::string& device,
                   std::vector<metrics::ReadingSample>& samples);

}  // namespace sluice::server
