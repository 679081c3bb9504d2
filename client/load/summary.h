// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/load/load_run.h"

namespace sluice::client {

/// Requests below which the 99.9th percentile is nearly the largest sample.
inline constexpr uint64_t kFewSamples = 1000;

/// What the phases say about one latency stream. Ratios are absent when a phase they need did not run or had no
/// success.
struct StreamComparison {
  std::string stream;
  std::vector<double> alone_p99_ms;  ///< Of each phase alone, in order.
  std::optional<double> pooled_alone_p99_ms;
  uint64_t pooled_alone_samples = 0;
  std::optional<double> mixed_p99_ms;
  uint64_t mixed_samples = 0;
  std::optional<double> standard_p99_ms;
  uint64_t standard_samples = 0;
  std::optional<double> isolation_ratio;  ///< p99 mixed over p99 alone, all phases alone pooled.
  std::optional<double> standard_ratio;   ///< p99 with everything sent as standard over p99 mixed.

  // The same from the server's own times (ServerTimes::total); absent when they were not asked for.
  std::optional<double> server_alone_p99_ms;  ///< All phases alone pooled.
  std::optional<double> server_mixed_p99_ms;
  std::optional<double> server_standard_p99_ms;
  std::optional<double> server_isolation_ratio;  ///< p99 mixed over p99 alone.
  std::optional<double> gpu_share_alone;         ///< Mean device time of a request times the rate, alone.
};

/// How much of its throughput alone another stream keeps in the mixed phase.
struct ThroughputComparison {
  std::string stream;
  double mixed_rows_per_second = 0;
  std::optional<double> alone_rows_per_second;
  std::optional<double> kept;
};

struct LoadSummary {
  std::vector<StreamComparison> latency;
  std::vector<ThroughputComparison> others;
};

/// Rows answered with success per second of the measured time.
double RowsPerSecond(const StreamSpec& spec, const StreamResult& result);
/// Successes per second of the measured time.
double AchievedPerSecond(const StreamResult& result);
double QuantileMs(const Histogram& histogram, double quantile);

LoadSummary Summarize(const LoadOptions& options, const std::vector<PhaseResult>& phases);

}  // namespace sluice::client
