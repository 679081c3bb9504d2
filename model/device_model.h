// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "model/graph.h"
#include "model/model.h"

namespace sluice::model {

/// Simplifies `graph` as far as that goes without shapes, and keeps it with the weights of `device`. The signature,
/// both devices and the bytes the graph points to must outlive the result.
absl::StatusOr<std::unique_ptr<DeviceModel>> MakeDeviceModel(Graph graph, const Signature& signature,
                                                             gpu::Device& device, gpu::Device& host,
                                                             const PlanOptions& options);

}  // namespace sluice::model
