// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/metrics/model_metrics.h"

namespace inference {
class ModelStatisticsResponse;
}

namespace sluice::server {

/// Adds one model version's statistics to a response, as the protocol's statistics extension defines them.
void AppendStatistics(const metrics::ModelStatistics& statistics, inference::ModelStatisticsResponse& response);

}  // namespace sluice::server
