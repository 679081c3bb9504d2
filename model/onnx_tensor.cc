// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/onnx_tensor.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::model {
namespace {

// Field numbers of TensorProto and StringStringEntryProto.
constexpr uint32_t kDims = 1, kDataType = 2, kSegment = 3, kFloatData = 4, kInt32Data = 5, kStringData = 6,
                   kInt64Data = 7, kName = 8, kRawData = 9, kDoubleData = 10, kUint64Data = 11, kExternalData = 13,
                   kDataLocation = 14;
constexpr uint32_t kKey = 1, kValue = 2;
// TensorProto.DataLocation.
constexpr int64_t kLocationDefault = 0, kLocationExternal = 1;
constexpr size_t kMaxTypedValues = size_t{1} << 31;

/// A TensorProto as it was read, before its bytes are found.
struct RawTensor {
  ConstantTensor tensor;
  std::optional<ByteSpan> raw_data;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> int32s, int64s, uint64s;  // Wire varints; narrowed when the type is known.
  std::vector<std::pair<std::string, std::string>> external;
  int64_t location = kLocationDefault;
  size_t typed_count() const { return floats.size() + doubles.size() + int32s.size() + int64s.size() + uint64s.size(); }
};

absl::Status ParseExternalEntry(const WireField& field, RawTensor& raw) {
  SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "tensor.external_data"));
  if (raw.external.size() >= 16) return WireError(field.offset, "tensor.external_data", "more than 16 entries");
  WireReader reader(message, field.data_offset);
  std::pair<std::string, std::string> entry;
  while (!reader.done()) {
    SLUICE_ASSIGN_OR_RETURN(const WireField part, reader.Next());
    if (part.number == kKey) {
      SLUICE_ASSIGN_OR_RETURN(entry.first, FieldText(part, "tensor.external_data.key", kMaxNameBytes));
    } else if (part.number == kValue) {
      SLUICE_ASSIGN_OR_RETURN(entry.second, FieldText(part, "tensor.external_data.value", kMaxNameBytes));
    }
  }
  raw.external.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status ParseTensorField(const WireField& field, RawTensor& raw) {
  switch (field.number) {
    case kDims:
      return AppendInts(field, "tensor.dims", kMaxRank, raw.tensor.dims);
    case kDataType: {
      SLUICE_ASSIGN_OR_RETURN(const int64_t number, FieldInt(field, "tensor.data_type"));
      SLUICE_ASSIGN_OR_RETURN(raw.tensor.type, ElementTypeFromOnnx(number, field.offset, "tensor.data_type"));
      return absl::OkStatus();
    }
    case kSegment:
      return absl::UnimplementedError(absl::StrCat("byte ", field.offset, ": tensor.segment: not supported"));
    case kFloatData:
      return AppendFloats(field, "tensor.float_data", kMaxTypedValues, raw.floats);
    case kInt32Data:
      return AppendInts(field, "tensor.int32_data", kMaxTypedValues, raw.int32s);
    case kStringData:
      return absl::UnimplementedError(absl::StrCat("byte ", field.offset, ": tensor.string_data: not supported"));
    case kInt64Data:
      return AppendInts(field, "tensor.int64_data", kMaxTypedValues, raw.int64s);
    case kName: {
      SLUICE_ASSIGN_OR_RETURN(raw.tensor.name, FieldText(field, "tensor.name", kMaxNameBytes));
      return absl::OkStatus();
    }
    case kRawData: {
      SLUICE_ASSIGN_OR_RETURN(const ByteSpan bytes, FieldBytes(field, "tensor.raw_data"));
      if (raw.raw_data.has_value()) return WireError(field.offset, "tensor.raw_data", "given twice");
      raw.raw_data = bytes;
      return absl::OkStatus();
    }
    case kDoubleData:
      return AppendDoubles(field, "tensor.double_data", kMaxTypedValues, raw.doubles);
    case kUint64Data:
      return AppendInts(field, "tensor.uint64_data", kMaxTypedValues, raw.uint64s);
    case kExternalData:
      return ParseExternalEntry(field, raw);
    case kDataLocation: {
      SLUICE_ASSIGN_OR_RETURN(raw.location, FieldInt(field, "tensor.data_location"));
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();  // Documentation and fields newer than this reader.
  }
}

template <class Element, class Source>
std::vector<std::byte> Narrow(const std::vector<Source>& source) {
  std::vector<std::byte> bytes(source.size() * sizeof(Element));
  for (size_t i = 0; i < source.size(); ++i) {
    const Element element = static_cast<Element>(source[i]);
    std::memcpy(bytes.data() + i * sizeof(Element), &element, sizeof(Element));
  }
  return bytes;
}

/// The bytes of the typed field that belongs to the tensor's type. Only that field may hold values.
absl::StatusOr<std::vector<std::byte>> TypedBytes(const RawTensor& raw, size_t offset) {
  const auto only = [&](size_t count) { return count == raw.typed_count(); };
  switch (raw.tensor.type) {
    case DataType::kFp32:
      if (only(raw.floats.size())) return Narrow<float>(raw.floats);
      break;
    case DataType::kFp64:
      if (only(raw.doubles.size())) return Narrow<double>(raw.doubles);
      break;
    case DataType::kInt64:
      if (only(raw.int64s.size())) return Narrow<int64_t>(raw.int64s);
      break;
    case DataType::kUint32:
      if (only(raw.uint64s.size())) return Narrow<uint32_t>(raw.uint64s);
      break;
    case DataType::kUint64:
      if (only(raw.uint64s.size())) return Narrow<uint64_t>(raw.uint64s);
      break;
    case DataType::kInt32:
      if (only(raw.int32s.size())) return Narrow<int32_t>(raw.int32s);
      break;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFp16:
    case DataType::kBf16:
      if (only(raw.int32s.size())) return Narrow<uint16_t>(raw.int32s);
      break;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      if (only(raw.int32s.size())) return Narrow<uint8_t>(raw.int32s);
      break;
    default:
      break;
  }
  return WireError(offset, absl::StrCat("tensor '", raw.tensor.name, "'"),
                   absl::StrCat("its values are in a field that does not belong to ", WireName(raw.tensor.type)));
}

namespace fs = std::filesystem;

absl::Status RefuseLocation(const std::string& location, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("external data '", location, "': ", why));
}

