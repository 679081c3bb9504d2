// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/infer_request.h"

namespace sluice::rpc {

using server::Bytes;

/// Depth of nested messages and groups that is read; protobuf's own limit.
inline constexpr int kMaxWireDepth = 100;

/// Wire types of protobuf's encoding, as in the low three bits of a tag.
enum class WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

constexpr uint32_t MakeTag(uint32_t field, WireType type) { return field << 3 | static_cast<uint32_t>(type); }

/// Reads protobuf's encoding from a message that lies in several chunks, without joining them. Purpose: exactly what
/// protobuf's own C++ parser accepts, no more. Bounds: never reads past its range; each Read fails instead. Ownership:
/// a view; chunks and bytes must outlive it and all pieces it returns. Copies are cheap. Threads: none of its own.
/// Errors: a false return leaves the reader at an unspecified position; give up the message then.
class WireReader {
 public:
  WireReader() = default;
  explicit WireReader(std::span<const Bytes> chunks);

  bool done() const { return remaining_ == 0; }
  size_t remaining() const { return remaining_; }

  /// At most five bytes, as protobuf; bits above the 32nd are dropped.
  [[nodiscard]] bool ReadTag(uint32_t& tag);
  /// At most ten bytes; bits above the 64th are dropped.
  [[nodiscard]] bool ReadVarint(uint64_t& value) {
    if (remaining_ > 0) {
      const auto byte = static_cast<uint8_t>((*chunk_)[offset_]);
      if (byte < 0x80) {
        value = byte;
        Advance(1);
        return true;
      }
    }
    return ReadLongVarint(value);
  }
  /// A length prefix of at most five bytes that is no longer than what remains after it.
  [[nodiscard]] bool ReadLength(size_t& length);
  [[nodiscard]] bool ReadFixed32(uint32_t& value) { return ReadBytes(&value, sizeof(value)); }
  [[nodiscard]] bool ReadFixed64(uint64_t& value) { return ReadBytes(&value, sizeof(value)); }
  /// Copies `count` bytes to `target`.
  [[nodiscard]] bool ReadBytes(void* target, size_t count);
  /// Length prefix and text; replaces `text`. Fails on invalid UTF-8.
  [[nodiscard]] bool ReadString(std::string& text);
  /// Length prefix and bytes, left where they are; appends to `pieces`, none of them empty.
  [[nodiscard]] bool ReadPieces(std::vector<Bytes>& pieces);
  /// Length prefix; `nested` reads that range and this reader goes on behind it.
  [[nodiscard]] bool ReadNested(WireReader& nested);
  /// Skips the field whose tag was just read. `depth` is how many groups may be nested in it.
  [[nodiscard]] bool SkipField(uint32_t tag, int depth);
  /// Appends all that remains to `target`.
  void AppendRest(std::string& target);

 private:
  [[nodiscard]] bool ReadLongVarint(uint64_t& value);
  [[nodiscard]] bool SkipGroup(uint32_t start_tag, int depth);
  [[nodiscard]] bool Skip(size_t count);
  /// `count` must not exceed remaining_. Keeps the invariant: while something remains, offset_ is inside *chunk_.
  void Advance(size_t count) {
    remaining_ -= count;
    offset_ += count;
    while (remaining_ > 0 && offset_ >= chunk_->size()) {
      offset_ -= chunk_->size();
      ++chunk_;
    }
  }
  /// The bytes at the current position that lie in one chunk, at most `count`; at least one while something remains.
  Bytes Front(size_t count) const;

  const Bytes* chunk_ = nullptr;
  size_t offset_ = 0;
  size_t remaining_ = 0;
};

}  // namespace sluice::rpc
