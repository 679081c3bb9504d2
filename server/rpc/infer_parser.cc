// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/infer_parser.h"

#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::rpc {

using server::ParseLimits;

namespace {

constexpr auto kVarint = WireType::kVarint;
constexpr auto kFixed64 = WireType::kFixed64;
constexpr auto kDelimited = WireType::kLengthDelimited;

absl::Status Malformed(absl::string_view where) {
  return absl::InvalidArgumentError(absl::StrCat("the message is not a valid ModelInferRequest: malformed ", where));
}

absl::Status TooMany(absl::string_view what, size_t limit) {
  return absl::InvalidArgumentError(absl::StrCat("the message has more than ", limit, " ", what));
}

absl::Status CheckLength(absl::string_view field, absl::string_view text, const ParseLimits& limits) {
  if (text.size() <= limits.name_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at most ", limits.name_bytes, " bytes (--max-name-bytes), got ", text.size()));
}

absl::Status ParseShape(uint32_t tag, WireReader& reader, size_t limit, std::vector<int64_t>& shape) {
  WireReader run;
  uint64_t value = 0;
  if (tag == MakeTag(3, kVarint)) {
    if (!reader.ReadVarint(value)) return Malformed("shape");
    if (shape.size() == limit) return TooMany("dimensions in one shape", limit);
    shape.push_back(static_cast<int64_t>(value));
    return absl::OkStatus();
  }
  if (!reader.ReadNested(run)) return Malformed("shape");
  while (!run.done()) {
    if (!run.ReadVarint(value)) return Malformed("shape");
    if (shape.size() == limit) return TooMany("dimensions in one shape", limit);
    shape.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

bool ParseParameterValue(WireReader reader, int depth, ParameterValue& value) {
  while (!reader.done()) {
    uint32_t tag = 0;
    uint64_t number = 0;
    if (!reader.ReadTag(tag)) return false;
    switch (tag) {
      case MakeTag(1, kVarint):
        if (!reader.ReadVarint(number)) return false;
        value = number != 0;
        break;
      case MakeTag(2, kVarint):
        if (!reader.ReadVarint(number)) return false;
        value = static_cast<int64_t>(number);
        break;
      case MakeTag(3, kDelimited): {
        std::string text;
        if (!reader.ReadString(text)) return false;
        value = std::move(text);
        break;
      }
      case MakeTag(4, kFixed64):
        if (!reader.ReadFixed64(number)) return false;
        value = std::bit_cast<double>(number);
        break;
      case MakeTag(5, kVarint):
        if (!reader.ReadVarint(number)) return false;
        value = number;
        break;
      default:
        if (!reader.SkipField(tag, depth)) return false;
    }
  }
  return true;
}

/// One entry of a map: a message of key and value. A later entry with the same key replaces an earlier one.
absl::Status ParseParameter(WireReader& reader, int depth, const ParseLimits& limits, Parameters& parameters) {
  WireReader entry;
  if (!reader.ReadNested(entry)) return Malformed("parameters");
  std::string key;
  ParameterValue value;
  while (!entry.done()) {
    uint32_t tag = 0;
    WireReader nested;
    if (!entry.ReadTag(tag)) return Malformed("parameters");
    if (tag == MakeTag(1, kDelimited)) {
      if (!entry.ReadString(key)) return Malformed("parameters");
    } else if (tag == MakeTag(2, kDelimited)) {
      if (!entry.ReadNested(nested) || !ParseParameterValue(nested, depth - 2, value)) return Malformed("parameters");
    } else if (!entry.SkipField(tag, depth - 1)) {
      return Malformed("parameters");
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckLength("parameters", key, limits));
  if (parameters.size() == limits.parameters && !parameters.contains(key)) {
    return TooMany("parameters", limits.parameters);
  }
  parameters.insert_or_assign(std::move(key), std::move(value));
  return absl::OkStatus();
}

absl::Status ParseInput(WireReader reader, int depth, const ParseLimits& limits, ParsedInput& input) {
  while (!reader.done()) {
    uint32_t tag = 0;
    if (!reader.ReadTag(tag)) return Malformed("inputs");
    switch (tag) {
      case MakeTag(1, kDelimited):
        if (!reader.ReadString(input.name)) return Malformed("inputs.name");
        break;
      case MakeTag(2, kDelimited):
        if (!reader.ReadString(input.datatype)) return Malformed("inputs.datatype");
        break;
      case MakeTag(3, kVarint):
      case MakeTag(3, kDelimited):
        SLUICE_RETURN_IF_ERROR(ParseShape(tag, reader, limits.dimensions, input.shape));
        break;
      case MakeTag(4, kDelimited):
        SLUICE_RETURN_IF_ERROR(ParseParameter(reader, depth, limits, input.parameters));
        break;
      case MakeTag(5, kDelimited): {
        WireReader range;
        if (input.contents.ranges.size() == kMaxContentsRanges) {
          return TooMany("occurrences of contents in one input", kMaxContentsRanges);
        }
        if (!reader.ReadNested(range) || !AddContents(range, depth - 1, input.contents)) {
          return Malformed("inputs.contents");
        }
        break;
      }
      default:
        if (!reader.SkipField(tag, depth)) return Malformed("inputs");
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckLength("inputs.name", input.name, limits));
  return CheckLength("inputs.datatype", input.datatype, limits);
}

absl::Status ParseOutput(WireReader reader, int depth, const ParseLimits& limits, ParsedOutput& output) {
  while (!reader.done()) {
    uint32_t tag = 0;
    if (!reader.ReadTag(tag)) return Malformed("outputs");
    if (tag == MakeTag(1, kDelimited)) {
      if (!reader.ReadString(output.name)) return Malformed("outputs.name");
    } else if (tag == MakeTag(2, kDelimited)) {
      SLUICE_RETURN_IF_ERROR(ParseParameter(reader, depth, limits, output.parameters));
    } else if (!reader.SkipField(tag, depth)) {
      return Malformed("outputs");
    }
  }
  return CheckLength("outputs.name", output.name, limits);
}

absl::Status ParseNestedTensor(uint32_t tag, WireReader& reader, const ParseLimits& limits, ParsedRequest& request) {
  WireReader nested;
  if (!reader.ReadNested(nested)) return Malformed("inputs or outputs");
  if (tag == MakeTag(5, kDelimited)) {
    if (request.inputs.size() == limits.tensors) return TooMany("inputs", limits.tensors);
    return ParseInput(nested, kMaxWireDepth - 1, limits, request.inputs.emplace_back());
  }
  if (request.outputs.size() == limits.tensors) return TooMany("outputs", limits.tensors);
  return ParseOutput(nested, kMaxWireDepth - 1, limits, request.outputs.emplace_back());
}

}  // namespace

absl::Status ParseInferRequest(std::span<const Bytes> chunks, ParsedRequest& request, const ParseLimits& limits) {
  WireReader reader(chunks);
  while (!reader.done()) {
    uint32_t tag = 0;
    if (!reader.ReadTag(tag)) return Malformed("tag");
    switch (tag) {
      case MakeTag(1, kDelimited):
        if (!reader.ReadString(request.model_name)) return Malformed("model_name");
        break;
      case MakeTag(2, kDelimited):
        if (!reader.ReadString(request.model_version)) return Malformed("model_version");
        break;
      case MakeTag(3, kDelimited):
        if (!reader.ReadString(request.id)) return Malformed("id");
        break;
      case MakeTag(4, kDelimited):
        SLUICE_RETURN_IF_ERROR(ParseParameter(reader, kMaxWireDepth, limits, request.parameters));
        break;
      case MakeTag(5, kDelimited):
      case MakeTag(6, kDelimited):
        SLUICE_RETURN_IF_ERROR(ParseNestedTensor(tag, reader, limits, request));
        break;
      case MakeTag(7, kDelimited):
        if (request.raw_inputs.size() == limits.tensors) {
          return TooMany("entries in raw_input_contents", limits.tensors);
        }
        if (!reader.ReadPieces(request.raw_inputs.emplace_back())) return Malformed("raw_input_contents");
        break;
      default:
        if (!reader.SkipField(tag, kMaxWireDepth)) return Malformed("field");
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckLength("model_name", request.model_name, limits));
  SLUICE_RETURN_IF_ERROR(CheckLength("model_version", request.model_version, limits));
  return CheckLength("id", request.id, limits);
}

}  // namespace sluice::rpc