absl::Status NoSuchData(const std::string& location) {
  return absl::NotFoundError(absl::StrCat("external data '", location, "': no such file beside the model"));
}

/// It must be relative and must not climb.
absl::Status CheckLocation(const std::string& directory, const std::string& location) {
  if (directory.empty()) return RefuseLocation(location, "not allowed here");
  if (location.empty()) return RefuseLocation(location, "no location");
  const fs::path relative(location);
  if (relative.is_absolute()) return RefuseLocation(location, "the path is absolute");
  for (const fs::path& part : relative) {
    if (part == "..") return RefuseLocation(location, "the path leaves the model's directory");
  }
  return absl::OkStatus();
}

/// Finds `location` below `directory` on disk. Links must not lead out.
absl::StatusOr<std::string> ResolveExternal(const std::string& directory, const std::string& location) {
  std::error_code error;
  const fs::path root = fs::canonical(directory, error);
  if (error) return RefuseLocation(location, "the model's directory cannot be resolved");
  const fs::path full = fs::canonical(root / location, error);
  if (error) return NoSuchData(location);
  const fs::path back = full.lexically_relative(root);
  if (back.empty() || *back.begin() == "..") {
    return RefuseLocation(location, "a link leads out of the model's directory");
  }
  return full.string();
}

/// The whole file at `location` below `directory`.
absl::StatusOr<ByteSpan> ExternalFile(const std::string& directory, const std::string& location, OnnxFile& file) {
  SLUICE_RETURN_IF_ERROR(CheckLocation(directory, location));
  if (file.given != nullptr) {
    const auto found = file.given->find((fs::path(directory) / location).lexically_normal().string());
    if (found == file.given->end()) return NoSuchData(location);
    return std::as_bytes(std::span(found->second));
  }
  auto known = file.external.find(location);
  if (known == file.external.end()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string path, ResolveExternal(directory, location));
    SLUICE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
    known = file.external.emplace(location, std::move(mapping)).first;
  }
  return known->second.bytes();
}

