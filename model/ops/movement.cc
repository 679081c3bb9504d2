// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/movement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/tensor.h"
#include "model/onnx_reader.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/ops/slice.h"

namespace sluice::model {
namespace {

absl::StatusOr<gpu::TransposeDescription> DescribeTranspose(const NodeContext& context) {
  gpu::TransposeDescription description{.type = context.input(0).type, .input = context.dims(0), .permutation = {}};
  SLUICE_ASSIGN_OR_RETURN(description.permutation, context.Ints("perm"));
  if (description.permutation.empty()) {
    for (size_t i = description.input.size(); i-- > 0;) description.permutation.push_back(static_cast<int64_t>(i));
  }
  return description;
}

/// True when only dimensions of size 1 change places, so that nothing moves.
bool KeepsOrder(const gpu::TransposeDescription& description) {
  int64_t last = -1;
  for (const int64_t axis : description.permutation) {
    if (description.input[static_cast<size_t>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

absl::StatusOr<gpu::ConcatDescription> DescribeConcat(const NodeContext& context) {
  gpu::ConcatDescription description;
  description.type = context.input(0).type;
  if (!context.has_attribute("axis")) return absl::InvalidArgumentError("axis is missing");
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, context.Int("axis", 0));
  SLUICE_ASSIGN_OR_RETURN(description.axis, gpu::NormalizeAxis(axis, context.dims(0).size()));
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (!context.has_input(i)) return absl::InvalidArgumentError("an input is left out");
    if (context.input(i).type != description.type) return absl::InvalidArgumentError("inputs of two types");
    description.inputs.push_back(context.dims(i));
  }
  return description;
}

absl::StatusOr<gpu::GatherDescription> DescribeGather(const NodeContext& context) {
  gpu::GatherDescription description{.type = context.input(0).type,
                                     .data = context.dims(0),
                                     .index_type = context.input(1).type,
                                     .indices = context.dims(1)};
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, context.Int("axis", 0));
  SLUICE_ASSIGN_OR_RETURN(description.axis, gpu::NormalizeAxis(axis, description.data.size()));
  return description;
}

/// Starts, ends, axes and steps of a Slice: attributes before opset 10, then inputs.
struct SliceBounds {
  std::vector<int64_t> starts, ends, axes, steps;
};

absl::StatusOr<SliceBounds> ReadSliceBounds(const NodeContext& context) {
  SliceBounds bounds;
  if (context.opset() < 10) {
    SLUICE_ASSIGN_OR_RETURN(bounds.starts, context.Ints("starts"));
    SLUICE_ASSIGN_OR_RETURN(bounds.ends, context.Ints("ends"));
    SLUICE_ASSIGN_OR_RETURN(bounds.axes, context.Ints("axes"));
  } else {
    if (!context.has_input(1) || !context.has_input(2)) return absl::InvalidArgumentError("starts or ends are missing");
    SLUICE_ASSIGN_OR_RETURN(bounds.starts, context.ConstantInts(1));
    SLUICE_ASSIGN_OR_RETURN(bounds.ends, context.ConstantInts(2));
    if (context.has_input(3)) {
      SLUICE_ASSIGN_OR_RETURN(bounds.axes, context.ConstantInts(3));
    }
    if (context.has_input(4)) {
      SLUICE_ASSIGN_OR_RETURN(bounds.steps, context.ConstantInts(4));
    }
  }
  const size_t count = bounds.starts.size();
  if (bounds.axes.empty()) {
    for (size_t i = 0; i < count; ++i) bounds.axes.push_back(static_cast<int64_t>(i));
  }
  if (bounds.steps.empty()) bounds.steps.assign(count, 1);
  if (bounds.ends.size() != count || bounds.axes.size() != count || bounds.steps.size() != count) {
    return absl::InvalidArgumentError("starts, ends, axes and steps differ in length");
  }
  return bounds;
}

/// The lengths of a Split's parts along its axis.
absl::StatusOr<std::vector<int64_t>> SplitLengths(const NodeContext& context, int64_t extent) {
  std::vector<int64_t> lengths;
  if (context.opset() < 13) {
    SLUICE_ASSIGN_OR_RETURN(lengths, context.Ints("split"));
  } else if (context.has_input(1)) {
    SLUICE_ASSIGN_OR_RETURN(lengths, context.ConstantInts(1));
  }
  const auto count = static_cast<int64_t>(context.output_count());
  if (lengths.empty()) {
    // From opset 18 on the last part may be shorter.
    const int64_t part = (extent + count - 1) / count;
    if (context.opset() < 18 && extent % count != 0) {
      return absl::InvalidArgumentError(absl::StrCat(extent, " elements do not split evenly into ", count));
    }
    int64_t left = extent;
    for (int64_t i = 0; i < count; ++i) {
      lengths.push_back(std::min(part, left));
      left -= lengths.back();
    }
  }
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > extent - sum) return absl::InvalidArgumentError("the parts exceed the input");
    sum += length;
  }
  if (sum != extent || lengths.size() < context.output_count()) {
    return absl::InvalidArgumentError(absl::StrCat("the parts make ", sum, " of ", extent, " elements"));
  }
  return lengths;
}

struct SplitPlan {
  size_t axis = 0;
  std::vector<int64_t> lengths;
};

absl::StatusOr<SplitPlan> PlanSplit(const NodeContext& context) {
  SplitPlan plan;
  SLUICE_ASSIGN_OR_RETURN(const int64_t attribute, context.Int("axis", 0));
  SLUICE_ASSIGN_OR_RETURN(const int64_t axis, gpu::NormalizeAxis(attribute, context.dims(0).size()));
  plan.axis = static_cast<size_t>(axis);
  SLUICE_ASSIGN_OR_RETURN(plan.lengths, SplitLengths(context, context.dims(0)[plan.axis]));
  return plan;
}

/// Tile as an Expand: every dimension d repeated r times is [r, d] broadcast from [1, d]; repeats of 1 take no
/// dimension of their own, since kernels have a bound on rank.
absl::StatusOr<gpu::ExpandDescription> DescribeTile(const NodeContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats, context.ConstantInts(1));
  const Shape& input = context.dims(0);
  if (repeats.size() != input.size()) return absl::InvalidArgumentError("repeats do not match the input's rank");
  gpu::ExpandDescription description{.type = context.input(0).type, .input = {}, .output = {}};
  for (size_t i = 0; i < input.size(); ++i) {
    if (repeats[i] < 0) return absl::InvalidArgumentError("a repeat is negative");
    if (repeats[i] != 1) {
      description.input.push_back(1);
      description.output.push_back(repeats[i]);
    }
    description.input.push_back(input[i]);
    description.output.push_back(input[i]);
  }
  return description;
}

}  // namespace

