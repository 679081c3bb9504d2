// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/phases.h"

#include <utility>

#include "base/status_macros.h"
#include "client/pause.h"

namespace sluice::bench {

absl::StatusOr<PhaseResult> RunPhase(House& house, const PhaseSpec& spec, CaseReport& report) {
  const absl::Duration whole = spec.warmup + spec.length;
  std::vector<absl::Duration> schedule;
  if (spec.latency.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(schedule, client::MakeSchedule(spec.rate, spec.arrivals, whole, spec.seed));
  }
  PhaseResult result;
  std::optional<ClosedLoop> neighbour;
  const Time start = house.clock().Now() + absl::Milliseconds(5);
  if (spec.neighbour.has_value()) neighbour.emplace(house, *spec.neighbour, spec.neighbour_requests);
  absl::Status status;
  if (spec.latency.has_value()) {
    absl::StatusOr<OpenLoopResult> loop = RunOpenLoop(house, *spec.latency, start, schedule, spec.warmup);
    status = loop.status();
    if (loop.ok()) {
      report.CountRequests(loop->submitted, loop->answered);
      result.latency = std::move(loop->samples);
    }
  }
  client::PauseUntil(start + whole);
  if (neighbour.has_value()) {
    const absl::Status stopped = neighbour->Stop();
    if (status.ok()) status = stopped;
    report.CountRequests(neighbour->submitted(), neighbour->answered());
    result.rows_per_second = neighbour->RowsPerSecond(start + spec.warmup, start + whole);
  }
  SLUICE_RETURN_IF_ERROR(status);
  return result;
}

}  // namespace sluice::bench
