// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "gpu/kernels/movement.h"
#include "model/ops/context.h"

namespace sluice::model {

/// A Slice with its bounds resolved: per dimension, clamped.
absl::StatusOr<gpu::SliceDescription> DescribeSlice(const NodeContext& context);

}  // namespace sluice::model