absl::StatusOr<gpu::SliceDescription> DescribeSlice(const NodeContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const SliceBounds bounds, ReadSliceBounds(context));
  const Shape& input = context.dims(0);
  gpu::SliceDescription description{.type = context.input(0).type,
                                    .input = input,
                                    .starts = Shape(input.size(), 0),
                                    .steps = Shape(input.size(), 1),
                                    .output = input};
  std::vector<bool> seen(input.size(), false);
  for (size_t i = 0; i < bounds.starts.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t axis_value, gpu::NormalizeAxis(bounds.axes[i], input.size()));
    const auto axis = static_cast<size_t>(axis_value);
    if (seen[axis]) return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is given twice"));
    seen[axis] = true;
    const int64_t extent = input[axis];
    const int64_t step = bounds.steps[i];
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) {
      return absl::InvalidArgumentError(absl::StrCat("a step of ", step));
    }
    // Negative positions count from the back; everything is then clamped to what a walk in this direction can touch.
    const auto position = [&](int64_t value) { return value < 0 ? std::max(value, -extent - 1) + extent : value; };
    const int64_t lowest = step > 0 ? 0 : -1;
    const int64_t highest = step > 0 ? extent : extent - 1;
    const int64_t start =
        std::clamp(position(bounds.starts[i]), std::min(lowest + (step < 0 ? 1 : 0), highest), highest);
    const int64_t end = std::clamp(position(bounds.ends[i]), lowest, highest);
    const int64_t distance = step > 0 ? end - start : start - end;
    const int64_t stride = step > 0 ? step : -step;
    description.starts[axis] = std::max<int64_t>(start, 0);
    description.steps[axis] = step;
    description.output[axis] = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  }
  return description;
}

