// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/tensor_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/convert.h"
#include "client/random.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

template <class T>
void AppendRaw(T value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
T ReadRaw(const std::string& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

absl::Status Unfit(const json& value, DataType type) {
  return absl::InvalidArgumentError(absl::StrCat(
      value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60), " is not a value of ", WireName(type)));
}

template <class T>
absl::Status AppendInteger(const json& value, DataType type, std::string& bytes) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) return Unfit(value, type);
    AppendRaw(static_cast<T>(number), bytes);
    return absl::OkStatus();
  }
  if (!value.is_number_integer()) return Unfit(value, type);
  const auto number = value.get<int64_t>();
  const bool below = number < 0 && (std::numeric_limits<T>::min() == 0 ||
                                    number < static_cast<int64_t>(std::numeric_limits<T>::min()));
  const bool above = number > 0 && static_cast<uint64_t>(number) > static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (below || above) return Unfit(value, type);
  AppendRaw(static_cast<T>(number), bytes);
  return absl::OkStatus();
}

void AppendReal(double value, DataType type, std::string& bytes) {
  switch (type) {
    case DataType::kFp16:
      return AppendRaw(FloatToHalf(static_cast<float>(value)), bytes);
    case DataType::kBf16:
      return AppendRaw(FloatToBfloat(static_cast<float>(value)), bytes);
    case DataType::kFp32:
      return AppendRaw(static_cast<float>(value), bytes);
    default:
      return AppendRaw(value, bytes);
  }
}

void AppendText(absl::string_view text, std::string& bytes) {
  AppendRaw(static_cast<uint32_t>(text.size()), bytes);
  bytes.append(text.data(), text.size());
}

template <class Append>
void ForEachText(const Tensor& tensor, size_t limit, Append append) {
  size_t at = 0;
  for (size_t i = 0; i < limit && at + sizeof(uint32_t) <= tensor.bytes.size(); ++i) {
    uint32_t length = 0;
    std::memcpy(&length, tensor.bytes.data() + at, sizeof(length));
    at += sizeof(length);
    append(tensor.bytes.substr(at, length));
    at += length;
  }
}

json Element(const Tensor& tensor, size_t index) {
  switch (tensor.type) {
    case DataType::kBool:
      return ReadRaw<uint8_t>(tensor.bytes, index) != 0;
    case DataType::kUint64:
      return ReadRaw<uint64_t>(tensor.bytes, index);
    case DataType::kInt64:
      return ReadRaw<int64_t>(tensor.bytes, index);
    case DataType::kFp16:
    case DataType::kBf16:
    case DataType::kFp32:
    case DataType::kFp64:
      return ElementAsDouble(tensor, index);
    default:
      return static_cast<int64_t>(ElementAsDouble(tensor, index));
  }
}

}  // namespace

uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is the first value that rounds to infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half: a multiple of 2^-24, which nearbyint rounds to even.
    const float scaled = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1.0p24f);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(scaled));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float HalfToFloat(uint16_t bits) {
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1.0p-24f;
  const uint32_t wide_exponent = exponent == 0x1fu ? 0xffu : exponent + 112u;
  return sign * std::bit_cast<float>((wide_exponent << 23) | (mantissa << 13));
}

uint16_t FloatToBfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float BfloatToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

absl::Status AppendElement(const json& value, DataType type, std::string& bytes) {
  switch (type) {
    case DataType::kBool: {
      const bool zero_or_one = value.is_number_integer() && (value == 0 || value == 1);
      if (!value.is_boolean() && !zero_or_one) return Unfit(value, type);
      AppendRaw(static_cast<uint8_t>(value == 1 || value == true ? 1 : 0), bytes);
      return absl::OkStatus();
    }
    case DataType::kUint8:
      return AppendInteger<uint8_t>(value, type, bytes);
    case DataType::kUint16:
      return AppendInteger<uint16_t>(value, type, bytes);
    case DataType::kUint32:
      return AppendInteger<uint32_t>(value, type, bytes);
    case DataType::kUint64:
      return AppendInteger<uint64_t>(value, type, bytes);
    case DataType::kInt8:
      return AppendInteger<int8_t>(value, type, bytes);
    case DataType::kInt16:
      return AppendInteger<int16_t>(value, type, bytes);
    case DataType::kInt32:
      return AppendInteger<int32_t>(value, type, bytes);
    case DataType::kInt64:
      return AppendInteger<int64_t>(value, type, bytes);
    case DataType::kFp16:
    case DataType::kFp32:
    case DataType::kFp64:
    case DataType::kBf16:
      if (!value.is_number()) return Unfit(value, type);
      AppendReal(value.get<double>(), type, bytes);
      return absl::OkStatus();
    case DataType::kBytes:
      if (!value.is_string()) return Unfit(value, type);
      AppendText(value.get_ref<const std::string&>(), bytes);
      return absl::OkStatus();
    case DataType::kInvalid:
      break;
  }
  return Unfit(value, type);
}

