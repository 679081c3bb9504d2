// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/repository/model_settings.h"
#include "server/repository/sluice_parameters.h"

namespace sluice::server {

/// Fills class_rules, queue_rules, class_queue_rules and slots of `settings` from settings.config and `parameters`;
/// settings.max_batch_size is set. INVALID_ARGUMENT naming the field.
absl::Status FillClassSettings(const SluiceParameters& parameters, ModelSettings& settings);

/// The class of priority level `level` (1 to levels) when the config has levels (DESIGN.md 8).
RequestClass ClassOfLevel(uint64_t level, uint64_t default_level);

}  // namespace sluice::server
