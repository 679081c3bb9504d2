// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/typed_contents.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace sluice::rpc {
namespace {

enum Field : uint32_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,
  kInt64 = 3,
  kUint = 4,
  kUint64 = 5,
  kFp32 = 6,
  kFp64 = 7,
  kBytes = 8,
};

constexpr absl::string_view kFieldNames[kContentsFieldCount] = {
    "",
    "bool_contents",
    "int_contents",
    "int64_contents",
    "uint_contents",
    "uint64_contents",
    "fp32_contents",
    "fp64_contents",
    "bytes_contents",
};

Field FieldOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return kBool;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
      return kInt;
    case DataType::kInt64:
      return kInt64;
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
      return kUint;
    case DataType::kUint64:
      return kUint64;
    case DataType::kFp32:
      return kFp32;
    case DataType::kFp64:
      return kFp64;
    case DataType::kBytes:
      return kBytes;
    case DataType::kFp16:
    case DataType::kBf16:
    case DataType::kInvalid:
      return kNone;
  }
  return kNone;
}

WireType ElementWireType(uint32_t field) {
  switch (field) {
    case kFp32:
      return WireType::kFixed32;
    case kFp64:
      return WireType::kFixed64;
    case kBytes:
      return WireType::kLengthDelimited;
    default:
      return WireType::kVarint;
  }
}

/// Calls visitor.OnVarint(field, value), OnFixed(field, run, element bytes) or OnBytes(run) for what is in `range`, in
/// order. The visitor stops the walk by returning false.
template <class Visitor>
bool Walk(WireReader range, int depth, Visitor& visitor) {
  while (!range.done()) {
    uint32_t tag = 0;
    if (!range.ReadTag(tag)) return false;
    const uint32_t field = tag >> 3;
    const auto type = static_cast<WireType>(tag & 7);
    const bool known = field >= kBool && field <= kBytes;
    const WireType element_type = ElementWireType(field);
    if (!known || (type != element_type && type != WireType::kLengthDelimited)) {
      if (!range.SkipField(tag, depth)) return false;
      continue;
    }
    if (type == WireType::kVarint) {
      uint64_t value = 0;
      if (!range.ReadVarint(value) || !visitor.OnVarint(field, value)) return false;
      continue;
    }
    const size_t width = element_type == WireType::kFixed32 ? 4 : 8;
    if (type != WireType::kLengthDelimited) {
      uint64_t value = 0;
      if (!range.ReadBytes(&value, width)) return false;
      const Bytes single(reinterpret_cast<const std::byte*>(&value), width);
      if (!visitor.OnFixed(field, WireReader({&single, 1}), width)) return false;
      continue;
    }
    WireReader run;
    if (!range.ReadNested(run)) return false;
    if (element_type == WireType::kLengthDelimited) {
      if (!visitor.OnBytes(run)) return false;
    } else if (element_type == WireType::kVarint) {
      while (!run.done()) {
        uint64_t value = 0;
        if (!run.ReadVarint(value) || !visitor.OnVarint(field, value)) return false;
      }
    } else if (run.remaining() % width != 0 || !visitor.OnFixed(field, run, width)) {
      return false;
    }
  }
  return true;
}

struct Counter {
  std::array<size_t, kContentsFieldCount>& counts;
  bool OnVarint(uint32_t field, uint64_t /*value*/) {
    ++counts[field];
    return true;
  }
  bool OnFixed(uint32_t field, const WireReader& run, size_t width) {
    counts[field] += run.remaining() / width;
    return true;
  }
  bool OnBytes(const WireReader& /*run*/) {
    ++counts[kBytes];
    return true;
  }
};

template <class T>
void Append(T value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Appends elements in raw form. Only the field of the type is filled, as the caller has checked.
struct Decoder {
  DataType type;
  std::string& bytes;
  std::string out_of_range;

  template <class Narrow, class Wide>
  bool AppendNarrow(Wide value) {
    if (value < std::numeric_limits<Narrow>::min() || value > std::numeric_limits<Narrow>::max()) {
      out_of_range = absl::StrCat(value);
      return false;
    }
    Append(static_cast<Narrow>(value), bytes);
    return true;
  }
  bool OnVarint(uint32_t /*field*/, uint64_t value) {
    switch (type) {
      case DataType::kBool:
        Append(static_cast<uint8_t>(value != 0 ? 1 : 0), bytes);
        return true;
      case DataType::kInt8:
        return AppendNarrow<int8_t>(static_cast<int32_t>(value));
      case DataType::kInt16:
        return AppendNarrow<int16_t>(static_cast<int32_t>(value));
      case DataType::kUint8:
        return AppendNarrow<uint8_t>(static_cast<uint32_t>(value));
      case DataType::kUint16:
        return AppendNarrow<uint16_t>(static_cast<uint32_t>(value));
      case DataType::kInt32:
      case DataType::kUint32:
        Append(static_cast<uint32_t>(value), bytes);
        return true;
      default:
        Append(value, bytes);
        return true;
    }
  }
  bool OnFixed(uint32_t /*field*/, WireReader run, size_t /*width*/) {
    run.AppendRest(bytes);
    return true;
  }
  bool OnBytes(WireReader run) {
    Append(static_cast<uint32_t>(run.remaining()), bytes);
    run.AppendRest(bytes);
    return true;
  }
};

}  // namespace

bool AddContents(WireReader range, int depth, TypedContents& contents) {
  contents.present = true;
  contents.ranges.push_back(range);
  Counter counter{contents.element_counts};
  return Walk(range, depth, counter);
}

absl::string_view ContentsFieldName(DataType type) { return kFieldNames[FieldOf(type)]; }

absl::Status DecodeContents(const TypedContents& contents, DataType type, int64_t expected_count, std::string& bytes) {
  const Field field = FieldOf(type);
  if (field == kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat(WireName(type), " has no field in contents; send it in raw_input_contents"));
  }
  for (uint32_t other = kBool; other <= kBytes; ++other) {
    if (other != field && contents.element_counts[other] > 0) {
      return absl::InvalidArgumentError(absl::StrCat("expected only ", kFieldNames[field],
                                                     " to be filled for datatype ", WireName(type),
                                                     ", got elements in ", kFieldNames[other]));
    }
  }
  const size_t count = contents.element_counts[field];
  if (expected_count < 0 || count != static_cast<size_t>(expected_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", expected_count, " elements in ", kFieldNames[field], ", got ", count));
  }
  bytes.clear();
  bytes.reserve(count * ElementBytes(type));
  Decoder decoder{type, bytes, {}};
  for (const WireReader& range : contents.ranges) {
    if (!Walk(range, kMaxWireDepth, decoder)) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", decoder.out_of_range, " in ", kFieldNames[field], " does not fit ", WireName(type)));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::rpc
