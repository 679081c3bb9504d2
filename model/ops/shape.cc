// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/tensor.h"
#include "model/onnx_reader.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

// Results that a shape rule spells out, so that a small file cannot ask for a huge one.
constexpr int64_t kMaxSpelledElements = int64_t{1} << 24;

/// Axes of Squeeze and Unsqueeze: an attribute before opset 13, then an input. Normalised to `rank`, ascending, unique.
absl::StatusOr<std::vector<int64_t>> ReadAxes(const NodeContext& context, size_t rank) {
  std::vector<int64_t> axes;
  if (context.opset() < 13) {
    SLUICE_ASSIGN_OR_RETURN(axes, context.Ints("axes"));
  } else if (context.has_input(1)) {
    SLUICE_ASSIGN_OR_RETURN(axes, context.ConstantInts(1));
  }
  for (int64_t& axis : axes) {
    SLUICE_ASSIGN_OR_RETURN(axis, gpu::NormalizeAxis(axis, rank));
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return absl::InvalidArgumentError("an axis is given twice");
  }
  return axes;
}

absl::StatusOr<Shape> ResolveReshape(const Shape& input, const std::vector<int64_t>& target, bool zero_is_zero) {
  Shape dims;
  int64_t inferred = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) {
      if (inferred >= 0) return absl::InvalidArgumentError("two dimensions are -1");
      inferred = static_cast<int64_t>(i);
      dims.push_back(1);
    } else if (target[i] == 0 && !zero_is_zero) {
      if (i >= input.size()) return absl::InvalidArgumentError("a 0 has no dimension to copy");
      dims.push_back(input[i]);
    } else {
      dims.push_back(target[i]);
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t have, ElementCount(input));
  SLUICE_ASSIGN_OR_RETURN(const int64_t want, ElementCount(dims));
  if (inferred >= 0) {
    if (want == 0 || have % want != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(ShapeToString(input), " does not reshape to ", ShapeToString(target)));
    }
    dims[static_cast<size_t>(inferred)] = have / want;
  } else if (have != want) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShapeToString(input), " does not reshape to ", ShapeToString(target)));
  }
  return dims;
}

template <class T>
std::vector<std::byte> BytesOf(const T* values, size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  if (count > 0) std::memcpy(bytes.data(), values, bytes.size());
  return bytes;
}

}  // namespace

absl::Status InferReshape(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> target, context.ConstantInts(1));
  SLUICE_ASSIGN_OR_RETURN(const int64_t allow_zero, context.Int("allowzero", 0));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, ResolveReshape(context.dims(0), target, allow_zero != 0));
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status InferFlatten(InferContext& context) {
  const Shape& input = context.dims(0);
  SLUICE_ASSIGN_OR_RETURN(int64_t axis, context.Int("axis", 1));
  const auto rank = static_cast<int64_t>(input.size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank)
    return absl::InvalidArgumentError(absl::StrCat("axis of an input ", ShapeToString(input)));
  Shape dims = {1, 1};
  for (int64_t i = 0; i < rank; ++i) dims[i < axis ? 0 : 1] *= input[static_cast<size_t>(i)];
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status InferSqueeze(InferContext& context) {
  const Shape& input = context.dims(0);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ReadAxes(context, input.size()));
  Shape dims;
  for (size_t i = 0; i < input.size(); ++i) {
    const bool listed = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    if (listed && input[i] != 1) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " of ", ShapeToString(input), " is not 1"));
    }
    if (!listed && (!axes.empty() || input[i] != 1)) dims.push_back(input[i]);
  }
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status InferUnsqueeze(InferContext& context) {
  const Shape& input = context.dims(0);
  size_t added = 0;
  if (context.opset() < 13) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, context.Ints("axes"));
    added = axes.size();
  } else {
    if (!context.has_input(1)) return absl::InvalidArgumentError("axes are missing");
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, context.ConstantInts(1));
    added = axes.size();
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ReadAxes(context, input.size() + added));
  Shape dims;
  size_t next = 0;
  for (size_t i = 0; i < input.size() + added; ++i) {
    const bool is_new = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    dims.push_back(is_new ? 1 : input[next++]);
  }
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status InferSame(InferContext& context) { return context.SetOutput(0, context.input(0).type, context.dims(0)); }

