// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gpu/kernels/cuda_matmul_kernels.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/matmul.h"

namespace sluice::gpu::cuda {

/// How C stands to the result: one vector added to every row, a matrix as large as the result's, or anything else.
enum class CForm { kNone, kRow, kMatrix, kOther };

/// A description with every step worked out.
struct MatMulOperands {
  MatMulShape shape;
  bool transpose_a = false;  ///< A is stored [depth, rows]; false where that is the same bytes.
  bool transpose_b = false;  ///< B is stored [columns, depth].
  bool one_b = false;        ///< B is one matrix, shared by all batches.
  CForm c_form = CForm::kNone;
  /// Elements from one stored row of A, and of B, to the next; 0: as many as it has. For cuBLASLt.
  int64_t a_lead = 0;
  int64_t b_lead = 0;
  DataType type = DataType::kFp32;      ///< Of A, B and C.
  DataType out_type = DataType::kFp32;  ///< The same, or FP32.
  bool tf32 = false;
  /// C is a row, and a matrix of the result's form is added as well.
  bool residual = false;
};

/// Batches that share one B are counted as more rows where C allows it; other batch dimensions are merged.
/// UNIMPLEMENTED when more than kMaxBatchRank are left.
absl::StatusOr<MatMulOperands> MakeMatMulOperands(const MatMulDescription& description, const MatMulGeometry& geometry);

}  // namespace sluice::gpu::cuda
