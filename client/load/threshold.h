// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/load/load_run.h"
#include "client/load/summary.h"

namespace sluice::client {

/// A condition on the results that makes a load run fail: "latency.p99_ms>50", "mixed:batch/resnet50.achieved<10",
/// "isolation_ratio>1.2".
struct Threshold {
  std::string text;      ///< As given.
  std::string phase;     ///< A phase's name; empty is the mixed phase.
  std::string selector;  ///< A stream's name or its class; empty for the ratios.
  std::string metric;
  std::string comparison;  ///< <, <=, > or >=
  double limit = 0;
};

/// [PHASE:]STREAM.METRIC OP NUMBER, or RATIO OP NUMBER. Metrics: n, errors, cap_hits, offered, achieved, mean_ms,
/// p50_ms, p90_ms, p99_ms, p999_ms, max_ms; ratios: isolation_ratio, standard_ratio. INVALID_ARGUMENT says what is
/// wrong.
absl::StatusOr<Threshold> ParseThreshold(absl::string_view text);

/// Whether a threshold can be looked up in this run at all; INVALID_ARGUMENT when no stream or phase matches it.
absl::Status CheckThreshold(const Threshold& threshold, const LoadOptions& options);

/// The thresholds that hold, so that the run fails, one line each with the value found. A value that could not be
/// measured counts as failed.
std::vector<std::string> FailedThresholds(const std::vector<Threshold>& thresholds, const LoadOptions& options,
                                          const std::vector<PhaseResult>& phases, const LoadSummary& summary);

}  // namespace sluice::client
