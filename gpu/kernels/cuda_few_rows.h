// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/data_type.h"
#include "gpu/kernels/cuda_activation.h"
#include "gpu/kernels/cuda_matmul_shape.h"

namespace sluice::gpu::cuda {

inline constexpr int64_t kMaxFewRows = 4;

/// The product of up to kMaxFewRows rows with a matrix given by its columns, where reading that matrix once is all the
/// cost: out = activation(alpha * A B + beta * C + residual). A is [rows, depth], B [columns, depth]; element (m, n) of
/// C is at m * c_row + n * c_column. Sums in FP32, rounded once.
struct FewRowsProduct {
  DataType type = DataType::kFp32;  ///< Of everything: FP32, FP16 or BF16.
  int64_t rows = 0, columns = 0, depth = 0;
  int64_t c_row = 0, c_column = 0;
  float alpha = 1.0f, beta = 1.0f;
  SumActivation activation;
  int parts = 1;  ///< Warps that share a column.
};

/// True for products that it takes, apart from where their operands lie: one matrix B by its columns, one A by its
/// rows.
bool TakesFewRows(const MatMulOperands& operands);
/// All but the activation of an operator of its own: `operands` say whether there is a Relu.
FewRowsProduct MakeFewRows(const MatMulOperands& operands, int multiprocessors);

absl::Status LoadFewRows(int ordinal, DataType type);
/// Addresses on 16 bytes; `c` and `residual` may be null, `residual` may be `out`. Deterministic.
absl::Status SubmitFewRows(cudaStream_t stream, const FewRowsProduct& product, const void* a, const void* b,
                           const void* c, const void* residual, void* out);

}  // namespace sluice::gpu::cuda
