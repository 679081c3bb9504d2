// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/reduce.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/softmax.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

struct ReduceName {
  absl::string_view name;
  gpu::ReduceKind kind;
  int64_t axes_input_opset;  ///< From here on the axes are an input instead of an attribute.
};
constexpr ReduceName kReduceNames[] = {
    {"ReduceL1", gpu::ReduceKind::kL1, 18},   {"ReduceL2", gpu::ReduceKind::kL2, 18},
    {"ReduceMax", gpu::ReduceKind::kMax, 18}, {"ReduceMean", gpu::ReduceKind::kMean, 18},
    {"ReduceMin", gpu::ReduceKind::kMin, 18}, {"ReduceProd", gpu::ReduceKind::kProd, 18},
    {"ReduceSum", gpu::ReduceKind::kSum, 13}, {"ReduceSumSquare", gpu::ReduceKind::kSumSquare, 18},
};

absl::StatusOr<gpu::ReduceDescription> DescribeReduce(const NodeContext& context) {
  for (const ReduceName& row : kReduceNames) {
    if (row.name != context.node().entry->name) continue;
    gpu::ReduceDescription description{
        .kind = row.kind, .type = context.input(0).type, .input = context.dims(0), .axes = {}};
    if (context.opset() < row.axes_input_opset) {
      SLUICE_ASSIGN_OR_RETURN(description.axes, context.Ints("axes"));
    } else if (context.has_input(1)) {
      SLUICE_ASSIGN_OR_RETURN(description.axes, context.ConstantInts(1));
    }
    SLUICE_ASSIGN_OR_RETURN(const int64_t no_axes_is_identity, context.Int("noop_with_empty_axes", 0));
    if (description.axes.empty() && no_axes_is_identity == 0) {
      for (size_t i = 0; i < description.input.size(); ++i) description.axes.push_back(static_cast<int64_t>(i));
    }
    return description;
  }
  return absl::InternalError("not a reduction");
}

absl::StatusOr<gpu::ArgReduceDescription> DescribeArgReduce(const NodeContext& context) {
  gpu::ArgReduceDescription description{
      .min = context.node().entry->name == "ArgMin", .type = context.input(0).type, .input = context.dims(0)};
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, context.Int("axis", 0));
  SLUICE_ASSIGN_OR_RETURN(description.axis, gpu::NormalizeAxis(axis, description.input.size()));
  SLUICE_ASSIGN_OR_RETURN(const int64_t last, context.Int("select_last_index", 0));
  description.select_last_index = last != 0;
  return description;
}

absl::StatusOr<gpu::SoftmaxDescription> DescribeSoftmax(const NodeContext& context) {
  gpu::SoftmaxDescription description{
      .type = context.input(0).type, .dims = context.dims(0), .log = context.node().entry->name == "LogSoftmax"};
  if (description.dims.empty()) return absl::InvalidArgumentError("the input is a scalar");
  const bool flattens = context.opset() < 13;
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, context.Int("axis", flattens ? 1 : -1));
  if (flattens && axis == static_cast<int64_t>(description.dims.size())) {
    description.axis = axis;
  } else {
    SLUICE_ASSIGN_OR_RETURN(description.axis, gpu::NormalizeAxis(axis, description.dims.size()));
  }
  if (flattens) {
    Shape matrix = {1, 1};
    for (size_t i = 0; i < description.dims.size(); ++i) {
      matrix[static_cast<int64_t>(i) < description.axis ? 0 : 1] *= description.dims[i];
    }
    description.dims = std::move(matrix);
    description.axis = 1;
  }
  return description;
}

}  // namespace

absl::Status InferReduce(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ReduceDescription description, DescribeReduce(context));
  SLUICE_ASSIGN_OR_RETURN(const int64_t keep_dims, context.Int("keepdims", 1));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::ReduceOutputDims(description, keep_dims != 0));
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerReduce(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::ReduceDescription description, DescribeReduce(context));
  if (context.input(0).channels_last) {
    // Over all spatial dimensions and nothing else (passes/assign_layouts), which lie one place further ahead.
    description.input = context.stored_dims(0);
    for (int64_t& axis : description.axes) {
      SLUICE_ASSIGN_OR_RETURN(axis, gpu::NormalizeAxis(axis, description.input.size()));
      --axis;
    }
  }
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareReduce(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferArgReduce(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ArgReduceDescription description, DescribeArgReduce(context));
  SLUICE_ASSIGN_OR_RETURN(const int64_t keep_dims, context.Int("keepdims", 1));
  Shape dims = description.input;
  const auto axis = dims.begin() + static_cast<std::ptrdiff_t>(description.axis);
  if (keep_dims != 0) {
    *axis = 1;
  } else {
    dims.erase(axis);
  }
  return context.SetOutput(0, DataType::kInt64, std::move(dims));
}

absl::Status LowerArgReduce(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ArgReduceDescription description, DescribeArgReduce(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareArgReduce(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferSoftmax(InferContext& context) {
  SLUICE_RETURN_IF_ERROR(DescribeSoftmax(context).status());
  return context.SetOutput(0, context.input(0).type, context.dims(0));
}

absl::Status LowerSoftmax(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::SoftmaxDescription description, DescribeSoftmax(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareSoftmax(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)}, {0});
  return absl::OkStatus();
}

}  // namespace sluice::model
