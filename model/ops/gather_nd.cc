// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// GatherND as a Gather of rows: the coordinates become one index into the data seen as [rows, rest]. Exporters write it
// for masks and for picks of columns, nearly always with coordinates that are constant once shapes are bound.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/reduce.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

/// The data's dimensions by what they are for.
struct Layout {
  int64_t batches = 1;           ///< Product of those that data and indices share.
  std::vector<int64_t> extents;  ///< Those that the coordinates index.
  Shape rest;                    ///< Those that are taken whole.
  Shape output;
  int64_t rows() const { return std::accumulate(extents.begin(), extents.end(), batches, std::multiplies<>()); }
  /// What one step of each coordinate is worth, in rows.
  std::vector<int64_t> strides() const {
    std::vector<int64_t> strides(extents.size(), 1);
    for (size_t i = extents.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * extents[i + 1];
    return strides;
  }
};

absl::StatusOr<Layout> LayoutOf(const NodeContext& context) {
  const Shape& data = context.dims(0);
  const Shape& indices = context.dims(1);
  SLUICE_ASSIGN_OR_RETURN(const int64_t batch_dims, context.Int("batch_dims", 0));
  if (indices.empty()) return absl::InvalidArgumentError("the indices are a scalar");
  const int64_t coordinates = indices.back();
  if (batch_dims < 0 || batch_dims >= static_cast<int64_t>(std::min(data.size(), indices.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("batch_dims ", batch_dims, " with data ", ShapeToString(data),
                                                   " and indices ", ShapeToString(indices)));
  }
  if (coordinates < 1 || coordinates > static_cast<int64_t>(data.size()) - batch_dims) {
    return absl::InvalidArgumentError(absl::StrCat("indices of ", coordinates, " coordinates into data ",
                                                   ShapeToString(data), " after ", batch_dims, " batch dimensions"));
  }
  Layout layout;
  for (int64_t d = 0; d < batch_dims; ++d) {
    if (data[d] != indices[d]) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch dimension ", d, " is ", data[d], " in the data and ", indices[d], " in the indices"));
    }
    layout.batches *= data[d];
  }
  const auto first_rest = data.begin() + batch_dims + coordinates;
  layout.extents.assign(data.begin() + batch_dims, first_rest);
  layout.rest.assign(first_rest, data.end());
  layout.output.assign(indices.begin(), indices.end() - 1);
  layout.output.insert(layout.output.end(), layout.rest.begin(), layout.rest.end());
  return layout;
}

/// The rows that constant coordinates name.
absl::StatusOr<ValueIndex> ConstantRows(LowerContext& context, const Layout& layout, const Shape& row_dims) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, context.ConstantInts(1));
  const std::vector<int64_t> strides = layout.strides();
  const size_t count = indices.size() / strides.size();
  const int64_t batch_rows = layout.rows() / std::max<int64_t>(layout.batches, 1);
  const size_t per_batch = std::max<size_t>(count / static_cast<size_t>(std::max<int64_t>(layout.batches, 1)), 1);
  std::vector<int64_t> rows(count);
  for (size_t i = 0; i < count; ++i) {
    rows[i] = static_cast<int64_t>(i / per_batch) * batch_rows;
    for (size_t c = 0; c < strides.size(); ++c) {
      const int64_t index = indices[i * strides.size() + c];
      if (index < -layout.extents[c] || index >= layout.extents[c]) {
        return absl::InvalidArgumentError(
            absl::StrCat("index ", index, " into a dimension of ", layout.extents[c], " elements"));
      }
      rows[i] += (index < 0 ? index + layout.extents[c] : index) * strides[c];
    }
  }
  return context.AddConstant("rows", DataType::kInt64, row_dims, rows);
}

absl::StatusOr<ValueIndex> AddStep(LowerContext& context, gpu::BinaryKind kind, ValueIndex a, const Shape& a_dims,
                                   ValueIndex b, const Shape& b_dims, DataType result = DataType::kInt64) {
  const gpu::BinaryDescription description{.kind = kind, .type = DataType::kInt64, .a = a_dims, .b = b_dims};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBinary(context.device(), description));
  const ValueIndex output = context.AddTemporary(result, a_dims);
  context.AddLaunch(std::move(kernel), {a, b}, {output});
  return output;
}

