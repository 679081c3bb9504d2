// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::client {

/// Spans of one category and name ("stage", "compute").
struct SpanTotal {
  uint64_t count = 0;
  absl::Duration sum, most;
};

/// What is in a trace.
struct TraceSummary {
  uint64_t records = 0;  ///< As the server counted them.
  uint64_t lost = 0;     ///< Overwritten by newer ones before they were read.
  uint64_t processes = 0;
  uint64_t threads = 0;
  std::map<std::pair<std::string, std::string>, SpanTotal> spans;  ///< By category and name.
};

/// Counts what is in a document in Chrome's trace event format. INVALID_ARGUMENT when it is none.
absl::StatusOr<TraceSummary> SummarizeTrace(absl::string_view text);

}  // namespace sluice::client
