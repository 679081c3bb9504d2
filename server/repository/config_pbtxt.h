// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model_config.pb.h"

namespace sluice::server {

/// Longer files are refused unread.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

/// A model's config as written, before anything is completed.
struct ParsedConfig {
  inference::ModelConfig config;
  /// max_batch_size was written down, also when as 0: without it the model decides.
  bool has_max_batch_size = false;
};

/// Reads protobuf text format. INVALID_ARGUMENT "config.pbtxt:<line>:<column>: ..." with up to three errors, lines and
/// columns from 1. Any thread.
absl::StatusOr<ParsedConfig> ParseConfigText(absl::string_view text);

/// Reads the same message as JSON (at most kMaxConfigBytes, which the caller checks), by protobuf's rules for it: the
/// parameter `config` of a load. INVALID_ARGUMENT with the parser's own words. Any thread.
absl::StatusOr<ParsedConfig> ParseConfigJson(absl::string_view json);

}  // namespace sluice::server
