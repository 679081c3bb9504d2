// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::client {

/// The server's path for a model; `version` may be empty. Both are encoded.
std::string InspectPath(absl::string_view model, absl::string_view version);

/// Reads what /inspect answers. DATA_LOSS when it is something else.
absl::StatusOr<nlohmann::json> ParseInspection(absl::string_view text);

struct InspectionView {
  bool all_units = false;  ///< Every unit of the micro-batch's plan, not only the longest.
  bool kernels = false;    ///< And every kernel of it.
  bool graph = false;      ///< The graph before and after passes, side by side.
};

/// Tables for people: plans, units, memory. What the document lacks is shown as empty or 0.
std::string RenderInspection(const nlohmann::json& inspection, const InspectionView& view);

}  // namespace sluice::client
