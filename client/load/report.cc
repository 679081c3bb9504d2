// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/report.h"

#include <sched.h>

#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

absl::string_view ClassText(std::optional<RequestClass> request_class) {
  return request_class.has_value() ? RequestClassName(*request_class) : absl::string_view("default");
}

std::string Ms(const Histogram& histogram, double quantile) {
  if (histogram.count() == 0) return "-";
  return absl::StrFormat("%.2f", QuantileMs(histogram, quantile));
}

std::string ErrorText(const StreamResult& result) {
  if (result.errors.empty()) return "0";
  return absl::StrJoin(result.errors, " ", absl::PairFormatter(":"));
}

std::string Offered(const StreamSpec& spec, const StreamResult& result) {
  if (!spec.open_loop()) return absl::StrCat("closed:", spec.concurrency);
  const double seconds = absl::ToDoubleSeconds(result.window);
  return absl::StrFormat("%.1f", seconds > 0 ? static_cast<double>(result.requests) / seconds : 0);
}

void AddRow(const LoadOptions& options, const StreamSpec& spec, Phase phase, const StreamResult& result,
            TextTable& table) {
  const Histogram& latency = result.latency;
  std::string p999 = Ms(latency, 0.999);
  if (latency.count() > 0 && latency.count() < kFewSamples) p999 += "*";
  table.AddRow({std::string(PhaseName(phase)), spec.name, std::string(ClassText(options.SentClass(spec, phase))),
                absl::StrCat(latency.count()), Offered(spec, result),
                absl::StrFormat("%.1f", AchievedPerSecond(result)),
                absl::StrFormat("%.1f", RowsPerSecond(spec, result)), Ms(latency, 0.5), Ms(latency, 0.9),
                Ms(latency, 0.99), p999, Ms(latency, 1), ErrorText(result)});
}

void AppendNotes(const LoadOptions& options, const std::vector<PhaseResult>& phases, std::string& text) {
  bool few = false;
  for (const PhaseResult& phase : phases) {
    for (const PhaseResult::Stream& stream : phase.streams) {
      const StreamSpec& spec = options.streams[stream.index];
      const StreamResult& result = stream.result;
      const std::string where = absl::StrCat(PhaseName(phase.phase), " ", spec.name);
      few = few || (result.latency.count() > 0 && result.latency.count() < kFewSamples);
      if (spec.open_loop() && result.lag.count() > 0) {
        absl::StrAppendFormat(&text, "  %s: from the actual send p99 %s ms; sent late by p99 %s ms, max %s ms\n", where,
                              Ms(result.service, 0.99), Ms(result.lag, 0.99), Ms(result.lag, 1));
      }
      if (result.cap_hits > 0) {
        absl::StrAppend(&text, "  ", where, ": ", result.cap_hits, " requests waited for the outstanding cap of ",
                        options.max_outstanding, "\n");
      }
      if (result.other_class > 0) {
        absl::StrAppend(&text, "  ", where, ": ", result.other_class, " were answered under another class\n");
      }
    }
  }
  if (few) {
    absl::StrAppend(&text, "  * fewer than ", kFewSamples, " samples: p99.9 is nearly the maximum, p99 rests on few\n");
  }
}

std::string Us(const Histogram& histogram, double quantile) {
  if (histogram.count() == 0) return "-";
  return absl::StrFormat("%.0f", QuantileMs(histogram, quantile) * 1e3);
}

void AppendServerTimes(const LoadOptions& options, const std::vector<PhaseResult>& phases, std::string& text) {
  if (!options.timings) return;
  TextTable table({"phase", "stream", "n", "server p50 us", "p90", "p99", "p99.9", "max", "device mean", "queue p99",
                   "h2d p99", "gpu wait p99", "compute p50", "compute p99", "d2h p99"});
  for (const PhaseResult& phase : phases) {
    for (const PhaseResult::Stream& stream : phase.streams) {
      if (!stream.result.server.has_value()) continue;
      const ServerTimes& server = *stream.result.server;
      table.AddRow({std::string(PhaseName(phase.phase)), options.streams[stream.index].name,
                    absl::StrCat(server.total.count()), Us(server.total, 0.5), Us(server.total, 0.9),
                    Us(server.total, 0.99), Us(server.total, 0.999), Us(server.total, 1),
                    absl::StrFormat("%.0f", absl::ToDoubleMicroseconds(server.gpu.mean())), Us(server.queue, 0.99),
                    Us(server.h2d, 0.99), Us(server.gpu_wait, 0.99), Us(server.compute, 0.5), Us(server.compute, 0.99),
                    Us(server.d2h, 0.99)});
    }
  }
  absl::StrAppend(&text, "\nin the server, from the complete message to the built response, in us\n", table.Render());
}

