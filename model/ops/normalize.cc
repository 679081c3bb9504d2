// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/normalize.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

/// Of the inputs from `first` to the one before `end`.
absl::Status RequireFp32(const NodeContext& context, size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
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
  SLUICE_RETURN_IF_ERROR(RequireFp32(context, 0, context.input_count()));
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
  SLUICE_RETURN_IF_ERROR(RequireFp32(context, 1, kNormAddends));
  gpu::LayerNormDescription description{.type = context.output(0).type, .input = context.output_dims(0)};
  SLUICE_ASSIGN_OR_RETURN(description.axis, context.Int("axis", -1));
  SLUICE_ASSIGN_OR_RETURN(description.epsilon, context.Float("epsilon", 1e-5f));
  std::vector<ValueIndex> inputs;
  std::vector<size_t> in_place;
  for (size_t k = 0; k < gpu::kMostLayerNormAddends; ++k) {
    const size_t position = k == 0 ? 0 : kNormAddends + k - 1, indices = kNormIndices + k;
    if (!context.has_input(position)) continue;
    gpu::LayerNormAddend& addend = description.addends.emplace_back();
    addend.dims = context.dims(position);
    if (context.has_input(indices)) {
      addend.table_rows = addend.dims[0];
      addend.index_type = context.input(indices).type;
      const Shape& rows = context.dims(indices);
      addend.dims.erase(addend.dims.begin());
      addend.dims.insert(addend.dims.begin(), rows.begin(), rows.end());
    } else {
      in_place.push_back(inputs.size());
    }
    inputs.push_back(context.input_index(position));
    if (context.has_input(indices)) inputs.push_back(context.input_index(indices));
  }
  description.has_bias = context.has_input(2);
  inputs.push_back(context.input_index(1));
  if (description.has_bias) inputs.push_back(context.input_index(2));
  std::vector<ValueIndex> outputs = {context.output_index(0)};
  description.writes_sum = context.has_output(1);
  if (description.writes_sum) outputs.push_back(context.output_index(1));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareLayerNorm(context.device(), description));
  context.AddLaunch(std::move(kernel), std::move(inputs), std::move(outputs), std::move(in_place));
  return absl::OkStatus();
}

}  // namespace sluice::model
