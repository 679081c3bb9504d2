// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// exp(x - max) / sum(exp(x - max)) along one axis, or its logarithm. (ONNX before opset 13 flattens from `axis` on:
/// the caller gives [outer, inner] and axis 1.)
///
/// Spans: input, output; they may be the same memory. Types: FP32, FP64.
struct SoftmaxDescription {
  DataType type = DataType::kFp32;
  Dims dims = {};
  int64_t axis = -1;
  bool log = false;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSoftmax(Device& device, const SoftmaxDescription& description);

}  // namespace sluice::gpu