absl::Status InferDropout(InferContext& context) {
  if (context.has_input(2)) {
    SLUICE_ASSIGN_OR_RETURN(const double training, context.ConstantNumber(2));
    if (training != 0) return absl::UnimplementedError("training_mode");
  }
  return InferSame(context);
}

absl::Status LowerView(LowerContext& context) {
  context.AddView();
  return absl::OkStatus();
}

absl::Status InferShape(InferContext& context) {
  const Shape& input = context.dims(0);
  const auto rank = static_cast<int64_t>(input.size());
  SLUICE_ASSIGN_OR_RETURN(int64_t start, context.Int("start", 0));
  SLUICE_ASSIGN_OR_RETURN(int64_t end, context.Int("end", rank));
  const auto clamp = [&](int64_t value) {
    return std::clamp<int64_t>(value < 0 ? std::max(value, -rank) + rank : value, 0, rank);
  };
  start = clamp(start);
  end = std::max(clamp(end), start);
  const std::vector<int64_t> part(input.begin() + static_cast<std::ptrdiff_t>(start),
                                  input.begin() + static_cast<std::ptrdiff_t>(end));
  return context.SetOutputInts(0, {static_cast<int64_t>(part.size())}, part);
}

absl::Status InferSize(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(context.dims(0)));
  return context.SetOutputInts(0, {}, {count});
}

absl::Status InferConstant(InferContext& context) {
  if (context.node().attributes.size() != 1) return absl::InvalidArgumentError("expected exactly one attribute");
  const Attribute attribute = context.node().attributes[0];
  if (const auto* tensor = std::get_if<ConstantTensor>(&attribute.value)) {
    return context.SetOutputConstant(0, tensor->type, tensor->dims,
                                     std::vector<std::byte>(tensor->bytes.begin(), tensor->bytes.end()));
  }
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) return context.SetOutputInts(0, {}, {*number});
  if (const auto* number = std::get_if<float>(&attribute.value)) {
    return context.SetOutputConstant(0, DataType::kFp32, {}, BytesOf(number, 1));
  }
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute.value)) {
    return context.SetOutputInts(0, {static_cast<int64_t>(numbers->size())}, *numbers);
  }
  if (const auto* numbers = std::get_if<std::vector<float>>(&attribute.value)) {
    return context.SetOutputConstant(0, DataType::kFp32, {static_cast<int64_t>(numbers->size())},
                                     BytesOf(numbers->data(), numbers->size()));
  }
  return absl::UnimplementedError(absl::StrCat("attribute '", attribute.name, "'"));
}

absl::Status InferConstantOfShape(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(Shape dims, context.ConstantInts(0));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
  if (count > kMaxSpelledElements) {
    return absl::UnimplementedError(absl::StrCat("a constant of ", count, " elements"));
  }
  DataType type = DataType::kFp32;
  std::vector<std::byte> element(sizeof(float), std::byte{0});
  if (const Attribute* value = context.node().FindAttribute("value")) {
    const auto* tensor = std::get_if<ConstantTensor>(&value->value);
    if (tensor == nullptr || tensor->bytes.size() != ElementBytes(tensor->type)) {
      return absl::InvalidArgumentError("'value' is not a tensor of one element");
    }
    type = tensor->type;
    element.assign(tensor->bytes.begin(), tensor->bytes.end());
  }
  std::vector<std::byte> bytes(static_cast<size_t>(count) * element.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = element[i % element.size()];
  return context.SetOutputConstant(0, type, std::move(dims), std::move(bytes));
}

absl::Status InferRange(InferContext& context) {
  if (context.input(0).type != DataType::kInt64) {
    return absl::UnimplementedError(absl::StrCat("elements of type ", WireName(context.input(0).type)));
  }
  int64_t numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> single, context.ConstantInts(i));
    if (single.size() != 1) return absl::InvalidArgumentError("start, limit and delta must be single numbers");
    numbers[i] = single[0];
  }
  const auto [start, limit, delta] = numbers;
  if (delta == 0) return absl::InvalidArgumentError("a delta of 0");
  std::vector<int64_t> values;
  int64_t value = start;
  while (delta > 0 ? value < limit : value > limit) {
    if (static_cast<int64_t>(values.size()) >= kMaxSpelledElements) {
      return absl::UnimplementedError("a range of more than 2^24 elements");
    }
    values.push_back(value);
    if (__builtin_add_overflow(value, delta, &value)) break;
  }
  return context.SetOutputInts(0, {static_cast<int64_t>(values.size())}, values);
}

}  // namespace sluice::model
