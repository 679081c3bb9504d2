// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/data_type.h"

namespace sluice::gpu::cuda {

inline constexpr int kMaxBatchRank = 6;

/// A matrix product with every step spelt out, in elements; passed to device code by value. Element (m, k) of A's
/// matrix is at m * a_row + k * a_depth, likewise B and C (whose steps are 0 where it is broadcast); the result is
/// contiguous. Batch dimensions are merged where all operands walk them as one; none is 1.
struct MatMulShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  int64_t a_row = 0, a_depth = 0;
  int64_t b_depth = 0, b_column = 0;
  int64_t c_row = 0, c_column = 0;
  bool has_c = false;
  int batch_rank = 0;
  int64_t batches = 1;  ///< Product of `batch`.
  int64_t batch[kMaxBatchRank] = {};
  int64_t a_batch[kMaxBatchRank] = {};
  int64_t b_batch[kMaxBatchRank] = {};
  int64_t c_batch[kMaxBatchRank] = {};
  float alpha = 1.0f;
  float beta = 1.0f;
  bool relu = false;
};

/// Any product, by tiles in shared memory: T is float, double, uint32_t or uint64_t (integers wrap). `c` may be null.
template <class T>
absl::Status LoadTiles(int ordinal);
template <class T>
absl::Status SubmitTiles(cudaStream_t stream, const MatMulShape& shape, const T* a, const T* b, const T* c, T* out);

/// out = activation(sum of `parts` results that lie one after the other in `from` + beta * C + residual), for products
/// that could not take those along, and for those whose depth is shared among several. `from` is FP32; `type` is that
/// of the others: FP32, FP16 or BF16. `from` may be `out` for one part of FP32, `residual` may be `out`; `c` and
/// `residual` may be null.
absl::Status LoadAddC(int ordinal, DataType type);
absl::Status SubmitAddC(cudaStream_t stream, DataType type, const MatMulShape& shape, int64_t parts, const float* from,
                        const void* c, const void* residual, void* out);

}  // namespace sluice::gpu::cuda
