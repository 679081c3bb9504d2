// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/http.h"
#include "client/text_table.h"
#include "client/trace_summary.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

struct TraceFlags {
  ConnectionFlags connection;
  double seconds = 2;
  std::string output = "trace.json";
};

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(duration));
}

void PrintText(std::ostream& out, const TraceFlags& flags, const TraceSummary& summary, size_t bytes) {
  out << absl::StrFormat("%s: %d records in %d threads of %d devices, %d lost, %.1f MB\n\n", flags.output,
                         summary.records, summary.threads, summary.processes, summary.lost,
                         static_cast<double>(bytes) / 1e6);
  TextTable table({"category", "span", "count", "total ms", "mean ms", "longest ms"});
  for (const auto& [key, total] : summary.spans) {
    table.AddRow({key.first, key.second, absl::StrCat(total.count), Milliseconds(total.sum),
                  Milliseconds(total.sum / static_cast<int64_t>(total.count)), Milliseconds(total.most)});
  }
  out << table.Render();
  if (summary.lost > 0) {
    out << "\nThe oldest spans were overwritten: record for a shorter time, or give sluice-server more --trace-records."
           "\n";
  }
  out << "\nOpen it in https://ui.perfetto.dev or chrome://tracing.\n";
}

json ToJson(const TraceFlags& flags, const TraceSummary& summary, size_t bytes) {
  json spans = json::array();
  for (const auto& [key, total] : summary.spans) {
    spans.push_back({{"category", key.first},
                     {"name", key.second},
                     {"count", total.count},
                     {"total_ms", absl::ToDoubleMilliseconds(total.sum)},
                     {"longest_ms", absl::ToDoubleMilliseconds(total.most)}});
  }
  return {{"output", flags.output},     {"seconds", flags.seconds}, {"bytes", bytes},
          {"records", summary.records}, {"lost", summary.lost},     {"devices", summary.processes},
          {"threads", summary.threads}, {"spans", std::move(spans)}};
}

absl::StatusOr<std::string> Fetch(const TraceFlags& flags) {
  HttpOptions options;
  options.connect_timeout = absl::Milliseconds(flags.connection.connect_timeout_ms);
  // The server says nothing until it has recorded.
  options.silence_timeout = absl::Seconds(flags.seconds) + absl::Milliseconds(flags.connection.deadline_ms);
  absl::StatusOr<HttpAnswer> answer =
      HttpGet(flags.connection.address, absl::StrCat("/trace?seconds=", flags.seconds), options);
  if (!answer.ok()) return answer.status();
  if (answer->status == 200) return std::move(answer->body);
  return absl::FailedPreconditionError(
      absl::StrCat("the server answered ", answer->status, ": ", absl::StripTrailingAsciiWhitespace(answer->body)));
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    default:
      return kExitFailed;
  }
}

/// Before the wait: who has typed a wrong path learns it now.
absl::Status CheckOutput(const TraceFlags& flags) {
  if (flags.output == "-") {
    return flags.connection.json
               ? absl::InvalidArgumentError("--json: not with --output -, which takes standard output")
               : absl::OkStatus();
  }
  const std::filesystem::path path(flags.output);
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  const std::string written = exists ? path.string() : path.has_parent_path() ? path.parent_path().string() : ".";
  const bool folder = std::filesystem::is_directory(path, error);
  if (!folder && access(written.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--output: cannot write '", flags.output, "'"));
}

int RunTrace(const TraceFlags& flags) {
  const bool to_stdout = flags.output == "-";
  if (const absl::Status status = CheckOutput(flags); !status.ok()) {
    PrintError(flags.connection, status);
    return ExitCodeOf(status);
  }
  const absl::StatusOr<std::string> trace = Fetch(flags);
  if (!trace.ok()) {
    PrintError(flags.connection, trace.status());
    return ExitCodeOf(trace.status());
  }
  const absl::StatusOr<TraceSummary> summary = SummarizeTrace(*trace);
  if (!summary.ok()) {
    PrintError(flags.connection, summary.status());
    return kExitFailed;
  }
  if (to_stdout) {
    std::cout << *trace << std::flush;
    PrintText(std::cerr, flags, *summary, trace->size());
    return std::cout ? kExitOk : kExitFailed;
  }
  std::ofstream file(flags.output, std::ios::binary | std::ios::trunc);
  file << *trace;
  file.close();
  if (!file) {
    PrintError(flags.connection, absl::DataLossError(absl::StrCat("cannot write '", flags.output, "'")));
    return kExitFailed;
  }
  if (flags.connection.json) {
    PrintJson(ToJson(flags, *summary, trace->size()));
  } else {
    PrintText(std::cout, flags, *summary, trace->size());
  }
  return kExitOk;
}

}  // namespace

void AddTraceCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* command = app.add_subcommand(
      "trace", "Record what the server's devices do for some seconds, as a Chrome trace, and summarise it");
  AddHttpConnectionFlags(*command, flags->connection, "Longest silence after the recording");
  command->add_option("--seconds", flags->seconds, "How long to record")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 60.0));
  command->add_option("-o,--output", flags->output, "File for the trace; - is standard output")->capture_default_str();
  command->add_flag("--json", flags->connection.json, "Print the summary as JSON");
  command->callback([flags, &exit_code] { exit_code = RunTrace(*flags); });
}

}  // namespace sluice::client
