// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::model {

using ByteSpan = std::span<const std::byte>;

/// How protobuf's wire format stores a field. Groups (3 and 4) are refused.
enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

/// One field of a message as it stands in the file.
struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t scalar = 0;     ///< Varint and fixed fields: the raw bits.
  ByteSpan bytes;          ///< Length-delimited fields: the content, in place.
  size_t offset = 0;       ///< Of the field's tag, from the start of the file.
  size_t data_offset = 0;  ///< Of the content.
};

/// Reads the fields of one protobuf message in order, in place. Purpose: the only code that touches untrusted bytes of
/// a model file's structure. Bounds: reads within the span only; allocates nothing. Errors: INVALID_ARGUMENT with the
/// byte offset; after an error the reader must not be used further.
class WireReader {
 public:
  /// `file_offset` is where `message` begins in its file; it serves error messages only.
  WireReader(ByteSpan message, size_t file_offset) : message_(message), file_offset_(file_offset) {}
  bool done() const { return position_ == message_.size(); }
  absl::StatusOr<WireField> Next();

 private:
  absl::StatusOr<uint64_t> ReadVarint();
  absl::StatusOr<uint64_t> ReadFixed(size_t byte_count);

  const ByteSpan message_;
  const size_t file_offset_;
  size_t position_ = 0;
};

/// INVALID_ARGUMENT "byte <offset>: <field>: <what>".
absl::Status WireError(size_t offset, absl::string_view field, absl::string_view what);

// Typed access to one field. `path` names the field for people ("graph.node.name"). Each refuses another wire type.
absl::StatusOr<int64_t> FieldInt(const WireField& field, absl::string_view path);
absl::StatusOr<float> FieldFloat(const WireField& field, absl::string_view path);
absl::StatusOr<ByteSpan> FieldBytes(const WireField& field, absl::string_view path);
/// Bytes that must be UTF-8 and no longer than `max_bytes`.
absl::StatusOr<std::string> FieldText(const WireField& field, absl::string_view path, size_t max_bytes);

// Repeated numbers, packed or not: appends to `out`, refusing to grow it beyond `max_count`.
absl::Status AppendInts(const WireField& field, absl::string_view path, size_t max_count, std::vector<int64_t>& out);
absl::Status AppendFloats(const WireField& field, absl::string_view path, size_t max_count, std::vector<float>& out);
absl::Status AppendDoubles(const WireField& field, absl::string_view path, size_t max_count, std::vector<double>& out);

/// True when `bytes` is well-formed UTF-8 without NUL.
bool IsValidText(absl::string_view bytes);

}  // namespace sluice::model
