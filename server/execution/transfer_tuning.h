// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/transfer.h"
#include "server/config.h"

namespace sluice::server {

/// How bytes shall move on `device`: what the config says, and what is left to be measured (some 50 ms, while nothing
/// else runs there). Logged. At start only. Errors: the device's.
absl::StatusOr<gpu::TransferTuning> TuneTransfers(gpu::Device& device, const ServerConfig& config, const Clock& clock);

}  // namespace sluice::server
