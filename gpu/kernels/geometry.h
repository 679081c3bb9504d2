// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernels/attention.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/normalize.h"
#include "gpu/kernels/pool.h"
#include "gpu/kernels/reduce.h"
#include "gpu/kernels/spatial.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Checked forms of the descriptions with the most to get wrong, shared by the backends. INVALID_ARGUMENT otherwise.

struct AttentionGeometry {
  int64_t q_count = 0;  ///< Elements that the spans have at least; likewise the next four.
  int64_t k_count = 0;
  int64_t v_count = 0;
  int64_t mask_count = 0;  ///< 0 without a mask.
  int64_t output_count = 0;
  /// Elements of the mask from one batch element, head, query and key to the next; 0 where it is broadcast.
  std::array<int64_t, 4> mask_strides = {};
};
absl::StatusOr<AttentionGeometry> CheckAttention(const AttentionDescription& description);

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
/// The reduction that a global pooling is.
absl::StatusOr<ReduceDescription> MakeGlobalPoolReduce(const GlobalPoolDescription& description);

/// A tensor as [outer, length, inner] around one axis.
struct AxisGeometry {
  int64_t axis = 0;  ///< Not negative.
  int64_t outer = 1;
  int64_t length = 0;
  int64_t inner = 1;
};
absl::StatusOr<AxisGeometry> MakeAxisGeometry(const Dims& dims, int64_t axis);
absl::StatusOr<AxisGeometry> MakeArgReduceGeometry(const ArgReduceDescription& description);
absl::StatusOr<AxisGeometry> MakeBatchNormGeometry(const BatchNormDescription& description);  ///< Around the channels.

struct LayerNormGeometry {
  int64_t rows = 0;    ///< Of the input.
  int64_t length = 0;  ///< Elements of a row.
  /// Of each addend: row r of the input takes its row r modulo this many. At least one entry; none is 0 unless there is
  /// nothing to write.
  std::vector<int64_t> addend_rows = {};
  std::string name = {};  ///< What inspections call the kernel.
};
absl::StatusOr<LayerNormGeometry> MakeLayerNormGeometry(const LayerNormDescription& description);

/// Element count of a unary kernel.
absl::StatusOr<int64_t> CheckUnary(const UnaryDescription& description);

struct ConcatGeometry {
  Dims output;
  int64_t outer = 1;
  std::vector<size_t> widths;  ///< Bytes that each input gives to one outer index.
  size_t row_bytes = 0;        ///< Their sum.
};
absl::StatusOr<ConcatGeometry> MakeConcatGeometry(const ConcatDescription& description);

/// Output row (o, i) is row (o, indices[i]) of [outer, length] rows of row_bytes.
struct GatherGeometry {
  int64_t outer = 1;
  int64_t length = 0;
  int64_t index_count = 0;
  size_t row_bytes = 0;
};
absl::StatusOr<GatherGeometry> MakeGatherGeometry(const GatherDescription& description);

}  // namespace sluice::gpu
