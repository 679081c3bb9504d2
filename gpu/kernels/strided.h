// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Walks over strided inputs, checked, shared by the backends.

/// Row-major strides of `dims`, in elements.
Dims RowMajorStrides(const Dims& dims);
/// Strides of an input of dimensions `dims` broadcast to `output`; it must broadcast.
Dims BroadcastStrides(const Dims& dims, const Dims& output);

/// A walk over an output in row-major order that knows where each of several inputs stands: at coordinates c, input k
/// is at element base + sum over d of c[d] * strides[k][d]. (Only walks over one input have a base.)
struct StridedWalk {
  Dims dims = {};  ///< Of the output.
  int64_t count = 0;
  std::vector<Dims> strides = {};  ///< Per input, per dimension, in elements: 0 where broadcast, negative backwards.
  int64_t base = 0;
};

/// The same walk with neighbouring dimensions merged where every input walks through them evenly, and units dropped;
/// one dimension at least.
StridedWalk MergeDims(const StridedWalk& walk);

// Checked and merged walks. INVALID_ARGUMENT where a description is inconsistent; types are not looked at, except that
// an activation needs a floating one.
absl::StatusOr<StridedWalk> MakeBinaryWalk(const BinaryDescription& description);        ///< Inputs: a, b.
absl::StatusOr<StridedWalk> MakeWhereWalk(const WhereDescription& description);          ///< Inputs: condition, x, y.
absl::StatusOr<StridedWalk> MakeTransposeWalk(const TransposeDescription& description);  ///< Likewise one input.
absl::StatusOr<StridedWalk> MakeSliceWalk(const SliceDescription& description);
absl::StatusOr<StridedWalk> MakeExpandWalk(const ExpandDescription& description);

}  // namespace sluice::gpu
