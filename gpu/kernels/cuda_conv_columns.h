// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/cuda_conv_parts.h"
#include "gpu/kernels/cuda_matmul_lt.h"

namespace sluice::gpu::cuda {

/// A convolution as a matrix product: the weights, [filters, depth], by the columns, [depth, batch * area], where depth
/// is channels * kernel area and a column holds what one element of the result sees. Few rows of deep layers leave
/// cuDNN's kernels a handful of blocks (107 us for [2,512,7,7] by [512,512,3,3] on an H200); here the depth can be
/// shared among blocks: parts of it are products of their own, added up when the result is folded. Immutable once made;
/// any number of threads may submit it.
class ColumnsWay {
 public:
  /// Ways worth trying, at most `most` for each number of parts; none for groups, or when the columns are large: then
  /// there are blocks enough. Load time only.
  static absl::StatusOr<std::vector<ColumnsWay>> Ways(cublasLtHandle_t handle, const ConvShape& shape, bool residual,
                                                      bool tf32, int most);
  static absl::Status Load(int ordinal);

  /// As MatMulWay::LongName.
  absl::StatusOr<std::string> LongName() const;
  size_t workspace_bytes() const { return columns_bytes_ + result_bytes_ + product_.workspace_bytes(); }
  /// Allocates nothing, and is capturable. Up to four launches.
  absl::Status Submit(cudaStream_t stream, const ConvOperands& operands) const;

 private:
  ColumnsWay(const ConvShape& shape, const LtProduct& product, int64_t parts);
  static bool IsPointwise(const ConvShape& shape);

  ConvShape shape_;
  LtProduct product_;
  int64_t parts_ = 1;         ///< Of the depth.
  bool pointwise_ = false;    ///< One part; the input is its own columns, image by image, the product the result.
  size_t columns_bytes_ = 0;  ///< Of the workspace; 0 when pointwise.
  size_t result_bytes_ = 0;   ///< [parts, filters, batch * area], before it is folded; 0 when pointwise.
};

}  // namespace sluice::gpu::cuda
