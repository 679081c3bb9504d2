// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/geometry.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/reduce.h"
#include "gpu/kernels/strided.h"

namespace sluice::gpu {
namespace {

/// `dims` with 1 in front up to `rank`.
Dims PadInFront(const Dims& dims, size_t rank) {
  Dims result(rank - dims.size(), 1);
  result.insert(result.end(), dims.begin(), dims.end());
  return result;
}

/// [n, c, spatial...] with every dimension positive.
absl::Status CheckChannelsFirst(absl::string_view what, const Dims& dims) {
  if (dims.size() < 3 || dims.size() > 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": input must be [N,C,spatial...] with one to three spatial dimensions, it is ", DimsToString(dims)));
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
  if (count == 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": input ", DimsToString(dims), " must not be empty"));
  }
  return absl::OkStatus();
}

Dims OutputOf(const Dims& leading, const Spatial& spatial) {
  Dims result = leading;
  result.insert(result.end(), spatial.output.begin(), spatial.output.end());
  return result;
}

}  // namespace

absl::StatusOr<AttentionGeometry> CheckAttention(const AttentionDescription& d) {
  const Dims scores = {d.batch, d.heads, d.queries, d.keys};
  if (*std::min_element(scores.begin(), scores.end()) < 1 || d.head_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("attention: batch ", d.batch, ", heads ", d.heads, ", queries ",
                                                   d.queries, ", keys ", d.keys, " and head_size ", d.head_size,
                                                   " must be positive"));
  }
  if (!std::isfinite(d.scale)) {
    return absl::InvalidArgumentError(absl::StrCat("attention: scale must be finite, it is ", d.scale));
  }
  SLUICE_RETURN_IF_ERROR(ElementCount(scores).status());
  AttentionGeometry geometry;
  SLUICE_ASSIGN_OR_RETURN(geometry.output_count, ElementCount({d.batch, d.queries, d.heads, d.head_size}));
  const int64_t token = d.heads * d.head_size;
  for (const auto& [name, length, row, offset, count] :
       {std::tuple("q", d.queries, d.q_row, d.q_offset, &geometry.q_count),
        std::tuple("k", d.keys, d.k_row, d.k_offset, &geometry.k_count),
        std::tuple("v", d.keys, d.v_row, d.v_offset, &geometry.v_count)}) {
    if (row < token) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention: ", name, "_row must be at least heads * head_size = ", token, ", it is ", row));
    }
    // Bounded as the tensor with offset + batch * length * row elements that it is at most.
    SLUICE_RETURN_IF_ERROR(ElementCount({d.batch, length, row}).status());
    if (!ElementCount({offset}).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention: ", name, "_offset must lie in [0, 2^45], it is ", offset));
    }
    *count = offset + (d.batch * length - 1) * row + token;
  }
  if (!d.mask.has_value()) return geometry;
  if (d.mask_type != d.type && d.mask_type != DataType::kBool) {
    return absl::InvalidArgumentError(absl::StrCat("attention: mask_type must be ", WireName(d.type), " or ",
                                                   WireName(DataType::kBool), ", it is ", WireName(d.mask_type)));
  }
  SLUICE_ASSIGN_OR_RETURN(geometry.mask_count, ElementCount(*d.mask));
  const absl::StatusOr<Dims> broadcast = BroadcastDims(*d.mask, scores);
  if (!broadcast.ok() || *broadcast != scores) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: mask must broadcast to ", DimsToString(scores), ", it is ", DimsToString(*d.mask)));
  }
  const Dims strides = BroadcastStrides(*d.mask, scores);
  std::copy(strides.begin(), strides.end(), geometry.mask_strides.begin());
  return geometry;
}