std::string Number(std::optional<double> value, absl::string_view unit) {
  return value.has_value() ? absl::StrFormat("%.2f%s", *value, unit) : "not measured";
}

void AppendComparisons(const LoadSummary& summary, std::string& text) {
  for (const StreamComparison& stream : summary.latency) {
    if (stream.isolation_ratio.has_value()) {
      absl::StrAppendFormat(&text, "isolation ratio of %s: %.2f (p99 mixed %s, n=%d; p99 alone %s, n=%d)\n",
                            stream.stream, *stream.isolation_ratio, Number(stream.mixed_p99_ms, " ms"),
                            stream.mixed_samples, Number(stream.pooled_alone_p99_ms, " ms"),
                            stream.pooled_alone_samples);
    }
    if (stream.alone_p99_ms.size() > 1) {
      std::vector<std::string> values;
      for (const double value : stream.alone_p99_ms) values.push_back(absl::StrFormat("%.2f ms", value));
      absl::StrAppendFormat(&text, "  the phases alone differ from each other: p99 %s\n", absl::StrJoin(values, ", "));
    }
    if (stream.server_isolation_ratio.has_value()) {
      absl::StrAppendFormat(&text, "  in the server: %.3f (p99 mixed %s, alone %s)\n", *stream.server_isolation_ratio,
                            Number(stream.server_mixed_p99_ms, " ms"), Number(stream.server_alone_p99_ms, " ms"));
    }
    if (stream.standard_ratio.has_value()) {
      absl::StrAppendFormat(&text,
                            "with classes against everything as standard, %s: p99 %s (n=%d) against %s (n=%d): "
                            "%.2f times lower with classes\n",
                            stream.stream, Number(stream.mixed_p99_ms, " ms"), stream.mixed_samples,
                            Number(stream.standard_p99_ms, " ms"), stream.standard_samples, *stream.standard_ratio);
    }
  }
  for (const ThroughputComparison& stream : summary.others) {
    if (!stream.kept.has_value()) continue;
    absl::StrAppendFormat(&text, "throughput of %s: %.1f rows/s mixed, %.1f rows/s alone: keeps %.0f %%\n",
                          stream.stream, stream.mixed_rows_per_second, *stream.alone_rows_per_second,
                          *stream.kept * 100);
  }
}

json HistogramJson(const Histogram& histogram) {
  json out = {{"n", histogram.count()}};
  if (histogram.count() == 0) return out;
  out["mean_ms"] = absl::ToDoubleMilliseconds(histogram.mean());
  out["min_ms"] = absl::ToDoubleMilliseconds(histogram.min());
  out["p50_ms"] = QuantileMs(histogram, 0.5);
  out["p90_ms"] = QuantileMs(histogram, 0.9);
  out["p99_ms"] = QuantileMs(histogram, 0.99);
  out["p999_ms"] = QuantileMs(histogram, 0.999);
  out["max_ms"] = absl::ToDoubleMilliseconds(histogram.max());
  out["saturated"] = histogram.saturated_count();
  return out;
}

json ServerTimesJson(const std::optional<ServerTimes>& server) {
  if (!server.has_value()) return nullptr;
  return {{"total", HistogramJson(server->total)},     {"device", HistogramJson(server->gpu)},
          {"queue", HistogramJson(server->queue)},     {"copy_in", HistogramJson(server->copy_in)},
          {"h2d", HistogramJson(server->h2d)},         {"gpu_wait", HistogramJson(server->gpu_wait)},
          {"compute", HistogramJson(server->compute)}, {"d2h", HistogramJson(server->d2h)}};
}

json OptionalJson(std::optional<double> value) { return value.has_value() ? json(*value) : json(nullptr); }

json StreamSpecJson(const LoadOptions& options, const StreamSpec& spec) {
  return {{"name", spec.name},
          {"class", std::string(ClassText(spec.request_class))},
          {"model", spec.model},
          {"loop", spec.open_loop() ? "open" : "closed"},
          {"rate", spec.open_loop() ? json(spec.rate) : json(nullptr)},
          {"distribution", spec.open_loop() ? json(std::string(ArrivalsName(spec.arrivals))) : json(nullptr)},
          {"concurrency", spec.open_loop() ? json(nullptr) : json(spec.concurrency)},
          {"batch", spec.batch},
          {"deadline_ms", absl::ToDoubleMilliseconds(spec.deadline.value_or(options.default_deadline))}};
}

