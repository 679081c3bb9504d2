// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/wire.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::model {
namespace {

constexpr uint32_t kMaxFieldNumber = (1u << 29) - 1;

/// Bytes of the UTF-8 sequence at the start of `text`, or 0 when it is not well formed (overlong forms, surrogates and
/// values above U+10FFFF included).
size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead < 0xF0) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) >= 0xA0) return 0;
    return 3;
  }
  if (lead > 0xF4 || !continues(1) || !continues(2) || !continues(3)) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;
  return 4;
}

/// Appends little-endian numbers of type Number, from a packed field or a single one.
template <class Number, WireType kSingle>
absl::Status AppendFixed(const WireField& field, absl::string_view path, size_t max_count, std::vector<Number>& out) {
  if (field.type == kSingle) {
    if (out.size() >= max_count) return WireError(field.offset, path, absl::StrCat("more than ", max_count, " values"));
    if constexpr (sizeof(Number) == 4) {
      out.push_back(std::bit_cast<Number>(static_cast<uint32_t>(field.scalar)));
    } else {
      out.push_back(std::bit_cast<Number>(field.scalar));
    }
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const ByteSpan bytes, FieldBytes(field, path));
  if (bytes.size() % sizeof(Number) != 0) return WireError(field.offset, path, "packed length is not whole numbers");
  const size_t count = bytes.size() / sizeof(Number);
  if (count > max_count - out.size()) {
    return WireError(field.offset, path, absl::StrCat("more than ", max_count, " values"));
  }
  const size_t start = out.size();
  out.resize(start + count);
  if (count > 0) std::memcpy(out.data() + start, bytes.data(), bytes.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status WireError(size_t offset, absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("byte ", offset, ": ", field, ": ", what));
}

absl::StatusOr<uint64_t> WireReader::ReadVarint() {
  uint64_t value = 0;
  const size_t start = position_;
  for (int shift = 0; shift < 70; shift += 7) {
    if (position_ == message_.size()) return WireError(file_offset_ + start, "varint", "the message ends inside it");
    const auto byte = static_cast<uint64_t>(message_[position_++]);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return WireError(file_offset_ + start, "varint", "longer than 64 bits");
}

absl::StatusOr<uint64_t> WireReader::ReadFixed(size_t byte_count) {
  if (message_.size() - position_ < byte_count) {
    return WireError(file_offset_ + position_, "fixed-width number", "the message ends inside it");
  }
  uint64_t value = 0;
  for (size_t i = 0; i < byte_count; ++i) value |= static_cast<uint64_t>(message_[position_ + i]) << (8 * i);
  position_ += byte_count;
  return value;
}

absl::StatusOr<WireField> WireReader::Next() {
  WireField field;
  field.offset = file_offset_ + position_;
  SLUICE_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
  const uint64_t number = tag >> 3;
  if (number == 0 || number > kMaxFieldNumber) return WireError(field.offset, "tag", "not a field number");
  field.number = static_cast<uint32_t>(number);
  switch (tag & 7) {
    case 0: {
      field.type = WireType::kVarint;
      SLUICE_ASSIGN_OR_RETURN(field.scalar, ReadVarint());
      break;
    }
    case 1: {
      field.type = WireType::kFixed64;
      SLUICE_ASSIGN_OR_RETURN(field.scalar, ReadFixed(8));
      break;
    }
    case 5: {
      field.type = WireType::kFixed32;
      SLUICE_ASSIGN_OR_RETURN(field.scalar, ReadFixed(4));
      break;
    }
    case 2: {
      field.type = WireType::kLength;
      SLUICE_ASSIGN_OR_RETURN(const uint64_t length, ReadVarint());
      if (length > message_.size() - position_) {
        return WireError(field.offset, absl::StrCat("field ", number),
                         absl::StrCat("length ", length, " reaches beyond its message"));
      }
      field.bytes = message_.subspan(position_, static_cast<size_t>(length));
      field.data_offset = file_offset_ + position_;
      position_ += static_cast<size_t>(length);
      break;
    }
    default:
      return WireError(field.offset, absl::StrCat("field ", number), absl::StrCat("wire type ", tag & 7));
  }
  return field;
}

absl::StatusOr<int64_t> FieldInt(const WireField& field, absl::string_view path) {
  if (field.type != WireType::kVarint) return WireError(field.offset, path, "expected an integer");
  return static_cast<int64_t>(field.scalar);
}

absl::StatusOr<float> FieldFloat(const WireField& field, absl::string_view path) {
  if (field.type != WireType::kFixed32) return WireError(field.offset, path, "expected a float");
  return std::bit_cast<float>(static_cast<uint32_t>(field.scalar));
}

absl::StatusOr<ByteSpan> FieldBytes(const WireField& field, absl::string_view path) {
  if (field.type != WireType::kLength) return WireError(field.offset, path, "expected bytes");
  return field.bytes;
}

absl::StatusOr<std::string> FieldText(const WireField& field, absl::string_view path, size_t max_bytes) {
  SLUICE_ASSIGN_OR_RETURN(const ByteSpan bytes, FieldBytes(field, path));
  if (bytes.size() > max_bytes) {
    return WireError(field.offset, path, absl::StrCat(bytes.size(), " bytes; at most ", max_bytes, " are allowed"));
  }
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!IsValidText(text)) return WireError(field.offset, path, "not UTF-8 text");
  return text;
}

absl::Status AppendInts(const WireField& field, absl::string_view path, size_t max_count, std::vector<int64_t>& out) {
  if (field.type == WireType::kVarint) {
    if (out.size() >= max_count) return WireError(field.offset, path, absl::StrCat("more than ", max_count, " values"));
    out.push_back(static_cast<int64_t>(field.scalar));
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const ByteSpan bytes, FieldBytes(field, path));
  // A packed field is a run of varints without tags: the last byte of each has its top bit clear.
  size_t position = 0;
  while (position < bytes.size()) {
    if (out.size() >= max_count) return WireError(field.offset, path, absl::StrCat("more than ", max_count, " values"));
    uint64_t value = 0;
    int shift = 0;
    while (true) {
      if (position == bytes.size() || shift > 63) {
        return WireError(field.data_offset + position, path, "malformed packed integer");
      }
      const auto byte = static_cast<uint64_t>(bytes[position++]);
      if (shift == 63 && byte > 1) return WireError(field.data_offset + position, path, "integer longer than 64 bits");
      value |= (byte & 0x7F) << shift;
      shift += 7;
      if ((byte & 0x80) == 0) break;
    }
    out.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

absl::Status AppendFloats(const WireField& field, absl::string_view path, size_t max_count, std::vector<float>& out) {
  return AppendFixed<float, WireType::kFixed32>(field, path, max_count, out);
}

absl::Status AppendDoubles(const WireField& field, absl::string_view path, size_t max_count, std::vector<double>& out) {
  return AppendFixed<double, WireType::kFixed64>(field, path, max_count, out);
}

bool IsValidText(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace sluice::model