absl::StatusOr<ByteSpan> ExternalBytes(const RawTensor& raw, size_t expected_bytes, const std::string& directory,
                                       OnnxFile& file) {
  std::string location;
  uint64_t offset = 0;
  uint64_t length = expected_bytes;
  for (const auto& [key, value] : raw.external) {
    if (key == "location") location = value;
    if (key == "offset" && !absl::SimpleAtoi(value, &offset)) {
      return absl::InvalidArgumentError(absl::StrCat("external data: offset '", value, "' is not a number"));
    }
    if (key == "length" && !absl::SimpleAtoi(value, &length)) {
      return absl::InvalidArgumentError(absl::StrCat("external data: length '", value, "' is not a number"));
    }
  }
  if (length != expected_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data: length ", length, ", the dimensions need ", expected_bytes));
  }
  SLUICE_ASSIGN_OR_RETURN(const ByteSpan bytes, ExternalFile(directory, location, file));
  if (offset > bytes.size() || length > bytes.size() - offset) {
    return absl::InvalidArgumentError(absl::StrCat("external data '", location, "': bytes ", offset, " to ",
                                                   offset + length, " of a file of ", bytes.size()));
  }
  return bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
}

}  // namespace

absl::StatusOr<DataType> ElementTypeFromOnnx(int64_t number, size_t offset, absl::string_view path) {
  constexpr int64_t kOnnxString = 8;
  switch (number) {
    case 1:
      return DataType::kFp32;
    case 2:
      return DataType::kUint8;
    case 3:
      return DataType::kInt8;
    case 4:
      return DataType::kUint16;
    case 5:
      return DataType::kInt16;
    case 6:
      return DataType::kInt32;
    case 7:
      return DataType::kInt64;
    case 9:
      return DataType::kBool;
    case 10:
      return DataType::kFp16;
    case 11:
      return DataType::kFp64;
    case 12:
      return DataType::kUint32;
    case 13:
      return DataType::kUint64;
    case 16:
      return DataType::kBf16;
    default:
      return absl::UnimplementedError(absl::StrCat("byte ", offset, ": ", path, ": element type ", number,
                                                   number == kOnnxString ? " (STRING)" : "", " is not supported"));
  }
}

absl::StatusOr<ConstantTensor> ParseTensor(ByteSpan message, size_t offset, const std::string& directory,
                                           OnnxFile& file) {
  RawTensor raw;
  WireReader reader(message, offset);
  while (!reader.done()) {
    SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    SLUICE_RETURN_IF_ERROR(ParseTensorField(field, raw));
  }
  ConstantTensor& tensor = raw.tensor;
  const std::string path = absl::StrCat("tensor '", tensor.name, "'");
  if (tensor.type == DataType::kInvalid) return WireError(offset, path, "no element type");
  auto count = ElementCount(tensor.dims);
  if (!count.ok()) return WireError(offset, path, count.status().message());
  const size_t expected_bytes = static_cast<size_t>(*count) * ElementBytes(tensor.type);
  if (raw.location != kLocationDefault && raw.location != kLocationExternal) {
    return WireError(offset, path, "unknown data location");
  }
  if (raw.location == kLocationExternal) {
    if (raw.raw_data.has_value() || raw.typed_count() > 0) return WireError(offset, path, "both external and inline");
    auto bytes = ExternalBytes(raw, expected_bytes, directory, file);
    if (!bytes.ok()) {
      return absl::Status(bytes.status().code(),
                          absl::StrCat("byte ", offset, ": ", path, ": ", bytes.status().message()));
    }
    tensor.bytes = *bytes;
  } else if (raw.raw_data.has_value()) {
    if (raw.typed_count() > 0) return WireError(offset, path, "both raw and typed values");
    tensor.bytes = *raw.raw_data;
  } else {
    SLUICE_ASSIGN_OR_RETURN(std::vector<std::byte> bytes, TypedBytes(raw, offset));
    file.owned.push_back(std::move(bytes));
    tensor.bytes = file.owned.back();
  }
  if (tensor.bytes.size() != expected_bytes) {
    return WireError(offset, path,
                     absl::StrCat(tensor.bytes.size(), " bytes of values; the dimensions need ", expected_bytes));
  }
  return std::move(tensor);
}

absl::StatusOr<int64_t> ElementCount(const Shape& dims) {
  // The bound holds for the product of any of the dimensions, so a zero elsewhere cannot hide an overflow.
  int64_t bound = 1;
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " is negative"));
    if (dim > kMaxElements / bound) {
      return absl::InvalidArgumentError("more elements than any tensor here may have");
    }
    bound *= std::max<int64_t>(dim, 1);
    count *= dim;
  }
  return count;
}

}  // namespace sluice::model
