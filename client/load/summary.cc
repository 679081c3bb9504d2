// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/summary.h"

#include <utility>

namespace sluice::client {
namespace {

struct Pooled {
  Histogram latency;
  Histogram server_total;
  absl::Duration gpu;  // Device time of all measured requests together.
  double rows = 0;
  absl::Duration window;
  std::vector<double> p99_ms;  // Of each phase that had a success.
};

Pooled Pool(const LoadOptions& options, const std::vector<PhaseResult>& phases, Phase wanted, size_t stream_index) {
  Pooled pooled;
  for (const PhaseResult& phase : phases) {
    if (phase.phase != wanted) continue;
    for (const PhaseResult::Stream& stream : phase.streams) {
      if (stream.index != stream_index) continue;
      pooled.latency.Merge(stream.result.latency);
      if (stream.result.server.has_value()) {
        pooled.server_total.Merge(stream.result.server->total);
        pooled.gpu += stream.result.server->gpu.mean() * static_cast<int64_t>(stream.result.server->gpu.count());
      }
      pooled.rows += static_cast<double>(stream.result.answered_in_window) *
                     static_cast<double>(options.streams[stream_index].batch);
      pooled.window += stream.result.window;
      if (stream.result.latency.count() > 0) pooled.p99_ms.push_back(QuantileMs(stream.result.latency, 0.99));
    }
  }
  return pooled;
}

std::optional<double> P99(const Histogram& histogram) {
  if (histogram.count() == 0) return std::nullopt;
  return QuantileMs(histogram, 0.99);
}

std::optional<double> Ratio(std::optional<double> above, std::optional<double> below) {
  if (!above.has_value() || !below.has_value() || *below <= 0) return std::nullopt;
  return *above / *below;
}

double PerSecond(double count, absl::Duration window) {
  const double seconds = absl::ToDoubleSeconds(window);
  return seconds > 0 ? count / seconds : 0;
}

}  // namespace

double QuantileMs(const Histogram& histogram, double quantile) {
  return absl::ToDoubleMilliseconds(histogram.Quantile(quantile));
}

double AchievedPerSecond(const StreamResult& result) {
  return PerSecond(static_cast<double>(result.answered_in_window), result.window);
}

double RowsPerSecond(const StreamSpec& spec, const StreamResult& result) {
  return AchievedPerSecond(result) * static_cast<double>(spec.batch);
}

LoadSummary Summarize(const LoadOptions& options, const std::vector<PhaseResult>& phases) {
  LoadSummary summary;
  for (size_t i = 0; i < options.streams.size(); ++i) {
    const StreamSpec& spec = options.streams[i];
    const Pooled mixed = Pool(options, phases, Phase::kMixed, i);
    if (!TakesPart(spec, Phase::kAlone)) {
      const Pooled alone = Pool(options, phases, Phase::kBatchAlone, i);
      ThroughputComparison comparison{spec.name, PerSecond(mixed.rows, mixed.window), std::nullopt, std::nullopt};
      if (alone.window > absl::ZeroDuration()) comparison.alone_rows_per_second = PerSecond(alone.rows, alone.window);
      if (mixed.window > absl::ZeroDuration()) {
        comparison.kept = Ratio(comparison.mixed_rows_per_second, comparison.alone_rows_per_second);
      }
      summary.others.push_back(std::move(comparison));
      continue;
    }
    const Pooled alone = Pool(options, phases, Phase::kAlone, i);
    const Pooled standard = Pool(options, phases, Phase::kMixedStandard, i);
    StreamComparison comparison;
    comparison.stream = spec.name;
    comparison.alone_p99_ms = alone.p99_ms;
    comparison.pooled_alone_p99_ms = P99(alone.latency);
    comparison.pooled_alone_samples = alone.latency.count();
    comparison.mixed_p99_ms = P99(mixed.latency);
    comparison.mixed_samples = mixed.latency.count();
    comparison.standard_p99_ms = P99(standard.latency);
    comparison.standard_samples = standard.latency.count();
    comparison.isolation_ratio = Ratio(comparison.mixed_p99_ms, comparison.pooled_alone_p99_ms);
    comparison.standard_ratio = Ratio(comparison.standard_p99_ms, comparison.mixed_p99_ms);
    comparison.server_alone_p99_ms = P99(alone.server_total);
    comparison.server_mixed_p99_ms = P99(mixed.server_total);
    comparison.server_standard_p99_ms = P99(standard.server_total);
    comparison.server_isolation_ratio = Ratio(comparison.server_mixed_p99_ms, comparison.server_alone_p99_ms);
    if (alone.server_total.count() > 0 && alone.window > absl::ZeroDuration()) {
      comparison.gpu_share_alone = absl::FDivDuration(alone.gpu, alone.window);
    }
    summary.latency.push_back(std::move(comparison));
  }
  return summary;
}

}  // namespace sluice::client
