// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace sluice {

/// Element type of a tensor. Wire names are those of the Open Inference Protocol.
enum class DataType : uint8_t {
  kInvalid,
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kFp32,
  kFp64,
  kBf16,
  kBytes,
};

struct DataTypeFacts {
  DataType type;
  absl::string_view wire_name;
  size_t element_bytes;  ///< 0 for BYTES, whose elements are length-prefixed.
};

inline constexpr DataTypeFacts kDataTypes[] = {
    {DataType::kBool, "BOOL", 1},     {DataType::kUint8, "UINT8", 1},   {DataType::kUint16, "UINT16", 2},
    {DataType::kUint32, "UINT32", 4}, {DataType::kUint64, "UINT64", 8}, {DataType::kInt8, "INT8", 1},
    {DataType::kInt16, "INT16", 2},   {DataType::kInt32, "INT32", 4},   {DataType::kInt64, "INT64", 8},
    {DataType::kFp16, "FP16", 2},     {DataType::kFp32, "FP32", 4},     {DataType::kFp64, "FP64", 8},
    {DataType::kBf16, "BF16", 2},     {DataType::kBytes, "BYTES", 0},
};

constexpr absl::string_view WireName(DataType type) {
  for (const DataTypeFacts& facts : kDataTypes) {
    if (facts.type == type) return facts.wire_name;
  }
  return "INVALID";
}

constexpr std::optional<DataType> ParseWireName(absl::string_view name) {
  for (const DataTypeFacts& facts : kDataTypes) {
    if (facts.wire_name == name) return facts.type;
  }
  return std::nullopt;
}

/// Bytes of one element; 0 for BYTES and for the invalid type.
constexpr size_t ElementBytes(DataType type) {
  for (const DataTypeFacts& facts : kDataTypes) {
    if (facts.type == type) return facts.element_bytes;
  }
  return 0;
}

}  // namespace sluice
