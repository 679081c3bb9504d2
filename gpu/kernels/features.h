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
};

KernelFeatures KernelFeaturesOf(Device& device);

}  // namespace sluice::gpu