absl::StatusOr<ConvGeometry> MakeConvGeometry(const ConvDescription& description) {
  SLUICE_RETURN_IF_ERROR(CheckChannelsFirst("convolution", description.input));
  const Dims& weights = description.weights.dims;
  if (weights.size() != description.input.size()) {
    return absl::InvalidArgumentError(absl::StrCat("convolution: weights ", DimsToString(weights),
                                                   " must have the rank of input ", DimsToString(description.input)));
  }
  SLUICE_RETURN_IF_ERROR(CheckConstant(description.weights, DataType::kFp32, "convolution weights"));
  ConvGeometry geometry;
  geometry.batch = description.input[0];
  geometry.channels = description.input[1];
  geometry.filters = weights[0];
  geometry.groups = description.groups;
  if (geometry.groups < 1 || geometry.channels % geometry.groups != 0 || geometry.filters < 1 ||
      geometry.filters % geometry.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("convolution: ", geometry.groups, " groups must divide ",
                                                   geometry.channels, " channels and ", geometry.filters, " filters"));
  }
  if (weights[1] != geometry.channels / geometry.groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("convolution: weights ", DimsToString(weights), " must have ", geometry.channels / geometry.groups,
                     " channels for input ", DimsToString(description.input), " in ", geometry.groups, " groups"));
  }
  if (description.bias.has_value()) {
    SLUICE_RETURN_IF_ERROR(CheckConstant(*description.bias, DataType::kFp32, "convolution bias"));
    if (description.bias->dims != Dims{geometry.filters}) {
      return absl::InvalidArgumentError(absl::StrCat("convolution: bias must be [", geometry.filters, "], it is ",
                                                     DimsToString(description.bias->dims)));
    }
  }
  Spatial spatial;
  spatial.input.assign(description.input.begin() + 2, description.input.end());
  spatial.kernel.assign(weights.begin() + 2, weights.end());
  spatial.strides = description.strides;
  spatial.dilations = description.dilations;
  spatial.pads_begin = description.pads_begin;
  spatial.pads_end = description.pads_end;
  SLUICE_ASSIGN_OR_RETURN(geometry.spatial, MakeSpatial("convolution", std::move(spatial), /*ceil_mode=*/false));
  SLUICE_RETURN_IF_ERROR(ElementCount(OutputOf({geometry.batch, geometry.filters}, geometry.spatial)).status());
  return geometry;
}

absl::StatusOr<Dims> ConvOutputDims(const ConvDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  return OutputOf({geometry.batch, geometry.filters}, geometry.spatial);
}

absl::StatusOr<PoolGeometry> MakePoolGeometry(const PoolDescription& description) {
  SLUICE_RETURN_IF_ERROR(CheckChannelsFirst("pooling", description.input));
  Spatial spatial;
  spatial.input.assign(description.input.begin() + 2, description.input.end());
  spatial.kernel = description.kernel;
  spatial.strides = description.strides;
  spatial.dilations = description.dilations;
  spatial.pads_begin = description.pads_begin;
  spatial.pads_end = description.pads_end;
  PoolGeometry geometry;
  SLUICE_ASSIGN_OR_RETURN(geometry.spatial, MakeSpatial("pooling", std::move(spatial), description.ceil_mode));
  for (size_t i = 0; i < geometry.spatial.input.size(); ++i) {
    // A window wholly inside the pads would have nothing to take the maximum or mean of.
    const int64_t reach = (geometry.spatial.kernel[i] - 1) * geometry.spatial.dilations[i] + 1;
    if (geometry.spatial.pads_begin[i] >= reach || geometry.spatial.pads_end[i] >= reach) {
      return absl::InvalidArgumentError(absl::StrCat("pooling: pads ", geometry.spatial.pads_begin[i], " and ",
                                                     geometry.spatial.pads_end[i],
                                                     " must be smaller than the kernel's reach ", reach));
    }
  }
  geometry.planes = description.input[0] * description.input[1];
  SLUICE_RETURN_IF_ERROR(ElementCount(OutputOf({geometry.planes}, geometry.spatial)).status());
  return geometry;
}

absl::StatusOr<Dims> PoolOutputDims(const PoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const PoolGeometry geometry, MakePoolGeometry(description));
  return OutputOf({description.input[0], description.input[1]}, geometry.spatial);
}

Dims MatMulGeometry::Output() const {
  Dims result = batch;
  result.push_back(rows);
  result.push_back(columns);
  return result;
}

