// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/packed_weights.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Convolution with constant weights, channels first unless said otherwise, one to three spatial dimensions:
///
///   output[n,m,o...] = activation(bias[m] + residual[n,m,o...]
///                                 + sum over c,k of input[n, g*C/groups + c, o*stride - pad + k*dilation] *
///                                 weights[m,c,k])
///
/// where g is the group of m, and positions outside the input count as 0.
///
/// Spans: input, [residual, when `residual` is set], output. Weights and bias are not spans: they come with the
/// description and are kept packed. Residual and output may be the same memory (saves a copy); other spans must not
/// overlap.
struct ConvDescription {
  /// FP32; FP16 and BF16 where KernelFeatures says so, summed in float, for two spatial dimensions with the channels
  /// last only.
  DataType type = DataType::kFp32;
  /// Halves: the input is FP32 with the channels first, as requests bring it; residual and result are not.
  bool fp32_input = false;
  bool tf32 = false;                  ///< FP32: factors may be rounded to TF32.
  Dims input = {};                    ///< [N, C, spatial...], all positive.
  Constant weights = {};              ///< [M, C / groups, kernel...], FP32.
  std::optional<Constant> bias = {};  ///< [M], FP32.
  Dims strides = {};                  ///< One per spatial dimension; empty for all 1. Likewise below.
  Dims dilations = {};
  Dims pads_begin = {};  ///< Empty for all 0.
  Dims pads_end = {};
  int64_t groups = 1;
  bool residual = false;
  Activation activation = Activation::kNone;  ///< Others than kRelu as KernelFeatures says.
  float low = 0, high = 0;                    ///< Of kClip; low <= high.
  /// Input, residual and result lie in memory as [N, spatial..., C], whatever the order of `input`; where
  /// KernelFeatures says so. Weights are given as ever.
  bool channels_last = false;
  /// Where packed weights live; null lets the kernel keep its own copy. Must outlive the kernel.
  PackedWeights* packed_weights = nullptr;
};

/// [N, M, spatial...] of the result. INVALID_ARGUMENT saying what was expected and what came when the description is
/// not consistent.
absl::StatusOr<Dims> ConvOutputDims(const ConvDescription& description);

/// INVALID_ARGUMENT as above; UNIMPLEMENTED for what the backend does not convolve.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(Device& device, const ConvDescription& description);

}  // namespace sluice::gpu