json SummaryJson(const LoadSummary& summary) {
  json out = {{"latency", json::array()}, {"others", json::array()}};
  for (const StreamComparison& stream : summary.latency) {
    out["latency"].push_back({{"stream", stream.stream},
                              {"alone_p99_ms", stream.alone_p99_ms},
                              {"pooled_alone_p99_ms", OptionalJson(stream.pooled_alone_p99_ms)},
                              {"pooled_alone_n", stream.pooled_alone_samples},
                              {"mixed_p99_ms", OptionalJson(stream.mixed_p99_ms)},
                              {"mixed_n", stream.mixed_samples},
                              {"mixed_standard_p99_ms", OptionalJson(stream.standard_p99_ms)},
                              {"mixed_standard_n", stream.standard_samples},
                              {"isolation_ratio", OptionalJson(stream.isolation_ratio)},
                              {"standard_ratio", OptionalJson(stream.standard_ratio)},
                              {"server_alone_p99_ms", OptionalJson(stream.server_alone_p99_ms)},
                              {"server_mixed_p99_ms", OptionalJson(stream.server_mixed_p99_ms)},
                              {"server_mixed_standard_p99_ms", OptionalJson(stream.server_standard_p99_ms)},
                              {"server_isolation_ratio", OptionalJson(stream.server_isolation_ratio)},
                              {"gpu_share_alone", OptionalJson(stream.gpu_share_alone)}});
  }
  for (const ThroughputComparison& stream : summary.others) {
    out["others"].push_back({{"stream", stream.stream},
                             {"mixed_rows_per_second", stream.mixed_rows_per_second},
                             {"alone_rows_per_second", OptionalJson(stream.alone_rows_per_second)},
                             {"kept", OptionalJson(stream.kept)}});
  }
  return out;
}

}  // namespace

MachineInfo ReadMachineInfo() {
  MachineInfo machine;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) machine.usable_cores = CPU_COUNT(&cores);
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    if (const size_t colon = line.find(':'); colon != std::string::npos) {
      machine.cpu_model = std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
    break;
  }
  return machine;
}

std::string TextReport(const LoadOptions& options, const MachineInfo& machine, const std::vector<PhaseResult>& phases,
                       const LoadSummary& summary) {
  std::string text = absl::StrFormat(
      "load from a machine with %d usable cores (%s); seed %d; each phase %s measured after %s of warm-up\n\n",
      machine.usable_cores, machine.cpu_model.empty() ? "unknown CPU" : machine.cpu_model, options.seed,
      absl::FormatDuration(options.measured), absl::FormatDuration(options.warmup));
  TextTable table({"phase", "stream", "class", "n", "offered/s", "achieved/s", "rows/s", "p50 ms", "p90 ms", "p99 ms",
                   "p99.9 ms", "max ms", "errors"});
  for (const PhaseResult& phase : phases) {
    for (const PhaseResult::Stream& stream : phase.streams) {
      AddRow(options, options.streams[stream.index], phase.phase, stream.result, table);
    }
  }
  text += table.Render();
  absl::StrAppend(&text, "\nlatency counts from the intended send time; n are the successes\n");
  AppendNotes(options, phases, text);
  AppendServerTimes(options, phases, text);
  text += "\n";
  AppendComparisons(summary, text);
  return text;
}

json JsonReport(const LoadOptions& options, const MachineInfo& machine, const std::vector<PhaseResult>& phases,
                const LoadSummary& summary) {
  json out = {{"machine", {{"usable_cores", machine.usable_cores}, {"cpu_model", machine.cpu_model}}},
              {"seed", options.seed},
              {"warmup_seconds", absl::ToDoubleSeconds(options.warmup)},
              {"phase_seconds", absl::ToDoubleSeconds(options.measured)},
              {"max_outstanding", options.max_outstanding},
              {"streams", json::array()},
              {"phases", json::array()},
              {"summary", SummaryJson(summary)}};
  for (const StreamSpec& spec : options.streams) out["streams"].push_back(StreamSpecJson(options, spec));
  for (const PhaseResult& phase : phases) {
    json streams = json::array();
    for (const PhaseResult::Stream& stream : phase.streams) {
      const StreamSpec& spec = options.streams[stream.index];
      const StreamResult& result = stream.result;
      streams.push_back({{"stream", spec.name},
                         {"class", std::string(ClassText(options.SentClass(spec, phase.phase)))},
                         {"requests", result.requests},
                         {"window_seconds", absl::ToDoubleSeconds(result.window)},
                         {"achieved_per_second", AchievedPerSecond(result)},
                         {"rows_per_second", RowsPerSecond(spec, result)},
                         {"latency", HistogramJson(result.latency)},
                         {"from_actual_send", HistogramJson(result.service)},
                         {"schedule_lag", HistogramJson(result.lag)},
                         {"server", ServerTimesJson(result.server)},
                         {"errors", result.errors},
                         {"cap_hits", result.cap_hits},
                         {"other_class", result.other_class}});
    }
    out["phases"].push_back({{"phase", std::string(PhaseName(phase.phase))}, {"streams", streams}});
  }
  return out;
}

}  // namespace sluice::client