absl::StatusOr<MatMulGeometry> MakeMatMulGeometry(const MatMulDescription& description) {
  const Dims& a = description.a;
  const Dims& b = description.b;
  SLUICE_RETURN_IF_ERROR(ElementCount(a).status());
  SLUICE_RETURN_IF_ERROR(ElementCount(b).status());
  if (a.size() < 2 || b.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("matrix product: operands ", DimsToString(a), " and ",
                                                   DimsToString(b), " must have at least two dimensions"));
  }
  MatMulGeometry geometry;
  const int64_t a_last = a.back(), a_before = a[a.size() - 2];
  const int64_t b_last = b.back(), b_before = b[b.size() - 2];
  geometry.rows = description.transpose_a ? a_last : a_before;
  geometry.depth = description.transpose_a ? a_before : a_last;
  geometry.columns = description.transpose_b ? b_before : b_last;
  const int64_t b_depth = description.transpose_b ? b_last : b_before;
  if (geometry.depth != b_depth || geometry.rows < 1 || geometry.columns < 1 || geometry.depth < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "matrix product: ", DimsToString(a), description.transpose_a ? " transposed" : "", " and ", DimsToString(b),
        description.transpose_b ? " transposed" : "", " do not fit: the inner dimensions must be equal and none 0"));
  }
  const Dims a_batch(a.begin(), a.end() - 2);
  const Dims b_batch(b.begin(), b.end() - 2);
  SLUICE_ASSIGN_OR_RETURN(geometry.batch, BroadcastDims(a_batch, b_batch));
  geometry.a_batch = PadInFront(a_batch, geometry.batch.size());
  geometry.b_batch = PadInFront(b_batch, geometry.batch.size());
  const Dims output = geometry.Output();
  SLUICE_RETURN_IF_ERROR(ElementCount(output).status());
  if (description.c.has_value()) {
    absl::StatusOr<Dims> broadcast = BroadcastDims(*description.c, output);
    if (!broadcast.ok() || *broadcast != output) {
      return absl::InvalidArgumentError(absl::StrCat("matrix product: C ", DimsToString(*description.c),
                                                     " must broadcast to ", DimsToString(output)));
    }
    geometry.c = PadInFront(*description.c, output.size());
  } else if (description.c_constant.has_value()) {
    return absl::InvalidArgumentError("matrix product: C is constant, but its dimensions are missing");
  }
  const bool half = description.type == DataType::kFp16 || description.type == DataType::kBf16;
  const bool packs = half || description.type == DataType::kFp32;
  if (description.residual && !half) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix product: a residual is for FP16 and BF16, not ", std::string(WireName(description.type))));
  }
  for (const auto& [constant, dims, what] :
       {std::tuple(&description.b_constant, &description.b, "matrix product B"),
        std::tuple(&description.c_constant, description.c.has_value() ? &*description.c : nullptr,
                   "matrix product C")}) {
    if (!constant->has_value()) continue;
    SLUICE_RETURN_IF_ERROR(CheckConstant(**constant, DataType::kFp32, what));
    if ((*constant)->dims != *dims || !packs) {
      return absl::InvalidArgumentError(absl::StrCat(what, " '", (*constant)->name, "' must be FP32 ",
                                                     DimsToString(*dims), ", it is ", DimsToString((*constant)->dims)));
    }
  }
  return geometry;
}

absl::StatusOr<Dims> MatMulOutputDims(const MatMulDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const MatMulGeometry geometry, MakeMatMulGeometry(description));
  return geometry.Output();
}

absl::StatusOr<ReduceGeometry> MakeReduceGeometry(const Dims& input, const Dims& axes) {
  SLUICE_RETURN_IF_ERROR(ElementCount(input).status());
  std::vector<bool> folded(input.size(), false);
  for (int64_t axis : axes) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t index, NormalizeAxis(axis, input.size()));
    if (folded[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("reduction: axes ", DimsToString(axes), " name dimension ", index, " twice"));
    }
    folded[index] = true;
  }
  ReduceGeometry geometry;
  geometry.output_count = geometry.folded_count = 1;
  for (size_t i = 0; i < input.size(); ++i) {
    (folded[i] ? geometry.folded_count : geometry.output_count) *= input[i];
    if (input[i] == 1) continue;
    if (!geometry.dims.empty() && geometry.folded.back() == folded[i]) {
      geometry.dims.back() *= input[i];
    } else {
      geometry.dims.push_back(input[i]);
      geometry.folded.push_back(folded[i]);
    }
  }
  return geometry;
}

absl::StatusOr<Dims> ReduceOutputDims(const ReduceDescription& description, bool keep_dims) {
  SLUICE_ASSIGN_OR_RETURN(const ReduceGeometry geometry, MakeReduceGeometry(description.input, description.axes));
  const bool needs_values = description.kind == ReduceKind::kMax || description.kind == ReduceKind::kMin ||
                            description.kind == ReduceKind::kMean;
  if (needs_values && geometry.folded_count == 0 && geometry.output_count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("reduction: axes ", DimsToString(description.axes), " of ",
                                                   DimsToString(description.input), " have no elements to fold"));
  }
  std::vector<bool> folded(description.input.size(), false);
  for (int64_t axis : description.axes) folded[*NormalizeAxis(axis, description.input.size())] = true;
  Dims result;
  for (size_t i = 0; i < description.input.size(); ++i) {
    if (!folded[i]) {
      result.push_back(description.input[i]);
    } else if (keep_dims) {
      result.push_back(1);
    }
  }
  return result;
}

