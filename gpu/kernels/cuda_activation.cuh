// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/cuda_activation.h"

namespace sluice::gpu::cuda {

__device__ inline float Activate(const SumActivation& activation, float x) {
  switch (activation.kind) {
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kClip:
      x = x < activation.low ? activation.low : x;
      return x > activation.high ? activation.high : x;
    case Activation::kSwish:
      return x / (1.0f + __expf(-x));
    default:
      return x;
  }
}

}  // namespace sluice::gpu::cuda
