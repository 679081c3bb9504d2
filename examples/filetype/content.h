// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/filetype/rules.h"

namespace sluice::filetype {

/// The two ends of a file, each at most a block long; for a small file both are the whole of it.
struct Ends {
  std::string begin;
  std::string end;
};

/// What is known before the model is asked: the type, when the content is too short for the model or the path is no
/// regular file; otherwise what the model takes.
struct Prepared {
  std::optional<Verdict> verdict;
  std::vector<int32_t> features;  ///< begin_size + end_size values, when there is no verdict.
};

/// Prepares content given by its two ends.
Prepared Prepare(const Rules& rules, const Ends& ends);

/// Prepares a file; reads no more than two blocks of it. NOT_FOUND or PERMISSION_DENIED names the file.
absl::StatusOr<Prepared> PrepareFile(const Rules& rules, const std::string& path);

/// Whether `bytes` are well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF, complete at the
/// end.
bool IsUtf8(absl::string_view bytes);

}  // namespace sluice::filetype
