// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// What Sluice's lanes, gate, launcher and transfers do, measured in one process without gRPC.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "bench/common/report.h"
#include "bench/pipeline/cases.h"

namespace sluice::bench {
namespace {

struct Case {
  const char* name;
  absl::StatusOr<CaseReport> (*run)(const Settings&);
};
constexpr Case kCases[] = {{"stages", RunStages}, {"cut", RunCut}, {"copies", RunCopies}, {"chain", RunChain}};

constexpr char kDescription[] =
    "pipeline: lanes, gate, launcher and transfers, measured in one process without gRPC\n\n"
    "cases:\n"
    "  stages  a batch request against its copies in, its units and its copies out, each alone\n"
    "  cut     batch work in units against the same plans uncut\n"
    "  copies  copies of latency requests beside batch copies that go flat out, in each direction\n"
    "  chain   a chain of small kernels as latency work beside batch units in a closed loop\n"
    "Models are those of scripts/generate_gpu_models.sh --pipeline; a model is named as MODEL or MODEL:ROWS, the rows\n"
    "being those of one request. Targets are judged on a CUDA device and without --quick.\n"
    "exit codes: 0 all within their targets, 1 one is over, or it could not be measured, 2 usage";

/// As the command line gives it.
struct Flags {
  std::vector<std::string> cases = {"stages", "cut", "copies", "chain"};
  std::string json_file;
  std::string stages, copies_in, copies_out, neighbour;
  std::vector<std::string> cut;
  double phase_seconds = 1.5, limit_seconds = 80, unit_target_us = 20, compute_window_us = 40, unit_handover_us = 45;
};

/// "MODEL" or "MODEL:ROWS".
bool ParseModelRows(const std::string& text, ModelRows& result) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (parts.first.empty()) return false;
  result.model = parts.first;
  if (parts.second.empty()) return text.find(':') == std::string::npos;
  return absl::SimpleAtoi(parts.second, &result.rows) && result.rows >= 1 && result.rows <= 65536;
}

std::string CheckModelRows(const std::string& text) {
  ModelRows ignored;
  return ParseModelRows(text, ignored) ? "" : absl::StrCat("expected MODEL or MODEL:ROWS, got '", text, "'");
}

void AddModelFlags(CLI::App& app, Flags& flags, Settings& settings) {
  app.add_option("--stages-model", flags.stages, "Of the case stages (default resnet50:256)")->check(CheckModelRows);
  app.add_option("--cut-models", flags.cut, "Of the case cut (default resnet50:16,bert12:512)")
      ->delimiter(',')
      ->check(CheckModelRows);
  app.add_option("--copies-in-model", flags.copies_in, "Its input is copied (default copy:64)")->check(CheckModelRows);
  app.add_option("--copies-out-model", flags.copies_out, "Its output is copied (default fill:64)")
      ->check(CheckModelRows);
  app.add_option("--chain-model", settings.chain, "The latency model of the case chain")->capture_default_str();
  app.add_option("--neighbour-model", flags.neighbour, "Batch work of the case chain (default gemm:768)")
      ->check(CheckModelRows);
}

void AddFlags(CLI::App& app, Flags& flags, Settings& settings) {
  server::ServerConfig& server = settings.server;
  server.devices = "host";
  app.add_option("--models", server.model_repository, "Model repository")->required()->check(CLI::ExistingDirectory);
  app.add_option("--device", server.devices, "host, cuda:N, or host-copiers: the host with copies as on a GPU")
      ->capture_default_str();
  app.add_option("--cuda-module", server.cuda_module, "As of sluice-server");
  app.add_option("--cases", flags.cases, "Which, in this order")
      ->delimiter(',')
      ->check(CLI::IsMember({"stages", "cut", "copies", "chain"}))
      ->capture_default_str();
  app.add_flag("--quick", settings.quick, "One short round of small requests; nothing is judged");
  app.add_option("--rounds", settings.rounds, "Rounds; below 3 is no result")
      ->take_last()
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--seconds", flags.phase_seconds, "Of each phase")
      ->check(CLI::Range(0.05, 60.0))
      ->capture_default_str()
      ->take_last();
  app.add_option("--limit-seconds", flags.limit_seconds,
                 "Of each case, loading left out: no round is begun that would not be over by then")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str()
      ->take_last();
  app.add_option("--seed", settings.seed, "Of the arrivals")->capture_default_str();
  app.add_option("--json", flags.json_file, "Write the results as JSON to this file; - is standard output");
  app.add_option("--trace", settings.trace_file, "Write a Chrome trace of one request of the case stages to this file");
  app.add_option("--host-threads", server.host_threads, "As of sluice-server")->check(CLI::Range(0, 256));
  app.add_option("--batch-streams", server.batch_streams, "As of sluice-server")
      ->check(CLI::Range(2, 4))
      ->capture_default_str();
  app.add_option("--unit-target-us", flags.unit_target_us, "As of sluice-server")->capture_default_str();
  app.add_option("--compute-window-us", flags.compute_window_us, "As of sluice-server")->capture_default_str();
  app.add_option("--unit-handover-us", flags.unit_handover_us, "As of sluice-server")->capture_default_str();
  app.add_option("--copies-threads", settings.copies_threads, "Request threads of the case copies")
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  app.add_option("--copies-requests", settings.copies_requests, "Batch requests in flight in the case copies")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--copies-rate", settings.copies_rate, "Latency requests a second in the case copies")
      ->check(CLI::Range(1.0, 1e5))
      ->capture_default_str();
  app.add_option("--loads", settings.loads, "Shares of the device that the chain is to take")
      ->delimiter(',')
      ->check(CLI::Range(0.01, 0.95))
      ->capture_default_str();
  AddModelFlags(app, flags, settings);
}

/// What --quick means; flags that name a model still win.
void MakeQuick(Flags& flags, Settings& settings) {
  settings.rounds = 1;
  settings.warmup = absl::Milliseconds(50);
  flags.phase_seconds = std::min(flags.phase_seconds, 0.2);
  settings.stages.rows = settings.copies_in.rows = settings.copies_out.rows = settings.neighbour.rows = 4;
  for (ModelRows& cut : settings.cut) cut.rows = 2;
  settings.copies_threads = settings.copies_requests = 2;
  settings.copies_rate = 50;
}

void Complete(Flags& flags, Settings& settings) {
  if (settings.quick) MakeQuick(flags, settings);
  const auto take = [](const std::string& text, ModelRows& result) {
    if (!text.empty()) ParseModelRows(text, result);
  };
  take(flags.stages, settings.stages);
  take(flags.copies_in, settings.copies_in);
  take(flags.copies_out, settings.copies_out);
  take(flags.neighbour, settings.neighbour);
  if (!flags.cut.empty()) {
    settings.cut.assign(flags.cut.size(), ModelRows{.model = "", .rows = settings.cut.front().rows});
    for (size_t i = 0; i < flags.cut.size(); ++i) take(flags.cut[i], settings.cut[i]);
  }
  settings.phase = absl::Seconds(flags.phase_seconds);
  settings.limit = absl::Seconds(flags.limit_seconds);
  settings.server.unit_target = absl::Microseconds(flags.unit_target_us);
  settings.server.compute_window = absl::Microseconds(flags.compute_window_us);
  settings.server.unit_handover = absl::Microseconds(flags.unit_handover_us);
}

int RunCases(const Flags& flags, const Settings& settings) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  bool passed = true;
  for (const std::string& name : flags.cases) {
    const auto* const found =
        std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& each) { return name == each.name; });
    const absl::Time begin = absl::Now();
    const absl::StatusOr<CaseReport> report = found->run(settings);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    if (!report.ok()) {
      std::cerr << "pipeline: " << name << ": " << report.status() << "\n";
      results.push_back({{"case", name}, {"within", false}, {"error", report.status().ToString()}});
      passed = false;
      continue;
    }
    results.push_back(report->ToJson());
    results.back()["seconds"] = seconds;
    passed = passed && report->Within();
    if (flags.json_file != "-") std::cout << report->ToText() << absl::StrCat("took ", seconds, " s\n\n") << std::flush;
  }
  const nlohmann::ordered_json document = {{"device", settings.server.devices},
                                           {"quick", settings.quick},
                                           {"rounds", settings.rounds},
                                           {"phase_seconds", flags.phase_seconds},
                                           {"cases", results}};
  return WriteJson("pipeline", flags.json_file, document) && passed ? kExitOk : kExitFailed;
}

int Run(int argc, char** argv) {
  Flags flags;
  Settings settings;
  CLI::App app(kDescription);
  AddFlags(app, flags, settings);
  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  Complete(flags, settings);
  return RunCases(flags, settings);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Run(argc, argv); }
