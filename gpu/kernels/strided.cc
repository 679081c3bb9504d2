// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/strided.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu {

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

Dims BroadcastStrides(const Dims& dims, const Dims& output) {
  const Dims own = RowMajorStrides(dims);
  Dims strides(output.size(), 0);
  const size_t lead = output.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) strides[lead + i] = dims[i] == 1 ? 0 : own[i];
  return strides;
}

StridedWalk MergeDims(const StridedWalk& walk) {
  StridedWalk merged{.dims = {}, .count = walk.count, .strides = {}, .base = walk.base};
  const size_t inputs = walk.strides.size();
  merged.strides.resize(inputs);
  for (size_t i = 0; i < walk.dims.size(); ++i) {
    const int64_t dim = walk.dims[i];
    if (dim == 1) continue;
    bool merge = !merged.dims.empty();
    for (size_t k = 0; merge && k < inputs; ++k) merge = merged.strides[k].back() == walk.strides[k][i] * dim;
    if (!merge) {
      merged.dims.push_back(dim);
      for (size_t k = 0; k < inputs; ++k) merged.strides[k].push_back(walk.strides[k][i]);
      continue;
    }
    merged.dims.back() *= dim;
    for (size_t k = 0; k < inputs; ++k) merged.strides[k].back() = walk.strides[k][i];
  }
  if (merged.dims.empty()) {
    merged.dims.push_back(1);
    for (Dims& strides : merged.strides) strides.push_back(0);
  }
  return merged;
}

absl::StatusOr<StridedWalk> MakeBinaryWalk(const BinaryDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.a).status());
  SLUICE_RETURN_IF_ERROR(ElementCount(description.b).status());
  SLUICE_ASSIGN_OR_RETURN(const Dims output, BroadcastDims(description.a, description.b));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(output));
  const bool floating = description.type == DataType::kFp32 || description.type == DataType::kFp64 ||
                        description.type == DataType::kFp16 || description.type == DataType::kBf16;
  if (description.activation != Activation::kNone && (!floating || description.kind >= BinaryKind::kEqual)) {
    return absl::InvalidArgumentError("an activation follows arithmetic on floating types only");
  }
  return MergeDims({output, count, {BroadcastStrides(description.a, output), BroadcastStrides(description.b, output)}});
}

absl::StatusOr<StridedWalk> MakeWhereWalk(const WhereDescription& description) {
  for (const Dims* dims : {&description.condition, &description.x, &description.y}) {
    SLUICE_RETURN_IF_ERROR(ElementCount(*dims).status());
  }
  SLUICE_ASSIGN_OR_RETURN(const Dims values, BroadcastDims(description.x, description.y));
  SLUICE_ASSIGN_OR_RETURN(const Dims output, BroadcastDims(description.condition, values));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(output));
  return MergeDims({output,
                    count,
                    {BroadcastStrides(description.condition, output), BroadcastStrides(description.x, output),
                     BroadcastStrides(description.y, output)}});
}

absl::StatusOr<StridedWalk> MakeTransposeWalk(const TransposeDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const Dims output, TransposeOutputDims(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(output));
  const Dims input_strides = RowMajorStrides(description.input);
  Dims strides;
  for (int64_t axis : description.permutation) strides.push_back(input_strides[axis]);
  return MergeDims({output, count, {std::move(strides)}});
}

absl::StatusOr<StridedWalk> MakeExpandWalk(const ExpandDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.output));
  absl::StatusOr<Dims> broadcast = BroadcastDims(description.input, description.output);
  if (!broadcast.ok() || *broadcast != description.output) {
    return absl::InvalidArgumentError(absl::StrCat("expand: ", DimsToString(description.input),
                                                   " does not broadcast to ", DimsToString(description.output)));
  }
  return MergeDims({description.output, count, {BroadcastStrides(description.input, description.output)}});
}

absl::StatusOr<StridedWalk> MakeSliceWalk(const SliceDescription& description) {
  const size_t rank = description.input.size();
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.output));
  if (description.starts.size() != rank || description.steps.size() != rank || description.output.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice: starts, steps and output must have one value for each of ", rank, " dimensions"));
  }
  const Dims input_strides = RowMajorStrides(description.input);
  Dims strides(rank, 0);
  int64_t base = 0;
  for (size_t i = 0; i < rank && count > 0; ++i) {
    const int64_t length = description.input[i], start = description.starts[i], step = description.steps[i];
    const int64_t moves = description.output[i] - 1;
    // Divisions instead of products: a step from a file may be any int64.
    const bool inside = start >= 0 && start < length && step != 0 &&
                        (moves == 0 || (step > 0 ? step <= (length - 1 - start) / moves : step >= -(start / moves)));
    if (!inside) {
      return absl::InvalidArgumentError(absl::StrCat("slice: start ", start, ", step ", step, " and ", moves + 1,
                                                     " elements leave dimension ", i, " of ",
                                                     DimsToString(description.input)));
    }
    base += start * input_strides[i];
    strides[i] = moves == 0 ? 0 : step * input_strides[i];
  }
  return MergeDims({description.output, count, {std::move(strides)}, base});
}

}  // namespace sluice::gpu