/// The same for coordinates that come with the request: negative ones are counted from the back, the sum of coordinates
/// times strides is the row. A row outside is what Gather makes of it.
absl::StatusOr<ValueIndex> ComputedRows(LowerContext& context, const Layout& layout, const Shape& row_dims) {
  if (context.input(1).type != DataType::kInt64) return absl::InvalidArgumentError("the indices are not INT64");
  const Shape index_dims = context.dims(1);
  const Shape vector_dims = {static_cast<int64_t>(layout.extents.size())};
  const ValueIndex indices = context.input_index(1);
  const ValueIndex extents = context.AddConstant("extents", DataType::kInt64, vector_dims, layout.extents);
  const ValueIndex zeros =
      context.AddConstant("zeros", DataType::kInt64, vector_dims, std::vector<int64_t>(layout.extents.size(), 0));
  const ValueIndex strides = context.AddConstant("strides", DataType::kInt64, vector_dims, layout.strides());
  SLUICE_ASSIGN_OR_RETURN(const ValueIndex negative, AddStep(context, gpu::BinaryKind::kLess, indices, index_dims,
                                                             zeros, vector_dims, DataType::kBool));
  const gpu::WhereDescription where{
      .type = DataType::kInt64, .condition = index_dims, .x = vector_dims, .y = vector_dims};
  SLUICE_ASSIGN_OR_RETURN(auto choose, gpu::PrepareWhere(context.device(), where));
  const ValueIndex shift = context.AddTemporary(DataType::kInt64, index_dims);
  context.AddLaunch(std::move(choose), {negative, extents, zeros}, {shift});
  SLUICE_ASSIGN_OR_RETURN(const ValueIndex counted,
                          AddStep(context, gpu::BinaryKind::kAdd, indices, index_dims, shift, index_dims));
  SLUICE_ASSIGN_OR_RETURN(const ValueIndex scaled,
                          AddStep(context, gpu::BinaryKind::kMul, counted, index_dims, strides, vector_dims));
  const gpu::ReduceDescription sum{
      .kind = gpu::ReduceKind::kSum, .type = DataType::kInt64, .input = index_dims, .axes = {-1}};
  SLUICE_ASSIGN_OR_RETURN(auto reduce, gpu::PrepareReduce(context.device(), sum));
  const ValueIndex rows = context.AddTemporary(DataType::kInt64, row_dims);
  context.AddLaunch(std::move(reduce), {scaled}, {rows});
  if (layout.batches == 1) return rows;
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, gpu::ElementCount(row_dims));
  const int64_t per_batch = std::max<int64_t>(count / layout.batches, 1);
  std::vector<int64_t> firsts(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) firsts[i] = i / per_batch * (layout.rows() / layout.batches);
  const ValueIndex base = context.AddConstant("batches", DataType::kInt64, row_dims, firsts);
  return AddStep(context, gpu::BinaryKind::kAdd, rows, row_dims, base, row_dims);
}

}  // namespace

absl::Status InferGatherNd(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(Layout layout, LayoutOf(context));
  return context.SetOutput(0, context.input(0).type, std::move(layout.output));
}

absl::Status LowerGatherNd(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(context));
  const Shape row_dims(context.dims(1).begin(), context.dims(1).end() - 1);
  gpu::GatherDescription gather{.type = context.input(0).type, .data = {layout.rows()}, .index_type = DataType::kInt64};
  gather.data.insert(gather.data.end(), layout.rest.begin(), layout.rest.end());
  gather.indices = row_dims;
  SLUICE_ASSIGN_OR_RETURN(const ValueIndex rows, context.is_constant(1) ? ConstantRows(context, layout, row_dims)
                                                                        : ComputedRows(context, layout, row_dims));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareGather(context.device(), gather));
  context.AddLaunch(std::move(kernel), {context.input_index(0), rows}, {context.output_index(0)});
  return absl::OkStatus();
}

}  // namespace sluice::model
