// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"

namespace sluice::gpu {

/// A kernel that writes the device's clock, a uint64, to its single output (8 bytes, mapped pinned memory). As the
/// first kernel of a plan it shows when the device really began, which an event cannot: an event on an idle stream
/// completes at once. Convert with Device::StampToTime. (%globaltimer on CUDA, the monotonic clock on the host.)
absl::StatusOr<std::unique_ptr<Kernel>> PrepareStamp(Device& device);

}  // namespace sluice::gpu
