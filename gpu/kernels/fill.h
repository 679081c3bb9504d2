// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Writes one value everywhere. Spans: output.
struct FillDescription {
  DataType type = DataType::kFp32;
  Dims dims = {};
  std::vector<std::byte> value = {};  ///< One element of the type.
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareFill(Device& device, const FillDescription& description);

}  // namespace sluice::gpu