double ElementAsDouble(const Tensor& tensor, size_t index) {
  switch (tensor.type) {
    case DataType::kBool:
    case DataType::kUint8:
      return ReadRaw<uint8_t>(tensor.bytes, index);
    case DataType::kUint16:
      return ReadRaw<uint16_t>(tensor.bytes, index);
    case DataType::kUint32:
      return ReadRaw<uint32_t>(tensor.bytes, index);
    case DataType::kUint64:
      return static_cast<double>(ReadRaw<uint64_t>(tensor.bytes, index));
    case DataType::kInt8:
      return ReadRaw<int8_t>(tensor.bytes, index);
    case DataType::kInt16:
      return ReadRaw<int16_t>(tensor.bytes, index);
    case DataType::kInt32:
      return ReadRaw<int32_t>(tensor.bytes, index);
    case DataType::kInt64:
      return static_cast<double>(ReadRaw<int64_t>(tensor.bytes, index));
    case DataType::kFp16:
      return HalfToFloat(ReadRaw<uint16_t>(tensor.bytes, index));
    case DataType::kBf16:
      return BfloatToFloat(ReadRaw<uint16_t>(tensor.bytes, index));
    case DataType::kFp32:
      return ReadRaw<float>(tensor.bytes, index);
    case DataType::kFp64:
      return ReadRaw<double>(tensor.bytes, index);
    case DataType::kBytes:
    case DataType::kInvalid:
      break;
  }
  return 0;
}

json Elements(const Tensor& tensor, size_t limit) {
  json values = json::array();
  if (tensor.type == DataType::kBytes) {
    ForEachText(tensor, limit, [&values](std::string text) { values.push_back(std::move(text)); });
    return values;
  }
  const size_t element_bytes = ElementBytes(tensor.type);
  const size_t count = element_bytes == 0 ? 0 : tensor.bytes.size() / element_bytes;
  for (size_t i = 0; i < std::min(count, limit); ++i) values.push_back(Element(tensor, i));
  return values;
}

absl::StatusOr<Tensor> RandomTensor(const std::string& name, DataType type, std::vector<int64_t> shape, uint64_t seed) {
  Tensor tensor{name, type, std::move(shape), {}};
  const absl::StatusOr<int64_t> count = ElementCount(tensor.shape);
  if (!count.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("input '", name, "': ", count.status().message(),
                                                   "; give its shape with free dimensions filled in"));
  }
  constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();
  if (type == DataType::kInvalid ||
      *count > kMostBytes / static_cast<int64_t>(std::max<size_t>(1, ElementBytes(type)))) {
    return absl::InvalidArgumentError(absl::StrCat("input '", name, "': cannot make ", *count, " random elements"));
  }
  Random random(seed);
  tensor.bytes.reserve(static_cast<size_t>(*count) * ElementBytes(type));
  for (int64_t i = 0; i < *count; ++i) {
    const double uniform = random.Uniform();
    switch (type) {
      case DataType::kFp16:
      case DataType::kBf16:
      case DataType::kFp32:
      case DataType::kFp64:
        AppendReal(uniform, type, tensor.bytes);
        break;
      case DataType::kBool:
        AppendRaw(static_cast<uint8_t>(uniform < 0.5 ? 0 : 1), tensor.bytes);
        break;
      case DataType::kBytes: {
        std::string text;
        for (int letter = 0; letter < 8; ++letter) text.push_back(static_cast<char>('a' + random.Next() % 26));
        AppendText(text, tensor.bytes);
        break;
      }
      default: {
        const auto number = static_cast<uint64_t>(uniform * (type == DataType::kInt8 ? 128 : 256));
        // Little-endian: the low bytes of the number are the element.
        tensor.bytes.append(reinterpret_cast<const char*>(&number), ElementBytes(type));
      }
    }
  }
  return tensor;
}

}  // namespace sluice::client
