// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/npy_header.h"

#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";

struct NpyType {
  absl::string_view name;
  DataType type;
};
constexpr std::array<NpyType, 12> kNpyTypes = {{
    {"|b1", DataType::kBool},
    {"|u1", DataType::kUint8},
    {"<u2", DataType::kUint16},
    {"<u4", DataType::kUint32},
    {"<u8", DataType::kUint64},
    {"|i1", DataType::kInt8},
    {"<i2", DataType::kInt16},
    {"<i4", DataType::kInt32},
    {"<i8", DataType::kInt64},
    {"<f2", DataType::kFp16},
    {"<f4", DataType::kFp32},
    {"<f8", DataType::kFp64},
}};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed .npy header: ", what));
}

// The header is a Python dictionary literal. Only what NumPy itself writes is understood: three known keys whose values
// are a string, True or False, and a tuple of whole numbers.
class HeaderReader {
 public:
  explicit HeaderReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Read() {
    if (!Take('{')) return Malformed("does not begin with '{'");
    while (!Take('}')) {
      SLUICE_ASSIGN_OR_RETURN(const std::string key, ReadString());
      if (!Take(':')) return Malformed(absl::StrCat("no ':' after '", key, "'"));
      SLUICE_RETURN_IF_ERROR(ReadValue(key));
      if (!Take(',') && Peek() != '}') return Malformed("no ',' between its entries");
    }
    if (Peek() != '\0') return Malformed("text follows its '}'");
    if (header_.type == DataType::kInvalid || !shape_seen_ || !order_seen_) {
      return Malformed("lacks descr, fortran_order or shape");
    }
    return std::move(header_);
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool TakeWord(absl::string_view word) {
    SkipSpace();
    if (!absl::StartsWith(text_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }

  absl::StatusOr<std::string> ReadString() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Malformed("a string was expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == absl::string_view::npos) return Malformed("a string has no end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  absl::Status ReadValue(absl::string_view key) {
    if (key == "descr") return ReadType();
    if (key == "shape") return ReadShape();
    if (key != "fortran_order") return Malformed(absl::StrCat("unknown key '", key, "'"));
    order_seen_ = true;
    if (TakeWord("False")) return absl::OkStatus();
    if (TakeWord("True")) return absl::InvalidArgumentError("the array is in Fortran order; save it in C order");
    return Malformed("fortran_order is neither True nor False");
  }

  absl::Status ReadType() {
    if (Peek() == '[') return absl::InvalidArgumentError("arrays of records are not supported");
    SLUICE_ASSIGN_OR_RETURN(const std::string name, ReadString());
    if (absl::StartsWith(name, ">")) {
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' is big-endian; save it little-endian"));
    }
    for (const NpyType& entry : kNpyTypes) {
      if (entry.name == name) header_.type = entry.type;
    }
    if (header_.type == DataType::kInvalid) {
      return absl::InvalidArgumentError(absl::StrCat("element type '", name, "' is not supported"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadShape() {
    if (!Take('(')) return Malformed("shape is no tuple");
    shape_seen_ = true;
    while (!Take(')')) {
      SkipSpace();
      size_t end = at_;
      while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
      int64_t dimension = 0;
      if (!absl::SimpleAtoi(text_.substr(at_, end - at_), &dimension)) return Malformed("shape has a bad dimension");
      if (header_.shape.size() == 32) return Malformed("more than 32 dimensions");
      header_.shape.push_back(dimension);
      at_ = end;
      if (!Take(',') && Peek() != ')') return Malformed("shape has no ',' between dimensions");
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  size_t at_ = 0;
  bool shape_seen_ = false;
  bool order_seen_ = false;
  NpyHeader header_;
};

size_t ReadLittleEndian(absl::string_view bytes) {
  size_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view file) {
  if (!absl::StartsWith(file, kMagic)) return absl::InvalidArgumentError("not a .npy file (no NUMPY mark)");
  const size_t version_at = kMagic.size();
  if (file.size() < version_at + 2) return Malformed("cut short");
  const int version = static_cast<unsigned char>(file[version_at]);
  if (version < 1 || version > 3) {
    return absl::InvalidArgumentError(absl::StrCat(".npy format version ", version, " is not known"));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t text_at = version_at + 2 + length_bytes;
  if (file.size() < text_at) return Malformed("cut short");
  const size_t length = ReadLittleEndian(file.substr(version_at + 2, length_bytes));
  if (file.size() - text_at < length) return Malformed("cut short");
  SLUICE_ASSIGN_OR_RETURN(NpyHeader header, HeaderReader(file.substr(text_at, length)).Read());
  header.data_offset = text_at + length;
  return header;
}

}  // namespace sluice::client
