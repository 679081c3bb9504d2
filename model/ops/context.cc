// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/ops/context.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/onnx_reader.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

absl::Status WrongKind(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' has the wrong type"));
}

template <class T>
T ReadElement(ByteSpan bytes, size_t index) {
  T element;
  std::memcpy(&element, bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

absl::Status NotConstant(const Value& value) {
  return absl::UnimplementedError(absl::StrCat("the result's shape depends on data: '", value.name,
                                               "' is not constant once the input shapes are bound"));
}

}  // namespace

absl::StatusOr<int64_t> NodeContext::Int(absl::string_view name, int64_t fallback) const {
  const Attribute* attribute = node().FindAttribute(name);
  if (attribute == nullptr) return fallback;
  if (const auto* value = std::get_if<int64_t>(&attribute->value)) return *value;
  return WrongKind(name);
}

absl::StatusOr<float> NodeContext::Float(absl::string_view name, float fallback) const {
  const Attribute* attribute = node().FindAttribute(name);
  if (attribute == nullptr) return fallback;
  if (const auto* value = std::get_if<float>(&attribute->value)) return *value;
  return WrongKind(name);
}

absl::StatusOr<absl::string_view> NodeContext::String(absl::string_view name, absl::string_view fallback) const {
  const Attribute* attribute = node().FindAttribute(name);
  if (attribute == nullptr) return fallback;
  if (const auto* value = std::get_if<std::string>(&attribute->value)) return absl::string_view(*value);
  return WrongKind(name);
}

absl::StatusOr<std::vector<int64_t>> NodeContext::Ints(absl::string_view name) const {
  const Attribute* attribute = node().FindAttribute(name);
  if (attribute == nullptr) return std::vector<int64_t>();
  if (const auto* value = std::get_if<std::vector<int64_t>>(&attribute->value)) return *value;
  return WrongKind(name);
}

absl::StatusOr<std::vector<float>> NodeContext::Floats(absl::string_view name) const {
  const Attribute* attribute = node().FindAttribute(name);
  if (attribute == nullptr) return std::vector<float>();
  if (const auto* value = std::get_if<std::vector<float>>(&attribute->value)) return *value;
  return WrongKind(name);
}

absl::StatusOr<std::vector<int64_t>> NodeContext::ConstantInts(size_t i) const {
  if (!input(i).is_constant) return NotConstant(input(i));
  return IntsOf(input(i));
}

absl::StatusOr<double> NodeContext::ConstantNumber(size_t i) const {
  const Value& value = input(i);
  if (!value.is_constant) return NotConstant(value);
  if (value.bytes.size() != ElementBytes(value.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value.name, "' must be a single number, not ", ShapeToString(*value.dims)));
  }
  switch (value.type) {
    case DataType::kFp32:
      return static_cast<double>(ReadElement<float>(value.bytes, 0));
    case DataType::kFp64:
      return ReadElement<double>(value.bytes, 0);
    case DataType::kInt8:
      return static_cast<double>(ReadElement<int8_t>(value.bytes, 0));
    case DataType::kUint8:
    case DataType::kBool:
      return static_cast<double>(ReadElement<uint8_t>(value.bytes, 0));
    case DataType::kInt32:
      return static_cast<double>(ReadElement<int32_t>(value.bytes, 0));
    case DataType::kInt64:
      return static_cast<double>(ReadElement<int64_t>(value.bytes, 0));
    default:
      return absl::UnimplementedError(absl::StrCat("'", value.name, "': type ", WireName(value.type)));
  }
}

absl::Status InferContext::SetOutput(size_t i, DataType type, Shape dims) {
  if (!has_output(i)) return absl::OkStatus();
  if (dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("the result would have ", dims.size(), " dimensions"));
  }
  SLUICE_RETURN_IF_ERROR(ElementCount(dims).status());
  Value& value = graph_.value(output_index(i));
  value.type = type;
  value.dims = std::move(dims);
  return absl::OkStatus();
}

absl::Status InferContext::SetOutputConstant(size_t i, DataType type, Shape dims, std::vector<std::byte> bytes) {
  SLUICE_RETURN_IF_ERROR(SetOutput(i, type, dims));
  if (has_output(i)) graph_.SetConstant(output_index(i), type, std::move(dims), std::move(bytes));
  return absl::OkStatus();
}

absl::Status InferContext::SetOutputInts(size_t i, Shape dims, const std::vector<int64_t>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(int64_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return SetOutputConstant(i, DataType::kInt64, std::move(dims), std::move(bytes));
}

gpu::Constant LowerContext::ConstantInput(size_t i) {
  const Value& value = input(i);
  ByteSpan bytes = value.bytes;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % ElementBytes(value.type) != 0) {
    aligned_.emplace_back(bytes.begin(), bytes.end());
    bytes = aligned_.back();
  }
  return {value.constant_name, value.type, *value.dims, bytes};
}

Shape StoredDims(const Value& value) {
  Shape dims = *value.dims;
  if (value.channels_last) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return dims;
}

ValueIndex LowerContext::AddTemporary(DataType type, Shape dims) {
  return graph_.AddValue({.name = absl::StrCat(node().name, "/temporary"), .type = type, .dims = std::move(dims)});
}

ValueIndex LowerContext::AddConstantBytes(absl::string_view what, DataType type, Shape dims,
                                          std::vector<std::byte> bytes) {
  return graph_.AddConstant(absl::StrCat(node().name, "/", what), type, std::move(dims), std::move(bytes));
}

void LowerContext::AddLaunch(std::unique_ptr<gpu::Kernel> kernel, std::vector<ValueIndex> inputs,
                             std::vector<ValueIndex> outputs, std::vector<size_t> in_place) {
  lowered_.launches.push_back({std::move(kernel), std::move(inputs), std::move(outputs), std::move(in_place)});
}

absl::StatusOr<std::vector<int64_t>> IntsOf(const Value& constant) {
  std::vector<int64_t> values;
  if (constant.type == DataType::kInt64) {
    values.resize(constant.bytes.size() / sizeof(int64_t));
    if (!values.empty()) std::memcpy(values.data(), constant.bytes.data(), constant.bytes.size());
    return values;
  }
  if (constant.type == DataType::kInt32) {
    for (size_t i = 0; i < constant.bytes.size() / sizeof(int32_t); ++i) {
      values.push_back(ReadElement<int32_t>(constant.bytes, i));
    }
    return values;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", constant.name, "' must be INT64 or INT32, not ", WireName(constant.type)));
}

absl::Status AtNode(const Node& node, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("node '", node.name, "' (", node.entry->name, "): ", status.message()));
}

}  // namespace sluice::model
