// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/rpc/quote.h"

namespace sluice::rpc {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian and is copied as it is");

WireReader::WireReader(std::span<const Bytes> chunks) : chunk_(chunks.data()) {
  for (const Bytes& chunk : chunks) remaining_ += chunk.size();
  Advance(0);
}

Bytes WireReader::Front(size_t count) const {
  return chunk_->subspan(offset_, std::min({count, remaining_, chunk_->size() - offset_}));
}

bool WireReader::ReadLongVarint(uint64_t& value) {
  uint64_t result = 0;
  for (int i = 0; i < 10; ++i) {
    if (remaining_ == 0) return false;
    const auto byte = static_cast<uint64_t>((*chunk_)[offset_]);
    Advance(1);
    result |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      value = result;
      return true;
    }
  }
  return false;
}

bool WireReader::ReadTag(uint32_t& tag) {
  const size_t before = remaining_;
  uint64_t value = 0;
  if (!ReadVarint(value) || before - remaining_ > 5) return false;
  tag = static_cast<uint32_t>(value);
  return true;
}

bool WireReader::ReadLength(size_t& length) {
  const size_t before = remaining_;
  uint64_t value = 0;
  if (!ReadVarint(value) || before - remaining_ > 5 || value > remaining_) return false;
  length = static_cast<size_t>(value);
  return true;
}

bool WireReader::ReadBytes(void* target, size_t count) {
  if (count > remaining_) return false;
  auto* out = static_cast<std::byte*>(target);
  while (count > 0) {
    const Bytes front = Front(count);
    std::memcpy(out, front.data(), front.size());
    out += front.size();
    count -= front.size();
    Advance(front.size());
  }
  return true;
}

bool WireReader::ReadString(std::string& text) {
  size_t length = 0;
  if (!ReadLength(length)) return false;
  text.resize(length);
  return ReadBytes(text.data(), length) && IsValidUtf8(text);
}

bool WireReader::ReadPieces(std::vector<Bytes>& pieces) {
  size_t length = 0;
  if (!ReadLength(length)) return false;
  while (length > 0) {
    const Bytes front = Front(length);
    pieces.push_back(front);
    length -= front.size();
    Advance(front.size());
  }
  return true;
}

bool WireReader::ReadNested(WireReader& nested) {
  size_t length = 0;
  if (!ReadLength(length)) return false;
  nested = *this;
  nested.remaining_ = length;
  Advance(length);
  return true;
}

void WireReader::AppendRest(std::string& target) {
  while (remaining_ > 0) {
    const Bytes front = Front(remaining_);
    target.append(reinterpret_cast<const char*>(front.data()), front.size());
    Advance(front.size());
  }
}

bool WireReader::Skip(size_t count) {
  if (count > remaining_) return false;
  Advance(count);
  return true;
}

bool WireReader::SkipField(uint32_t tag, int depth) {
  if (tag >> 3 == 0) return false;
  switch (static_cast<WireType>(tag & 7)) {
    case WireType::kVarint: {
      uint64_t value = 0;
      return ReadVarint(value);
    }
    case WireType::kFixed64:
      return Skip(8);
    case WireType::kLengthDelimited: {
      size_t length = 0;
      return ReadLength(length) && Skip(length);
    }
    case WireType::kStartGroup:
      return SkipGroup(tag, depth);
    case WireType::kFixed32:
      return Skip(4);
    case WireType::kEndGroup:
      return false;
  }
  return false;
}

bool WireReader::SkipGroup(uint32_t start_tag, int depth) {
  if (depth <= 0) return false;
  while (!done()) {
    uint32_t tag = 0;
    if (!ReadTag(tag)) return false;
    if (static_cast<WireType>(tag & 7) == WireType::kEndGroup) return tag == start_tag + 1;
    if (!SkipField(tag, depth - 1)) return false;
  }
  return false;
}

}  // namespace sluice::rpc
