// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/kernels/cuda_matmul_shape.h"

namespace sluice::gpu::cuda {

/// A matrix product of FP32, FP16 or BF16 as cuBLASLt calls, all decided. Immutable, so that any number of threads may
/// submit it.
class LtProduct {
 public:
  /// Up to `most` ways of doing it, the one that cuBLASLt expects to be fastest first; none when it has none, or only
  /// in more calls than are worth it. Load time only.
  static absl::StatusOr<std::vector<LtProduct>> Candidates(cublasLtHandle_t handle, const MatMulOperands& operands,
                                                           int most);

  /// The algorithm and what is fused, as a tuning names it; differs among the candidates of one product.
  absl::StatusOr<std::string> Name() const;
  size_t workspace_bytes() const { return workspace_bytes_; }
  /// True when C, the residual or the activation is left to SubmitAddC.
  bool leaves_any() const { return leaves_c() || leaves_residual() || leaves_activation(); }
  bool leaves_c() const { return operands_.shape.has_c && !bias_ && !matrix_c_; }
  bool leaves_residual() const { return operands_.residual && !residual_; }
  bool leaves_activation() const { return operands_.shape.relu && !relu_; }
  /// Allocates nothing, and is capturable. `c` may be null when there is none. Addresses on 16 bytes.
  /// `residual` is null unless the operands have one; it may be `out`.
  absl::Status Submit(cudaStream_t stream, const void* a, const void* b, const void* c, const void* residual, void* out,
                      DeviceSpan workspace) const;

 private:
  struct Descriptors;

  LtProduct(cublasLtHandle_t handle, const MatMulOperands& operands, bool fuse);
  absl::Status Describe(const void* bias, Descriptors& to) const;
  absl::StatusOr<std::vector<LtProduct>> WithAlgorithms(int most) const;

  cublasLtHandle_t handle_;
  MatMulOperands operands_;
  bool bias_ = false;      ///< C is the epilogue's bias.
  bool matrix_c_ = false;  ///< C is cuBLASLt's own C.
  bool residual_ = false;  ///< The residual is cuBLASLt's own C.
  bool relu_ = false;      ///< The activation is the epilogue's.
  int64_t calls_ = 1;      ///< One for each index of all batch dimensions but the last.
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

}  // namespace sluice::gpu::cuda
