// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/threshold.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace sluice::client {
namespace {

constexpr std::array<absl::string_view, 11> kMetrics = {
    "n", "errors", "cap_hits", "offered", "achieved", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"};
constexpr std::array<absl::string_view, 2> kRatios = {"isolation_ratio", "standard_ratio"};

template <class Names>
bool Contains(const Names& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status Bad(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("threshold '", text, "': ", what));
}

bool Selects(const Threshold& threshold, const StreamSpec& stream) {
  if (threshold.selector == stream.name) return true;
  return stream.request_class.has_value() && RequestClassName(*stream.request_class) == threshold.selector;
}

absl::string_view WantedPhase(const Threshold& threshold) {
  return threshold.phase.empty() ? PhaseName(Phase::kMixed) : absl::string_view(threshold.phase);
}

// Absent when there is nothing to measure it by.
std::optional<double> Value(absl::string_view metric, const StreamSpec& spec, const StreamResult& result) {
  if (metric == "n") return static_cast<double>(result.latency.count());
  if (metric == "errors") return static_cast<double>(result.error_count());
  if (metric == "cap_hits") return static_cast<double>(result.cap_hits);
  if (metric == "offered") return spec.open_loop() ? std::optional<double>(spec.rate) : std::nullopt;
  if (metric == "achieved") return AchievedPerSecond(result);
  if (result.latency.count() == 0) return std::nullopt;
  if (metric == "mean_ms") return absl::ToDoubleMilliseconds(result.latency.mean());
  if (metric == "max_ms") return absl::ToDoubleMilliseconds(result.latency.max());
  if (metric == "p50_ms") return QuantileMs(result.latency, 0.5);
  if (metric == "p90_ms") return QuantileMs(result.latency, 0.9);
  if (metric == "p99_ms") return QuantileMs(result.latency, 0.99);
  return QuantileMs(result.latency, 0.999);
}

bool Holds(double value, const Threshold& threshold) {
  if (threshold.comparison == "<") return value < threshold.limit;
  if (threshold.comparison == "<=") return value <= threshold.limit;
  if (threshold.comparison == ">") return value > threshold.limit;
  return value >= threshold.limit;
}

void Judge(const Threshold& threshold, absl::string_view where, std::optional<double> value,
           std::vector<std::string>& failed) {
  if (!value.has_value()) {
    failed.push_back(absl::StrCat(threshold.text, ": ", where, " has no samples"));
  } else if (Holds(*value, threshold)) {
    failed.push_back(absl::StrFormat("%s: %s is %.6g", threshold.text, where, *value));
  }
}

}  // namespace

absl::StatusOr<Threshold> ParseThreshold(absl::string_view text) {
  const size_t at = text.find_first_of("<>");
  if (at == absl::string_view::npos) return Bad(text, "has none of <, <=, >, >=");
  Threshold threshold;
  threshold.text = std::string(text);
  const size_t length = at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1;
  threshold.comparison = std::string(text.substr(at, length));
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text.substr(at + length)), &threshold.limit)) {
    return Bad(text, absl::StrCat("'", text.substr(at + length), "' is no number"));
  }
  absl::string_view left = absl::StripAsciiWhitespace(text.substr(0, at));
  if (Contains(kRatios, left)) {
    threshold.metric = std::string(left);
    return threshold;
  }
  if (const size_t colon = left.find(':'); colon != absl::string_view::npos) {
    threshold.phase = std::string(left.substr(0, colon));
    left.remove_prefix(colon + 1);
    if (auto phases = ParsePhases(threshold.phase); !phases.ok() || phases->size() != 1) {
      return Bad(text, absl::StrCat("'", threshold.phase, "' is no phase"));
    }
  }
  // The last dot: models may have dots in their names.
  const size_t dot = left.rfind('.');
  if (dot == absl::string_view::npos || dot == 0) return Bad(text, "names no stream; write STREAM.METRIC");
  threshold.selector = std::string(left.substr(0, dot));
  threshold.metric = std::string(left.substr(dot + 1));
  if (!Contains(kMetrics, threshold.metric)) {
    return Bad(text, absl::StrCat("'", threshold.metric, "' is none of ", absl::StrJoin(kMetrics, ", ")));
  }
  return threshold;
}

absl::Status CheckThreshold(const Threshold& threshold, const LoadOptions& options) {
  if (threshold.selector.empty()) return absl::OkStatus();
  for (const Phase phase : options.phases) {
    if (WantedPhase(threshold) != PhaseName(phase)) continue;
    for (const StreamSpec& stream : options.streams) {
      if (Selects(threshold, stream) && TakesPart(stream, phase)) return absl::OkStatus();
    }
    return Bad(threshold.text,
               absl::StrCat("phase '", PhaseName(phase), "' runs no stream or class '", threshold.selector, "'"));
  }
  return Bad(threshold.text, absl::StrCat("no phase '", WantedPhase(threshold), "' runs"));
}

std::vector<std::string> FailedThresholds(const std::vector<Threshold>& thresholds, const LoadOptions& options,
                                          const std::vector<PhaseResult>& phases, const LoadSummary& summary) {
  std::vector<std::string> failed;
  for (const Threshold& threshold : thresholds) {
    if (threshold.selector.empty()) {
      if (summary.latency.empty()) Judge(threshold, "the run", std::nullopt, failed);
      for (const StreamComparison& stream : summary.latency) {
        Judge(threshold, stream.stream,
              threshold.metric == "isolation_ratio" ? stream.isolation_ratio : stream.standard_ratio, failed);
      }
      continue;
    }
    for (const PhaseResult& phase : phases) {
      if (WantedPhase(threshold) != PhaseName(phase.phase)) continue;
      for (const PhaseResult::Stream& stream : phase.streams) {
        const StreamSpec& spec = options.streams[stream.index];
        if (!Selects(threshold, spec)) continue;
        Judge(threshold, absl::StrCat(PhaseName(phase.phase), ":", spec.name),
              Value(threshold.metric, spec, stream.result), failed);
      }
    }
  }
  return failed;
}

}  // namespace sluice::client
