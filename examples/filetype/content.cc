// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/filetype/content.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::filetype {
namespace {

// Exactly these six, whatever the locale.
constexpr char kWhiteSpace[] = " \t\n\r\v\f";

absl::string_view WithoutLeadingSpace(absl::string_view bytes) {
  const size_t first = bytes.find_first_not_of(kWhiteSpace);
  return first == absl::string_view::npos ? absl::string_view() : bytes.substr(first);
}

absl::string_view WithoutTrailingSpace(absl::string_view bytes) {
  const size_t last = bytes.find_last_not_of(kWhiteSpace);
  return last == absl::string_view::npos ? absl::string_view() : bytes.substr(0, last + 1);
}

void AppendBytes(absl::string_view bytes, std::vector<int32_t>& features) {
  for (const char c : bytes) features.push_back(static_cast<unsigned char>(c));
}

Verdict WithoutModel(absl::string_view type) { return {std::string(type), "", 1.0}; }

// Length of the well-formed sequence at the front, 0 when there is none.
size_t Utf8SequenceLength(absl::string_view bytes) {
  const auto at = [bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  }
  if (length == 0 || bytes.size() < length || at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return length;
}

absl::StatusOr<Ends> ReadEnds(const Rules& rules, const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be opened"));
  const auto size = static_cast<size_t>(std::max<std::streamoff>(0, file.tellg()));
  const size_t length = std::min(size, rules.block_size);
  Ends ends{std::string(length, '\0'), std::string(length, '\0')};
  file.seekg(0);
  file.read(ends.begin.data(), static_cast<std::streamsize>(length));
  file.seekg(static_cast<std::streamoff>(size - length));
  file.read(ends.end.data(), static_cast<std::streamsize>(length));
  if (!file) return absl::DataLossError(absl::StrCat(path, ": cannot be read"));
  return ends;
}

}  // namespace

bool IsUtf8(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8SequenceLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

Prepared Prepare(const Rules& rules, const Ends& ends) {
  if (ends.begin.empty()) return {WithoutModel("empty"), {}};
  const absl::string_view begin = WithoutLeadingSpace(ends.begin).substr(0, rules.begin_size);
  // Stripping counts too: a file of many blanks and three letters says as little as one of three letters.
  if (begin.size() < rules.min_size) return {WithoutModel(IsUtf8(ends.begin) ? "txt" : "unknown"), {}};
  absl::string_view end = WithoutTrailingSpace(ends.end);
  end.remove_prefix(end.size() - std::min(end.size(), rules.end_size));

  Prepared prepared;
  prepared.features.reserve(rules.begin_size + rules.end_size);
  AppendBytes(begin, prepared.features);
  prepared.features.resize(rules.begin_size + rules.end_size - end.size(), rules.padding);
  AppendBytes(end, prepared.features);
  return prepared;
}

absl::StatusOr<Prepared> PrepareFile(const Rules& rules, const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (S_ISDIR(facts.st_mode)) return Prepared{WithoutModel("directory"), {}};
  if (!S_ISREG(facts.st_mode)) return Prepared{WithoutModel("unknown"), {}};
  SLUICE_ASSIGN_OR_RETURN(const Ends ends, ReadEnds(rules, path));
  return Prepare(rules, ends);
}

}  // namespace sluice::filetype
