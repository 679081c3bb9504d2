// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/packed_weights.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Product of matrices, MatMul and Gemm in one:
///
///   output = activation(alpha * A' B' + beta * C + residual)
///
/// A' and B' are `a` and `b` with their last two dimensions swapped when transpose_a, transpose_b. Dimensions before
/// the last two are batches and broadcast against each other by numpy's rule; the result is [batch..., rows, columns].
/// C, when given, broadcasts to the result (not the other way round). A vector operand is the caller's to give as a
/// matrix: [1, K] or [K, 1].
///
/// Spans: a, [b, unless b_constant is set], [c, when `c` is set and c_constant is not], [residual], output. Spans must
/// not overlap, but the residual and the output may be the same memory.
/// Types: FP32; FP16 and BF16 as KernelFeatures says, summed in float; FP64, INT32 and INT64 too by plain loops (alpha
/// and beta are then 1, and there is no activation).
struct MatMulDescription {
  DataType type = DataType::kFp32;
  Dims a = {};  ///< Rank at least 2; dimensions may be 0 except in the last two.
  Dims b = {};  ///< Likewise.
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 1.0f;
  std::optional<Constant> b_constant = {};    ///< B, when it is constant; its dims equal `b`. In FP32, also
                                              ///< where `type` is a half; for no other types.
  std::optional<Dims> c = {};                 ///< C's dimensions; none when there is no C.
  std::optional<Constant> c_constant = {};    ///< C, when it is constant; its dims equal `c`. Likewise.
  Activation activation = Activation::kNone;  ///< kGelu as KernelFeatures says.
  bool residual = false;                      ///< Of the output's shape and type; halves only.
  bool tf32 = false;                          ///< FP32: factors may be rounded to TF32.
  /// Where packed constants live; null lets the kernel keep its own copy. Must outlive the kernel.
  PackedWeights* packed_weights = nullptr;
};

/// Dimensions of the result. INVALID_ARGUMENT when the operands do not fit each other.
absl::StatusOr<Dims> MatMulOutputDims(const MatMulDescription& description);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(Device& device, const MatMulDescription& description);

}  // namespace sluice::gpu
