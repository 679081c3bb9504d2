// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/ops/window.h"

namespace sluice::model {
namespace {

absl::StatusOr<gpu::PoolDescription> DescribePool(const NodeContext& context) {
  gpu::PoolDescription description;
  description.kind = context.node().entry->name == "MaxPool" ? gpu::PoolKind::kMax : gpu::PoolKind::kAverage;
  description.type = context.input(0).type;
  description.input = context.dims(0);
  SLUICE_ASSIGN_OR_RETURN(Window window, ReadWindow(context, description.input, {}));
  description.kernel = std::move(window.kernel);
  description.strides = std::move(window.strides);
  description.dilations = std::move(window.dilations);
  description.pads_begin = std::move(window.pads_begin);
  description.pads_end = std::move(window.pads_end);
  SLUICE_ASSIGN_OR_RETURN(const int64_t ceil_mode, context.Int("ceil_mode", 0));
  SLUICE_ASSIGN_OR_RETURN(const int64_t include_pad, context.Int("count_include_pad", 0));
  SLUICE_ASSIGN_OR_RETURN(const int64_t storage_order, context.Int("storage_order", 0));
  if (storage_order != 0) return absl::UnimplementedError("column-major storage_order");
  description.ceil_mode = ceil_mode != 0;
  description.count_include_pad = include_pad != 0;
  return description;
}

}  // namespace

absl::Status InferPool(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::PoolDescription description, DescribePool(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::PoolOutputDims(description));
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerPool(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::PoolDescription description, DescribePool(context));
  description.channels_last = context.input(0).channels_last || context.output(0).channels_last;
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PreparePool(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferGlobalPool(InferContext& context) {
  Shape dims = context.dims(0);
  if (dims.size() < 3) {
    return absl::InvalidArgumentError(absl::StrCat("the input has no spatial dimensions: ", ShapeToString(dims)));
  }
  for (size_t i = 2; i < dims.size(); ++i) dims[i] = 1;
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerGlobalPool(LowerContext& context) {
  const gpu::GlobalPoolDescription description{
      .kind = context.node().entry->name == "GlobalMaxPool" ? gpu::PoolKind::kMax : gpu::PoolKind::kAverage,
      .type = context.input(0).type,
      .input = context.dims(0),
      .channels_last = context.input(0).channels_last};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareGlobalPool(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

}  // namespace sluice::model
