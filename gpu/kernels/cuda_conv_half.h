// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/cuda/math_libraries.h"
#include "gpu/kernel.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/cuda_matmul_ways.h"
#include "gpu/kernels/cuda_trial.h"

namespace sluice::gpu::cuda {

/// Convolutions of FP16 and BF16, channels last: pointwise ones as a matrix product by cuBLASLt or by cuDNN, whichever
/// takes less time; others by cuDNN; those of one channel a group, those of up to four places in all, and what cuDNN
/// does not take, by our own kernels.
/// UNIMPLEMENTED for other orders and numbers of dimensions. Load time only.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareHalfConv(int ordinal, MathLibraries& math, MatMulChoices& choices,
                                                        const TrialRules& rules, const ConvDescription& description);

}  // namespace sluice::gpu::cuda
