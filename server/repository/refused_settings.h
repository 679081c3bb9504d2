// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model_config.pb.h"

namespace sluice::server {

/// UNIMPLEMENTED naming the first setting of `config` that asks for something Sluice does not do, so that nothing is
/// ignored silently. Settings that only tune what Sluice always does, or never needs, are added to `warnings` instead.
absl::Status CheckRefusedSettings(const inference::ModelConfig& config, std::vector<std::string>& warnings);

}  // namespace sluice::server
