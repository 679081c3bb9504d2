// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/pool.h"
#include "gpu/kernels/spatial.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Checked forms of the descriptions with the most to get wrong, shared by the backends. INVALID_ARGUMENT otherwise.

struct ConvGeometry {
  int64_t batch = 0;
  int64_t channels = 0;  ///< Of the input, over all groups; likewise filters of the output.
  int64_t filters = 0;
  int64_t groups = 1;
  Spatial spatial;
};
absl::StatusOr<ConvGeometry> MakeConvGeometry(const ConvDescription& description);

struct PoolGeometry {
  int64_t planes = 0;  ///< Batch times channels.
  Spatial spatial;
};
absl::StatusOr<PoolGeometry> MakePoolGeometry(const PoolDescription& description);

struct MatMulGeometry {
  Dims batch;    ///< Of the result.
  Dims a_batch;  ///< Padded with 1 in front to the rank of `batch`; likewise b_batch.
  Dims b_batch;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  Dims c;  ///< Padded with 1 in front to the rank of the result; empty without C.
  Dims Output() const;
};
absl::StatusOr<MatMulGeometry> MakeMatMulGeometry(const MatMulDescription& description);

/// Dimensions of a reduction with runs of kept and of folded dimensions merged and units dropped.
struct ReduceGeometry {
  Dims dims;
  std::vector<bool> folded;  ///< One per dimension.
  int64_t output_count = 0;
  int64_t folded_count = 0;
};
absl::StatusOr<ReduceGeometry> MakeReduceGeometry(const Dims& input, const Dims& axes);

}  // namespace sluice::gpu
