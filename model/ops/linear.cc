// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/matmul.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/ops/window.h"

namespace sluice::model {
namespace {

// Inputs of a Conv behind its data.
constexpr size_t kWeights = 1, kBias = 2;

absl::StatusOr<gpu::ConvDescription> DescribeConv(const NodeContext& context) {
  gpu::ConvDescription description;
  description.type = context.input(0).type;
  description.tf32 = context.tf32();
  description.input = context.dims(0);
  if (!context.is_constant(kWeights)) return absl::UnimplementedError("the weights are not constant");
  if (context.has_input(kBias) && !context.is_constant(kBias)) {
    return absl::UnimplementedError("the bias is not constant");
  }
  const Shape& weights = context.dims(kWeights);
  if (weights.size() != description.input.size() || weights.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights ", ShapeToString(weights), " for an input of ", ShapeToString(description.input)));
  }
  SLUICE_ASSIGN_OR_RETURN(Window window,
                          ReadWindow(context, description.input, Shape(weights.begin() + 2, weights.end())));
  description.strides = std::move(window.strides);
  description.dilations = std::move(window.dilations);
  description.pads_begin = std::move(window.pads_begin);
  description.pads_end = std::move(window.pads_end);
  SLUICE_ASSIGN_OR_RETURN(description.groups, context.Int("group", 1));
  SLUICE_ASSIGN_OR_RETURN(description.activation, FusedActivation(context));
  SLUICE_ASSIGN_OR_RETURN(description.low, context.Float(kLowAttribute, 0));
  SLUICE_ASSIGN_OR_RETURN(description.high, context.Float(kHighAttribute, 0));
  description.residual = context.has_input(kConvResidual);
  // Enough for the output's shape; the bytes are added when the kernel is prepared.
  const auto shape_only = [&](size_t i) {
    return gpu::Constant{context.input(i).constant_name, context.input(i).type, context.dims(i),
                         context.input(i).bytes};
  };
  description.weights = shape_only(kWeights);
  if (context.has_input(kBias)) description.bias = shape_only(kBias);
  return description;
}

/// True for a constant of FP32 that a product of halves packs in its own type.
bool IsPackedFp32(const NodeContext& context, size_t i) {
  const DataType type = context.input(0).type;
  const bool packs = type == DataType::kFp32 || type == DataType::kFp16 || type == DataType::kBf16;
  return packs && context.is_constant(i) && context.input(i).type == DataType::kFp32;
}

/// What MatMul and Gemm have in common.
gpu::MatMulDescription DescribeProduct(const NodeContext& context) {
  gpu::MatMulDescription description;
  description.type = context.input(0).type;
  description.tf32 = context.tf32();
  description.residual = context.has_input(kProductResidual);
  return description;
}

/// Gives a vector operand of MatMul its missing dimension.
Shape AsMatrix(const Shape& dims, bool is_left) {
  if (dims.size() != 1) return dims;
  return is_left ? Shape{1, dims[0]} : Shape{dims[0], 1};
}

absl::StatusOr<gpu::MatMulDescription> DescribeMatMul(const NodeContext& context) {
  if (context.dims(0).empty() || context.dims(1).empty()) return absl::InvalidArgumentError("an operand is a scalar");
  if (context.input(0).type != context.input(1).type && !IsPackedFp32(context, 1)) {
    return absl::UnimplementedError("operands of two types");
  }
  gpu::MatMulDescription description = DescribeProduct(context);
  description.a = AsMatrix(context.dims(0), true);
  description.b = AsMatrix(context.dims(1), false);
  SLUICE_ASSIGN_OR_RETURN(description.activation, FusedActivation(context));
  if (context.has_input(2)) description.c = context.dims(2);
  return description;
}

absl::StatusOr<gpu::MatMulDescription> DescribeGemm(const NodeContext& context) {
  gpu::MatMulDescription description = DescribeProduct(context);
  description.a = context.dims(0);
  description.b = context.dims(1);
  if (description.a.size() != 2 || description.b.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("operands ", ShapeToString(description.a), " and ",
                                                   ShapeToString(description.b), " are not matrices"));
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t transpose_a, context.Int("transA", 0));
  SLUICE_ASSIGN_OR_RETURN(const int64_t transpose_b, context.Int("transB", 0));
  description.transpose_a = transpose_a != 0;
  description.transpose_b = transpose_b != 0;
  SLUICE_ASSIGN_OR_RETURN(description.alpha, context.Float("alpha", 1.0f));
  SLUICE_ASSIGN_OR_RETURN(description.beta, context.Float("beta", 1.0f));
  SLUICE_ASSIGN_OR_RETURN(description.activation, FusedActivation(context));
  if (context.has_input(2)) description.c = context.dims(2);
  return description;
}

/// Constant operands go into the kernel, the others become spans.
absl::Status LowerProduct(LowerContext& context, gpu::MatMulDescription description) {
  description.packed_weights = context.pool();
  std::vector<ValueIndex> inputs = {context.input_index(0)};
  if (IsPackedFp32(context, 1)) {
    description.b_constant = context.ConstantInput(1);
    description.b_constant->dims = description.b;
  } else {
    inputs.push_back(context.input_index(1));
  }
  if (context.has_input(2)) {
    if (IsPackedFp32(context, 2)) {
      description.c_constant = context.ConstantInput(2);
    } else {
      inputs.push_back(context.input_index(2));
    }
  }
  std::vector<size_t> in_place;
  if (description.residual) {
    in_place.push_back(inputs.size());
    inputs.push_back(context.input_index(kProductResidual));
  }
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareMatMul(context.device(), description));
  context.AddLaunch(std::move(kernel), std::move(inputs), {context.output_index(0)}, std::move(in_place));
  return absl::OkStatus();
}

}  // namespace

absl::Status InferConv(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ConvDescription description, DescribeConv(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::ConvOutputDims(description));
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerConv(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::ConvDescription description, DescribeConv(context));
  description.type = context.output(0).type;
  description.fp32_input = context.input(0).type != description.type;
  description.weights = context.ConstantInput(kWeights);
  if (context.has_input(kBias)) description.bias = context.ConstantInput(kBias);
  description.packed_weights = context.pool();
  std::vector<ValueIndex> inputs = {context.input_index(0)};
  if (description.residual) inputs.push_back(context.input_index(kConvResidual));
  // One of the two may be the same in both orders, and then says nothing. Halves have no other order.
  description.channels_last =
      context.input(0).channels_last || context.output(0).channels_last || description.type != DataType::kFp32;
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareConv(context.device(), description));
  const std::vector<size_t> in_place(description.residual ? 1 : 0, 1);  // The residual is the second span.
  context.AddLaunch(std::move(kernel), std::move(inputs), {context.output_index(0)}, in_place);
  return absl::OkStatus();
}

absl::Status InferMatMul(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::MatMulDescription description, DescribeMatMul(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::MatMulOutputDims(description));
  // The dimension a vector operand was given is taken out of the result.
  if (context.dims(1).size() == 1) dims.pop_back();
  if (context.dims(0).size() == 1) {
    dims.erase(dims.end() - static_cast<std::ptrdiff_t>(context.dims(1).size() == 1 ? 1 : 2));
  }
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerMatMul(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::MatMulDescription description, DescribeMatMul(context));
  return LowerProduct(context, std::move(description));
}

absl::Status InferGemm(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::MatMulDescription description, DescribeGemm(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::MatMulOutputDims(description));
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerGemm(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::MatMulDescription description, DescribeGemm(context));
  return LowerProduct(context, std::move(description));
}

}  // namespace sluice::model
