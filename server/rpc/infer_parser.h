// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listen_options.h"
#include "server/rpc/typed_contents.h"
#include "server/rpc/wire_reader.h"

namespace sluice::rpc {

/// The oneof of InferParameter; monostate when none of its fields was set.
using ParameterValue = std::variant<std::monostate, bool, int64_t, std::string, double, uint64_t>;
using Parameters = std::map<std::string, ParameterValue>;

struct ParsedInput {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;
  Parameters parameters;
  TypedContents contents;
};

struct ParsedOutput {
  std::string name;
  Parameters parameters;
};

/// A ModelInferRequest as it lies in the message: names, shapes and parameters are copied out, tensor bytes are not.
struct ParsedRequest {
  std::string model_name;
  std::string model_version;
  std::string id;
  Parameters parameters;
  std::vector<ParsedInput> inputs;
  std::vector<ParsedOutput> outputs;
  std::vector<std::vector<Bytes>> raw_inputs;
};

inline constexpr size_t kMaxContentsRanges = 64;

/// Parses in place. The chunks and their bytes must outlive the result. Accepts and refuses exactly what protobuf does
/// (differential test), and refuses messages over `limits` or kMaxContentsRanges. INVALID_ARGUMENT in both cases; then
/// the fields read so far, `id` among them, are in `request`.
absl::Status ParseInferRequest(std::span<const Bytes> chunks, ParsedRequest& request,
                               const server::ParseLimits& limits = {});

}  // namespace sluice::rpc
