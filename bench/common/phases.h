// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/calls.h"
#include "bench/common/house.h"
#include "bench/common/report.h"
#include "client/load/schedule.h"

namespace sluice::bench {

/// What runs in a phase: a latency stream, a neighbour, or both at once.
struct PhaseSpec {
  std::optional<CallSpec> latency;
  double rate = 0;  ///< Of the latency stream, a second: an open loop.
  client::Arrivals arrivals = client::Arrivals::kPoisson;
  uint64_t seed = 1;  ///< Of its schedule: phases with the same one are asked the same.
  std::optional<CallSpec> neighbour;
  int neighbour_requests = 1;  ///< In flight.
  absl::Duration warmup;       ///< Not counted, before:
  absl::Duration length;

  /// The same phase with one of the two alone.
  PhaseSpec LatencyOnly() const {
    PhaseSpec only = *this;
    only.neighbour.reset();
    return only;
  }
  PhaseSpec NeighbourOnly() const {
    PhaseSpec only = *this;
    only.latency.reset();
    return only;
  }
};

struct PhaseResult {
  std::vector<Sample> latency;
  double rows_per_second = 0;  ///< Of the neighbour.
};

/// Runs one phase on an idle house and leaves it idle. Requests are counted in `report`.
absl::StatusOr<PhaseResult> RunPhase(House& house, const PhaseSpec& spec, CaseReport& report);

}  // namespace sluice::bench
