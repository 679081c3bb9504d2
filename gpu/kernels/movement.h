// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Kernels that move elements without looking at them. Any type of fixed size; spans must not overlap.

/// output[i_perm[0], i_perm[1], ...] = input[i_0, i_1, ...]; the output's dimension k is input.dims[permutation[k]].
/// Spans: input, output.
struct TransposeDescription {
  DataType type = DataType::kFp32;
  Dims input = {};
  Dims permutation = {};  ///< Of 0 .. rank-1.
};

/// Spans: the inputs in order, output.
struct ConcatDescription {
  DataType type = DataType::kFp32;
  std::vector<Dims> inputs = {};  ///< At least one; equal but for `axis`.
  int64_t axis = 0;
};

/// output[i] = input[starts + i * steps], for every dimension; reads must lie inside the input (checked at Prepare).
/// Spans: input, output.
struct SliceDescription {
  DataType type = DataType::kFp32;
  Dims input = {};
  Dims starts = {};  ///< One per dimension, already clamped; so are the others.
  Dims steps = {};   ///< Not 0; negative walks backwards.
  Dims output = {};
};

/// output[a..., i..., b...] = data[a..., indices[i...], b...]. Negative indices count from the back; an index out of
/// range reads the nearest valid element, since a kernel has no way to fail. Spans: data, indices, output.
struct GatherDescription {
  DataType type = DataType::kFp32;
  Dims data = {};
  DataType index_type = DataType::kInt64;  ///< INT32 or INT64.
  Dims indices = {};
  int64_t axis = 0;
};

/// Broadcasts to `output` by numpy's rule (ONNX Expand with the shape already resolved). Spans: input, output.
struct ExpandDescription {
  DataType type = DataType::kFp32;
  Dims input = {};
  Dims output = {};
};

/// The same bytes elsewhere. Spans: input, output.
struct CopyDescription {
  size_t size_bytes = 0;
};

absl::StatusOr<Dims> TransposeOutputDims(const TransposeDescription& description);
absl::StatusOr<Dims> ConcatOutputDims(const ConcatDescription& description);
absl::StatusOr<Dims> GatherOutputDims(const GatherDescription& description);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(Device& device, const TransposeDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(Device& device, const ConcatDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(Device& device, const SliceDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareGather(Device& device, const GatherDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareExpand(Device& device, const ExpandDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareCopy(Device& device, const CopyDescription& description);

}  // namespace sluice::gpu
