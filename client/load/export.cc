// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/export.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/load/summary.h"

namespace sluice::client {
namespace {

constexpr int kStepsPerHalving = 5;
constexpr double kQuantiles[] = {0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1};

std::string CsvText(absl::string_view text) {
  if (text.find_first_of(",\"\n") == absl::string_view::npos) return std::string(text);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvMs(const Histogram& histogram, double quantile) {
  return histogram.count() == 0 ? "" : absl::StrFormat("%.4f", QuantileMs(histogram, quantile));
}

absl::string_view ClassText(std::optional<RequestClass> request_class) {
  return request_class.has_value() ? RequestClassName(*request_class) : absl::string_view("default");
}

std::string SafeForFiles(absl::string_view name) {
  std::string safe(name);
  for (char& c : safe) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return safe;
}

}  // namespace

std::string CsvReport(const LoadOptions& options, const std::vector<PhaseResult>& phases) {
  std::string text =
      "phase,stream,model,class,requests,successes,errors,seconds,successes_per_second,rows_per_second,mean_ms,p50_ms,"
      "p90_ms,p95_ms,p99_ms,p99.9_ms,p99.99_ms,max_ms,service_p99_ms,lag_p99_ms\n";
  for (const PhaseResult& phase : phases) {
    for (const PhaseResult::Stream& stream : phase.streams) {
      const StreamSpec& spec = options.streams[stream.index];
      const StreamResult& result = stream.result;
      absl::StrAppend(&text, PhaseName(phase.phase), ",", CsvText(spec.name), ",", CsvText(spec.model), ",",
                      ClassText(options.SentClass(spec, phase.phase)), ",", result.requests, ",",
                      result.latency.count(), ",", result.error_count(), ",", absl::ToDoubleSeconds(result.window),
                      ",");
      absl::StrAppendFormat(&text, "%.2f,%.2f,", AchievedPerSecond(result), RowsPerSecond(spec, result));
      if (result.latency.count() > 0) {
        absl::StrAppendFormat(&text, "%.4f", absl::ToDoubleMilliseconds(result.latency.mean()));
      }
      for (const double quantile : kQuantiles) absl::StrAppend(&text, ",", CsvMs(result.latency, quantile));
      absl::StrAppend(&text, ",", CsvMs(result.service, 0.99), ",", CsvMs(result.lag, 0.99), "\n");
    }
  }
  return text;
}

std::string PercentileReport(const Histogram& histogram) {
  std::string text =
      absl::StrFormat("%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
  const auto add_line = [&](double quantile) {
    const absl::Duration value = histogram.Quantile(quantile);
    absl::StrAppendFormat(&text, "%12.4f %2.12f %10d", absl::ToDoubleMilliseconds(value), quantile,
                          histogram.CountUpTo(value));
    absl::StrAppend(&text, quantile < 1 ? absl::StrFormat(" %14.2f\n", 1 / (1 - quantile)) : "\n");
  };
  if (histogram.count() > 0) {
    // Beyond one sample's share of the whole a quantile is the maximum.
    const double least = 1.0 / static_cast<double>(histogram.count());
    double left = 1;  // what is above the quantile
    for (; left > least; left /= 2) {
      for (int step = 0; step < kStepsPerHalving; ++step) {
        add_line(std::max(1e-9, 1 - left + left / 2 * step / kStepsPerHalving));
      }
    }
    add_line(1);
  }
  absl::StrAppendFormat(&text, "#[Mean    = %12.3f, Max         = %12.3f]\n",
                        absl::ToDoubleMilliseconds(histogram.mean()), absl::ToDoubleMilliseconds(histogram.max()));
  absl::StrAppendFormat(&text, "#[Total count = %10d, in milliseconds]\n", histogram.count());
  return text;
}

std::vector<PercentileFile> PercentileFiles(const LoadOptions& options, const std::vector<PhaseResult>& phases) {
  std::vector<PercentileFile> files;
  for (size_t i = 0; i < phases.size(); ++i) {
    for (const PhaseResult::Stream& stream : phases[i].streams) {
      files.push_back(
          {absl::StrCat(i + 1, "-", PhaseName(phases[i].phase), "-", SafeForFiles(options.streams[stream.index].name)),
           PercentileReport(stream.result.latency)});
    }
  }
  return files;
}

std::string IntervalText(const LoadOptions& options, const Progress& progress) {
  std::string text;
  for (const IntervalResult& interval : progress.intervals) {
    const Histogram& latency = interval.latency;
    absl::StrAppendFormat(&text, "%8.1f s  %-14s %-24s ok %7d  errors %5d", absl::ToDoubleSeconds(progress.elapsed),
                          PhaseName(progress.phase), options.streams[interval.stream_index].name, latency.count(),
                          interval.errors);
    if (latency.count() > 0) {
      absl::StrAppendFormat(&text, "  ms p50 %.2f p99 %.2f max %.2f", QuantileMs(latency, 0.5),
                            QuantileMs(latency, 0.99), QuantileMs(latency, 1));
    }
    text += progress.warmup ? "  (warm-up)\n" : "\n";
  }
  return text;
}

}  // namespace sluice::client
