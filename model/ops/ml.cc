// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Operators of domain ai.onnx.ml, written out of others: they stand at the ends of scikit-learn's networks, where a
// launch more costs nothing that matters.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

/// ArrayFeatureExtractor as a Gather along the last dimension; the indices count as one row, whatever their shape.
absl::StatusOr<gpu::GatherDescription> DescribeFeatures(const NodeContext& context) {
  if (context.dims(0).empty()) return absl::InvalidArgumentError("the data is a scalar");
  if (context.input(1).type != DataType::kInt64) {
    return absl::InvalidArgumentError(absl::StrCat("the indices are ", WireName(context.input(1).type), ", not INT64"));
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, gpu::ElementCount(context.dims(1)));
  return gpu::GatherDescription{.type = context.input(0).type,
                                .data = context.dims(0),
                                .index_type = DataType::kInt64,
                                .indices = {count},
                                .axis = static_cast<int64_t>(context.dims(0).size()) - 1};
}

/// What a Scaler takes off and multiplies by: one number for all features, or one for each.
struct Scaling {
  std::vector<float> offset, scale;
};

absl::StatusOr<Scaling> ReadScaling(const NodeContext& context) {
  Scaling scaling;
  SLUICE_ASSIGN_OR_RETURN(scaling.offset, context.Floats("offset"));
  SLUICE_ASSIGN_OR_RETURN(scaling.scale, context.Floats("scale"));
  const Shape& dims = context.dims(0);
  const size_t count = scaling.offset.size();
  const bool each = dims.size() <= 2 && !dims.empty() && static_cast<int64_t>(count) == dims.back();
  if (count != scaling.scale.size() || (count != 1 && !each)) {
    return absl::InvalidArgumentError(absl::StrCat("an offset of ", count, " and a scale of ", scaling.scale.size(),
                                                   " numbers for an input ", ShapeToString(dims)));
  }
  return scaling;
}

/// A constant of type FP32 or FP64.
ValueIndex AddNumbers(LowerContext& context, absl::string_view what, DataType type, const std::vector<float>& numbers) {
  const Shape dims = {static_cast<int64_t>(numbers.size())};
  if (type == DataType::kFp32) return context.AddConstant(what, type, dims, numbers);
  return context.AddConstant(what, type, dims, std::vector<double>(numbers.begin(), numbers.end()));
}

/// `output` = `value` (kind) `numbers`, one of them or one for each feature.
absl::Status AddArithmetic(LowerContext& context, gpu::BinaryKind kind, DataType type, ValueIndex value,
                           const Shape& dims, ValueIndex numbers, size_t count, ValueIndex output) {
  const gpu::BinaryDescription description{.kind = kind, .type = type, .a = dims, .b = {static_cast<int64_t>(count)}};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBinary(context.device(), description));
  context.AddLaunch(std::move(kernel), {value, numbers}, {output}, {0});
  return absl::OkStatus();
}

absl::Status AddCast(LowerContext& context, ValueIndex value, DataType from, DataType to, const Shape& dims,
                     ValueIndex output) {
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareCast(context.device(), {.from = from, .to = to, .dims = dims}));
  context.AddLaunch(std::move(kernel), {value}, {output});
  return absl::OkStatus();
}

}  // namespace

absl::Status InferArrayFeatureExtractor(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::GatherDescription description, DescribeFeatures(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::GatherOutputDims(description));
  if (dims.size() == 1) dims.insert(dims.begin(), 1);  // From a single row comes a matrix too.
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerArrayFeatureExtractor(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::GatherDescription description, DescribeFeatures(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareGather(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0), context.input_index(1)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferScaler(InferContext& context) {
  const DataType type = context.input(0).type;
  if (type != DataType::kFp32 && type != DataType::kFp64 && type != DataType::kInt32 && type != DataType::kInt64) {
    return absl::UnimplementedError(absl::StrCat("elements of type ", WireName(type)));
  }
  SLUICE_RETURN_IF_ERROR(ReadScaling(context).status());
  return context.SetOutput(0, DataType::kFp32, context.dims(0));
}

absl::Status LowerScaler(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const Scaling scaling, ReadScaling(context));
  // Copied: adding a temporary moves the graph's values.
  const Shape dims = context.dims(0);
  const DataType from = context.input(0).type;
  // Only FP64 is scaled as it comes: ONNX Runtime too takes integers to FP32 first.
  const DataType type = from == DataType::kFp64 ? DataType::kFp64 : DataType::kFp32;
  const size_t count = scaling.offset.size();
  ValueIndex value = context.input_index(0);
  if (from != type) {
    const ValueIndex converted = context.AddTemporary(type, dims);
    SLUICE_RETURN_IF_ERROR(AddCast(context, value, from, type, dims, converted));
    value = converted;
  }
  const ValueIndex centred = context.AddTemporary(type, dims);
  const ValueIndex offset = AddNumbers(context, "offset", type, scaling.offset);
  SLUICE_RETURN_IF_ERROR(AddArithmetic(context, gpu::BinaryKind::kSub, type, value, dims, offset, count, centred));
  const bool converts = type != DataType::kFp32;
  const ValueIndex scaled = converts ? context.AddTemporary(type, dims) : context.output_index(0);
  const ValueIndex scale = AddNumbers(context, "scale", type, scaling.scale);
  SLUICE_RETURN_IF_ERROR(AddArithmetic(context, gpu::BinaryKind::kMul, type, centred, dims, scale, count, scaled));
  if (!converts) return absl::OkStatus();
  return AddCast(context, scaled, type, DataType::kFp32, dims, context.output_index(0));
}

}  // namespace sluice::model
