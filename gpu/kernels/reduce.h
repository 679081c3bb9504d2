// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

enum class ReduceKind : uint8_t { kSum, kMean, kMax, kMin, kProd, kSumSquare, kL1, kL2 };

/// Folds `axes` away. Whether the result keeps them as 1 is no matter to the kernel: the bytes are the same.
///
/// Spans: input, output. Types: FP32, FP64, INT32, INT64; kMax and kMin also INT8, UINT8 and BOOL. Floating sums are
/// kept in double; integers wrap, and an integer mean truncates towards zero.
struct ReduceDescription {
  ReduceKind kind = ReduceKind::kSum;
  DataType type = DataType::kFp32;
  Dims input = {};
  Dims axes = {};  ///< Negative values count from the back; no duplicates. Empty folds nothing.
};

/// Index of the largest (or smallest) value along one axis, as INT64.
///
/// Spans: input, output (INT64). Types: FP32, FP64, INT8, UINT8, INT32, INT64.
struct ArgReduceDescription {
  bool min = false;
  DataType type = DataType::kFp32;
  Dims input = {};
  int64_t axis = 0;
  bool select_last_index = false;  ///< Of equal values: the last instead of the first.
};

/// Dimensions of the result. INVALID_ARGUMENT for axes out of range or repeated, and when an empty axis has no result
/// (kMax, kMin, kMean).
absl::StatusOr<Dims> ReduceOutputDims(const ReduceDescription& description, bool keep_dims);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareReduce(Device& device, const ReduceDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareArgReduce(Device& device, const ArgReduceDescription& description);

}  // namespace sluice::gpu
