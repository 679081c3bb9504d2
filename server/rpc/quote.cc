// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/quote.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::rpc {
namespace {

constexpr size_t kNameLimit = 64;

bool IsContinuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/// Length of the well-formed character at the start of `text`; 0 when there is none.
size_t CharacterLength(absl::string_view text) {
  const auto at = [&text](size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!IsContinuation(at(i))) return 0;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  while (!text.empty()) {
    // Names are nearly always ASCII: eight bytes at a time.
    while (text.size() >= 8) {
      uint64_t word = 0;
      __builtin_memcpy(&word, text.data(), sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      text.remove_prefix(8);
    }
    if (text.empty()) return true;
    const size_t length = CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

absl::string_view CutUtf8(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && limit - end < 3 && IsContinuation(static_cast<unsigned char>(text[end]))) --end;
  return text.substr(0, end);
}

std::string EscapeName(absl::string_view name) {
  const absl::string_view cut = CutUtf8(name, kNameLimit);
  std::string escaped = IsValidUtf8(cut) ? absl::Utf8SafeCEscape(cut) : absl::CHexEscape(cut);
  if (cut.size() < name.size()) escaped += "...";
  return escaped;
}

std::string Quote(absl::string_view name) { return absl::StrCat("'", EscapeName(name), "'"); }

std::string Printable(absl::string_view text, size_t limit) {
  absl::string_view rest = CutUtf8(text, limit);
  std::string result;
  result.reserve(rest.size());
  while (!rest.empty()) {
    const size_t length = CharacterLength(rest);
    const auto lead = static_cast<unsigned char>(rest[0]);
    if (length == 0 || lead < 0x20 || lead == 0x7F) {
      result += '?';
      rest.remove_prefix(1);
      continue;
    }
    result.append(rest.data(), length);
    rest.remove_prefix(length);
  }
  return result;
}

}  // namespace sluice::rpc