absl::StatusOr<Dims> TransposeOutputDims(const TransposeDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  const size_t rank = description.input.size();
  std::vector<bool> seen(rank, false);
  Dims result;
  for (int64_t axis : description.permutation) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || seen[axis]) break;
    seen[axis] = true;
    result.push_back(description.input[axis]);
  }
  if (result.size() != rank || description.permutation.size() != rank) {
    return absl::InvalidArgumentError(absl::StrCat("transpose: ", DimsToString(description.permutation),
                                                   " is no permutation of the dimensions of ",
                                                   DimsToString(description.input)));
  }
  return result;
}

absl::StatusOr<Dims> ConcatOutputDims(const ConcatDescription& description) {
  if (description.inputs.empty()) return absl::InvalidArgumentError("concatenation: no inputs");
  Dims result = description.inputs[0];
  SLUICE_RETURN_IF_ERROR(ElementCount(result).status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(description.axis, result.size()));
  for (size_t i = 1; i < description.inputs.size(); ++i) {
    Dims expected = description.inputs[i];
    SLUICE_RETURN_IF_ERROR(ElementCount(expected).status());
    const bool same_rank = expected.size() == result.size();
    const int64_t length = same_rank ? expected[axis] : 0;
    if (same_rank) expected[axis] = result[axis];
    if (expected != result) {
      return absl::InvalidArgumentError(absl::StrCat("concatenation: input ", i, " is ",
                                                     DimsToString(description.inputs[i]), ", which differs from ",
                                                     DimsToString(description.inputs[0]), " in more than axis ", axis));
    }
    result[axis] += length;
  }
  SLUICE_RETURN_IF_ERROR(ElementCount(result).status());
  return result;
}

absl::StatusOr<Dims> GatherOutputDims(const GatherDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.data).status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t index_count, ElementCount(description.indices));
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(description.axis, description.data.size()));
  if (description.index_type != DataType::kInt32 && description.index_type != DataType::kInt64) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: indices must be INT32 or INT64, they are ", WireName(description.index_type)));
  }
  if (description.data[axis] == 0 && index_count > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: nothing to index in dimension ", axis, " of ", DimsToString(description.data)));
  }
  Dims result(description.data.begin(), description.data.begin() + axis);
  result.insert(result.end(), description.indices.begin(), description.indices.end());
  result.insert(result.end(), description.data.begin() + axis + 1, description.data.end());
  SLUICE_RETURN_IF_ERROR(ElementCount(result).status());
  return result;
}

absl::StatusOr<ReduceDescription> MakeGlobalPoolReduce(const GlobalPoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.input));
  if (description.input.size() < 3 || count == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "global pooling: input must be [N,C,spatial...] and not empty, it is ", DimsToString(description.input)));
  }
  ReduceDescription reduce{.kind = description.kind == PoolKind::kMax ? ReduceKind::kMax : ReduceKind::kMean,
                           .type = description.type,
                           .input = description.input,
                           .axes = {}};
  // Channels last: the same numbers, with the channels moved behind the dimensions that vanish.
  if (description.channels_last) std::rotate(reduce.input.begin() + 1, reduce.input.begin() + 2, reduce.input.end());
  const int64_t first = description.channels_last ? 1 : 2;
  for (size_t i = 2; i < description.input.size(); ++i) reduce.axes.push_back(static_cast<int64_t>(i) - 2 + first);
  return reduce;
}

absl::StatusOr<AxisGeometry> MakeAxisGeometry(const Dims& dims, int64_t axis) {
  SLUICE_RETURN_IF_ERROR(ElementCount(dims).status());
  AxisGeometry geometry;
  SLUICE_ASSIGN_OR_RETURN(geometry.axis, NormalizeAxis(axis, dims.size()));
  geometry.length = dims[geometry.axis];
  for (int64_t i = 0; i < geometry.axis; ++i) geometry.outer *= dims[i];
  for (size_t i = geometry.axis + 1; i < dims.size(); ++i) geometry.inner *= dims[i];
  return geometry;
}

absl::StatusOr<AxisGeometry> MakeArgReduceGeometry(const ArgReduceDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeAxisGeometry(description.input, description.axis));
  if (geometry.length == 0 && geometry.outer * geometry.inner > 0) {
    return absl::InvalidArgumentError(absl::StrCat("index reduction: dimension ", geometry.axis, " of ",
                                                   DimsToString(description.input), " is empty"));
  }
  return geometry;
}

absl::StatusOr<AxisGeometry> MakeBatchNormGeometry(const BatchNormDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  if (description.input.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch normalisation: input must be [N,C,...], it is ", DimsToString(description.input)));
  }
  return MakeAxisGeometry(description.input, 1);
}

