// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/cuda_constant.h"
#include "gpu/kernels/cuda_conv_kernels.h"

namespace sluice::gpu::cuda {

/// Addresses of one launch; bias and residual may be null.
struct ConvOperands {
  const void* input = nullptr;
  const void* weights = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;  ///< May be `output`.
  void* output = nullptr;
  void* workspace = nullptr;
};

/// What every convolution has, whoever computes it.
struct ConvParts {
  std::string name;
  ConvShape shape;
  bool residual = false;
  bool pad = false;  ///< For cuDNN the input is padded into the workspace first.
  size_t input_bytes = 0, padded_bytes = 0, output_bytes = 0;
  CudaConstant weights, bias;
  bool tf32 = false;

  /// All that the time of a convolution of `type` depends on, as a tuning names it.
  std::string ProblemName(DataType type) const;
  /// The spans in order: input, [residual], output. INTERNAL when they do not fit `kernel`.
  absl::StatusOr<ConvOperands> Bind(const Kernel& kernel, const KernelArgs& args) const;
};

}  // namespace sluice::gpu::cuda