absl::Status InferTranspose(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::TransposeDescription description, DescribeTranspose(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::TransposeOutputDims(description));
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerTranspose(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::TransposeDescription description, DescribeTranspose(context));
  if (context.has_attribute(kLayoutAttribute)) {
    // The same tensor in another order of memory: the channels move behind the spatial dimensions, or back.
    description.input = context.stored_dims(0);
    description.permutation.resize(description.input.size());
    std::iota(description.permutation.begin(), description.permutation.end(), 0);
    const auto first = description.permutation.begin() + 1;
    if (context.output(0).channels_last) {
      std::rotate(first, first + 1, description.permutation.end());
    } else {
      std::rotate(first, description.permutation.end() - 1, description.permutation.end());
    }
  } else if (KeepsOrder(description)) {
    context.AddView();
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareTranspose(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferConcat(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ConcatDescription description, DescribeConcat(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::ConcatOutputDims(description));
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerConcat(LowerContext& context) {
  if (context.input_count() == 1) {
    context.AddView();
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const gpu::ConcatDescription description, DescribeConcat(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareConcat(context.device(), description));
  context.AddLaunch(std::move(kernel), context.node().inputs, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferSlice(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(gpu::SliceDescription description, DescribeSlice(context));
  return context.SetOutput(0, description.type, std::move(description.output));
}

absl::Status LowerSlice(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::SliceDescription description, DescribeSlice(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareSlice(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferSplit(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const SplitPlan plan, PlanSplit(context));
  for (size_t i = 0; i < context.output_count(); ++i) {
    Shape dims = context.dims(0);
    dims[plan.axis] = plan.lengths[i];
    SLUICE_RETURN_IF_ERROR(context.SetOutput(i, context.input(0).type, std::move(dims)));
  }
  return absl::OkStatus();
}

absl::Status LowerSplit(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const SplitPlan plan, PlanSplit(context));
  const Shape& input = context.dims(0);
  int64_t start = 0;
  for (size_t i = 0; i < context.output_count(); ++i) {
    gpu::SliceDescription description{.type = context.input(0).type,
                                      .input = input,
                                      .starts = Shape(input.size(), 0),
                                      .steps = Shape(input.size(), 1),
                                      .output = input};
    description.starts[plan.axis] = start;
    description.output[plan.axis] = plan.lengths[i];
    start += plan.lengths[i];
    if (!context.has_output(i)) continue;
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareSlice(context.device(), description));
    context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(i)});
  }
  return absl::OkStatus();
}

absl::Status InferGather(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::GatherDescription description, DescribeGather(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::GatherOutputDims(description));
  return context.SetOutput(0, description.type, std::move(dims));
}

absl::Status LowerGather(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::GatherDescription description, DescribeGather(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareGather(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0), context.input_index(1)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferExpand(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> target, context.ConstantInts(1));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, gpu::BroadcastDims(context.dims(0), target));
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerExpand(LowerContext& context) {
  const gpu::ExpandDescription description{
      .type = context.input(0).type, .input = context.dims(0), .output = context.output_dims(0)};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareExpand(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferTile(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats, context.ConstantInts(1));
  Shape dims = context.dims(0);
  if (repeats.size() != dims.size()) return absl::InvalidArgumentError("repeats do not match the input's rank");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (repeats[i] < 0 || __builtin_mul_overflow(dims[i], repeats[i], &dims[i])) {
      return absl::InvalidArgumentError(absl::StrCat("a repeat of ", repeats[i]));
    }
  }
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerTile(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::ExpandDescription description, DescribeTile(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareExpand(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

}  // namespace sluice::model
