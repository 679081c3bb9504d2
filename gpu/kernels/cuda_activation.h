// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/tensor.h"

namespace sluice::gpu::cuda {

/// What follows a sum in FP32, inside the kernel that made it.
struct SumActivation {
  Activation kind = Activation::kNone;  ///< kNone, kRelu, kClip or kSwish.
  float low = 0, high = 0;              ///< kClip.
};

}  // namespace sluice::gpu::cuda