absl::StatusOr<int64_t> LayerNormAddendRows(const Dims& input, int64_t axis, const Dims& dims) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t first, NormalizeAxis(axis, input.size()));
  const size_t normalized = input.size() - static_cast<size_t>(first);
  size_t same = 0;  // Last dimensions that are the input's.
  while (same < std::min(dims.size(), input.size()) && dims[dims.size() - 1 - same] == input[input.size() - 1 - same]) {
    ++same;
  }
  const auto leading = dims.end() - static_cast<std::ptrdiff_t>(same);
  if (same < normalized || dims.size() > input.size() ||
      std::any_of(dims.begin(), leading, [](int64_t dim) { return dim != 1; })) {
    return absl::InvalidArgumentError(absl::StrCat("layer norm: rows of ", DimsToString(dims),
                                                   " cannot be added to those of ", DimsToString(input), " from ",
                                                   first));
  }
  return std::accumulate(leading, dims.end() - static_cast<std::ptrdiff_t>(normalized), int64_t{1},
                         std::multiplies<>());
}

absl::StatusOr<LayerNormGeometry> MakeLayerNormGeometry(const LayerNormDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry around, MakeAxisGeometry(description.input, description.axis));
  LayerNormGeometry geometry{.rows = around.outer, .length = around.length * around.inner};
  geometry.name = absl::StrCat("layer norm ", DimsToString(description.input), " from ", around.axis);
  if (description.addends.size() > kMostLayerNormAddends) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer norm: ", description.addends.size(), " addends, of at most ", kMostLayerNormAddends));
  }
  int64_t tables = 0;
  for (const LayerNormAddend& addend : description.addends) {
    SLUICE_ASSIGN_OR_RETURN(geometry.addend_rows.emplace_back(),
                            LayerNormAddendRows(description.input, description.axis, addend.dims));
    if (addend.table_rows == 0) continue;
    ++tables;
    const bool indexed = addend.index_type == DataType::kInt32 || addend.index_type == DataType::kInt64;
    if (addend.table_rows < 0 || !indexed) {
      return absl::InvalidArgumentError(absl::StrCat("layer norm: a table of ", addend.table_rows,
                                                     " rows with indices of type ", WireName(addend.index_type)));
    }
    SLUICE_RETURN_IF_ERROR(ElementCount({addend.table_rows, geometry.length}).status());
  }
  if (geometry.addend_rows.empty()) geometry.addend_rows = {geometry.rows};
  if (description.addends.size() > 1) absl::StrAppend(&geometry.name, ", sum of ", description.addends.size());
  if (tables > 0) absl::StrAppend(&geometry.name, ", ", tables, " gathered");
  if (description.writes_sum) absl::StrAppend(&geometry.name, ", sum written");
  return geometry;
}

absl::StatusOr<int64_t> CheckUnary(const UnaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.dims));
  if (description.kind == UnaryKind::kClip && !(description.low <= description.high)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip: low ", description.low, " must not be above high ", description.high));
  }
  return count;
}

absl::StatusOr<ConcatGeometry> MakeConcatGeometry(const ConcatDescription& description) {
  ConcatGeometry geometry;
  SLUICE_ASSIGN_OR_RETURN(geometry.output, ConcatOutputDims(description));
  const size_t element_bytes = ElementBytes(description.type);
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("concatenation: elements of type ", WireName(description.type), " have no fixed size"));
  }
  for (const Dims& input : description.inputs) {
    SLUICE_ASSIGN_OR_RETURN(const AxisGeometry piece, MakeAxisGeometry(input, description.axis));
    geometry.outer = piece.outer;
    geometry.widths.push_back(static_cast<size_t>(piece.length * piece.inner) * element_bytes);
    geometry.row_bytes += geometry.widths.back();
  }
  return geometry;
}

absl::StatusOr<GatherGeometry> MakeGatherGeometry(const GatherDescription& description) {
  SLUICE_RETURN_IF_ERROR(GatherOutputDims(description).status());
  const size_t element_bytes = ElementBytes(description.type);
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: elements of type ", WireName(description.type), " have no fixed size"));
  }
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry data, MakeAxisGeometry(description.data, description.axis));
  SLUICE_ASSIGN_OR_RETURN(const int64_t index_count, ElementCount(description.indices));
  return GatherGeometry{data.outer, data.length, index_count, static_cast<size_t>(data.inner) * element_bytes};
}

}  // namespace sluice::gpu
