// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "server/metrics/family.h"

namespace sluice::metrics {

/// Content type of ToText's result.
inline constexpr char kExpositionContentType[] = "text/plain; version=0.0.4; charset=utf-8";

/// The families in Prometheus' text format.
std::string ToText(const std::vector<Family>& families);

}  // namespace sluice::metrics
