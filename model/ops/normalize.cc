// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/normalize.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

absl::Status RequireFp32(const NodeContext& context, size_t first = 0) {
  for (size_t i = first; i < context.input_count(); ++i) {
    if (context.has_input(i) && context.input(i).type != DataType::kFp32) {
      return absl::UnimplementedError(absl::StrCat("elements of type ", WireName(context.input(i).type)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferBatchNorm(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t training, context.Int("training_mode", 0));
  if (training != 0) return absl::UnimplementedError("training_mode");
  const Shape& input = context.dims(0);
  if (input.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the input has no channels: ", ShapeToString(input)));
  }
  for (size_t i = 1; i < 5; ++i) {
    if (context.dims(i) != Shape{input[1]}) {
      return absl::InvalidArgumentError(absl::StrCat("'", context.input(i).name, "' is ",
                                                     ShapeToString(context.dims(i)), " for ", input[1], " channels"));
    }
  }
  return context.SetOutput(0, context.input(0).type, input);
}

absl::Status LowerBatchNorm(LowerContext& context) {
  SLUICE_RETURN_IF_ERROR(RequireFp32(context));
  gpu::BatchNormDescription description{.input = context.dims(0)};
  SLUICE_ASSIGN_OR_RETURN(description.epsilon, context.Float("epsilon", 1e-5f));
  SLUICE_ASSIGN_OR_RETURN(description.activation, FusedActivation(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBatchNorm(context.device(), description));
  context.AddLaunch(std::move(kernel), context.node().inputs, {context.output_index(0)}, {0});
  return absl::OkStatus();
}

absl::Status InferLayerNorm(InferContext& context) {
  const Shape& input = context.dims(0);
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis_attribute, context.Int("axis", -1));
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, gpu::NormalizeAxis(axis_attribute, input.size()));
  const Shape normalized(input.begin() + static_cast<std::ptrdiff_t>(axis), input.end());
  for (size_t i = 1; i < context.input_count(); ++i) {
    if (context.has_input(i) && context.dims(i) != normalized) {
      return absl::UnimplementedError(absl::StrCat("'", context.input(i).name, "' is ", ShapeToString(context.dims(i)),
                                                   ", expected ", ShapeToString(normalized)));
    }
  }
  return context.SetOutput(0, context.input(0).type, input);
}

absl::Status LowerLayerNorm(LowerContext& context) {
  SLUICE_RETURN_IF_ERROR(RequireFp32(context, 1));
  gpu::LayerNormDescription description{.type = context.input(0).type, .input = context.dims(0)};
  SLUICE_ASSIGN_OR_RETURN(description.axis, context.Int("axis", -1));
  SLUICE_ASSIGN_OR_RETURN(description.epsilon, context.Float("epsilon", 1e-5f));
  description.has_bias = context.has_input(2);
  std::vector<ValueIndex> inputs = {context.input_index(0), context.input_index(1)};
  if (description.has_bias) inputs.push_back(context.input_index(2));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareLayerNorm(context.device(), description));
  context.AddLaunch(std::move(kernel), std::move(inputs), {context.output_index(0)}, {0});
  return absl::OkStatus();
}

}  // namespace sluice::model
