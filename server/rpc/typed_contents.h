// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "server/rpc/wire_reader.h"

namespace sluice::rpc {

/// Fields of InferTensorContents are numbered 1 to 8; index 0 is not used.
inline constexpr size_t kContentsFieldCount = 9;

/// The typed elements of one input, still encoded. They are only counted when the message arrives and decoded once the
/// model has confirmed the count, so that a small message cannot ask for a large buffer.
struct TypedContents {
  bool present = false;
  std::vector<WireReader> ranges;  ///< One per occurrence of the field; protobuf merges them.
  std::array<size_t, kContentsFieldCount> element_counts = {};
};

/// Checks the encoding of one occurrence of `contents` and adds it. False when protobuf would refuse it. `depth` as
/// WireReader::SkipField.
[[nodiscard]] bool AddContents(WireReader range, int depth, TypedContents& contents);

/// Name of the field that carries `type`; empty for types without one (FP16, BF16).
absl::string_view ContentsFieldName(DataType type);

/// Decodes the elements into raw form (little-endian; BYTES elements with their length before them) and replaces
/// `bytes`. INVALID_ARGUMENT when the filled field is not the one of `type`, when the count is not `expected_count`, or
/// when a value does not fit `type`; the message does not name the tensor.
absl::Status DecodeContents(const TypedContents& contents, DataType type, int64_t expected_count, std::string& bytes);

}  // namespace sluice::rpc
