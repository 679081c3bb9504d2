// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Inference-time batch normalisation of [N, C, ...]:
/// output = activation(scale[c] * (x - mean[c]) / sqrt(variance[c] + epsilon) + bias[c]).
///
/// Spans: input, scale, bias, mean, variance (each [C]), output; input and output may be the same memory. Type: FP32.
struct BatchNormDescription {
  Dims input = {};  ///< Rank at least 2.
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;
};

/// Normalises over the dimensions from `axis` to the last: output = scale * (x - mean) / sqrt(variance + epsilon) +
/// bias, with mean and variance of those dimensions.
///
/// Spans: input, scale, [bias, when has_bias], output; scale and bias have the shape of the normalised dimensions;
/// input and output may be the same memory. Sums of halves are kept in float.
struct LayerNormDescription {
  DataType type = DataType::kFp32;  ///< Of input and output, FP16 and BF16 where KernelFeatures says so; scale and bias
                                    ///< are FP32.
  Dims input = {};
  int64_t axis = -1;
  float epsilon = 1e-5f;
  bool has_bias = true;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNorm(Device& device, const BatchNormDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNorm(Device& device, const LayerNormDescription& description);

}  // namespace sluice::gpu
