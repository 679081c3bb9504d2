// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::filetype {

/// What the file-type model expects and how its answer is read: the content of its config.min.json.
struct Rules {
  size_t begin_size = 0;  ///< Leading bytes the model sees.
  size_t end_size = 0;    ///< Trailing bytes the model sees.
  size_t block_size = 0;  ///< How much of the file is read at each end, before white space is stripped.
  size_t min_size = 0;    ///< Fewer bytes than this say too little for the model.
  int32_t padding = 0;    ///< Stands where there is no byte.
  double default_threshold = 0;
  std::vector<std::string> labels;               ///< By output index.
  std::map<std::string, double> thresholds;      ///< By label, where it is not the default.
  std::map<std::string, std::string> overwrite;  ///< Labels that are shown as another one.
};

/// INVALID_ARGUMENT names the field that is missing or unfit, or the feature of a newer model that is not supported.
absl::StatusOr<Rules> ParseRules(absl::string_view json_text);

/// The type of one file.
struct Verdict {
  std::string type;    ///< What is shown.
  std::string label;   ///< What the model said; empty when it was not asked.
  double score = 1.0;  ///< The model's, or 1 when it was not asked.
};

/// Reads one row of the model's output, which has one score per label: the highest score wins, a score below the
/// label's threshold becomes "txt" or "unknown". `scores` must have as many elements as there are labels.
Verdict JudgeScores(const Rules& rules, std::span<const float> scores);

/// Whether the model's label names a textual type.
bool IsText(absl::string_view label);

}  // namespace sluice::filetype
