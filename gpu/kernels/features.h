// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::gpu {

class Device;

/// What a device's kernels do beyond what all do, and do faster than what it stands for. Asked for elsewhere it is
/// UNIMPLEMENTED, or slower.
struct KernelFeatures {
  bool channels_last = false;     ///< Convolutions, and the pools between them.
  bool conv_activations = false;  ///< Convolutions apply kClip and kSwish, else kRelu alone.
  bool matmul_gelu = false;       ///< FP32 matrix products apply kGelu, else kRelu alone.
  bool attention = false;         ///< Attention in one kernel, for what PrepareAttention does not call UNIMPLEMENTED.
  /// FP16 and BF16: products (with residuals), convolutions with kClip and kSwish and pools with the channels last,
  /// softmax, layer norm, reductions and everything that works element by element; TF32 in products and convolutions.
  bool low_precision = false;
};

KernelFeatures KernelFeaturesOf(Device& device);

}  // namespace sluice::gpu
