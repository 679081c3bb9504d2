// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// How much the latency class feels batch work, rung by rung from streams alone to the product, in one process without
// gRPC.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/common/output.h"
#include "bench/common/report.h"
#include "bench/isolation/bare_loop.h"
#include "bench/isolation/cell.h"
#include "bench/isolation/ladder.h"
#include "bench/isolation/results.h"
#include "bench/isolation/rungs.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  Ladder::Options options;
  std::vector<CellSpec> cells;
  std::vector<std::string> bare;  ///< Models to compare with a bare loop.
  int bare_requests = 10'000;
  std::string json_file, continue_file;
  double warmup_seconds = 0.25, limit_seconds = 560;
  double unit_target_us = 20, compute_window_us = 40, unit_handover_us = 45;
  bool quick = false;
};

std::string Description() {
  std::string text =
      "isolation: how much the latency class feels batch work beside it, in one process without gRPC\n\n"
      "A cell is one latency model (open loop) beside one neighbour (closed loop). Its rungs take turns within "
      "rounds,\n"
      "with the same schedule of arrivals in every phase of a round. --cell is a list of key=value with commas:\n"
      "  latency=MODEL  neighbour=MODEL[:ROWS]  load=SHARE (of the device, alone) or rate=REQUESTS/S\n"
      "  class=batch|standard (of the neighbour)  arrivals=poisson|constant|bursty  in-flight=N  uncut=true|false\n"
      "  rungs=all|ladder|NAME+NAME (default product)  rounds=N  alone=S  mixed=S  batch=S (seconds of each phase)\n"
      "  limits of the product's row: r99= (upper end of the interval)  w= (lower end)  r999=  h2d-us=  "
      "added-wait-us=\n"
      "rungs:\n";
  for (const Rung& rung : AllRungs()) absl::StrAppend(&text, "  ", rung.name, ": ", rung.what, "\n");
  absl::StrAppend(
      &text,
      "Models are those of scripts/generate_gpu_models.sh --isolation. --continue FILE pools the rounds of an earlier\n"
      "run's JSON with this one's. Limits are judged on a CUDA device and without --quick.\n"
      "exit codes: 0 all within their limits, 1 one is over, or it could not be measured, 2 usage");
  return text;
}

void AddFlags(CLI::App& app, Flags& flags) {
  server::ServerConfig& server = flags.options.server;
  server.devices = "host";
  app.add_option("--models", server.model_repository, "Model repository")->required()->check(CLI::ExistingDirectory);
  app.add_option("--device", server.devices, "host, cuda:N, or host-copiers: the host with copies as on a GPU")
      ->capture_default_str();
  app.add_option("--cuda-module", server.cuda_module, "As of sluice-server");
  app.add_option_function<std::vector<std::string>>(
      "--cell",
      [&flags](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
          absl::StatusOr<CellSpec> cell = ParseCell(text);
          if (!cell.ok()) throw CLI::ValidationError("--cell", std::string(cell.status().message()));
          flags.cells.push_back(*std::move(cell));
        }
      },
      "Repeatable; in this order");
  app.add_option("--bare", flags.bare,
                 "Compare one row of this model, alone, with a loop without the server; repeatable");
  app.add_option("--bare-requests", flags.bare_requests, "Of each")
      ->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  app.add_flag("--quick", flags.quick, "One short round; nothing is judged");
  app.add_option("--json", flags.json_file,
                 "Write the results, all samples included, to this file; - is standard output");
  app.add_option("--continue", flags.continue_file, "JSON of an earlier run")->check(CLI::ExistingFile);
  app.add_flag("!--no-monitor", flags.options.monitor,
               "Do not ask nvidia-smi for clocks, power and temperature meanwhile");
  app.add_option("--seed", flags.options.seed, "Of the arrivals")->capture_default_str();
  app.add_option("--warmup", flags.warmup_seconds, "Seconds before each phase that do not count")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app.add_option("--limit-seconds", flags.limit_seconds,
                 "Of all cells, loading included: no round is begun that would not be over by then")
      ->check(CLI::Range(1.0, 36000.0))
      ->capture_default_str();
  app.add_option("--host-threads", server.host_threads, "As of sluice-server")->check(CLI::Range(0, 256));
  app.add_option("--unit-target-us", flags.unit_target_us, "As of sluice-server")->capture_default_str();
  app.add_option("--compute-window-us", flags.compute_window_us, "As of sluice-server")->capture_default_str();
  app.add_option("--unit-handover-us", flags.unit_handover_us, "As of sluice-server")->capture_default_str();
}

void Complete(Flags& flags) {
  flags.options.server.unit_target = absl::Microseconds(flags.unit_target_us);
  flags.options.server.compute_window = absl::Microseconds(flags.compute_window_us);
  flags.options.server.unit_handover = absl::Microseconds(flags.unit_handover_us);
  flags.options.warmup = absl::Seconds(flags.warmup_seconds);
  flags.options.limit = absl::Seconds(flags.limit_seconds);
  if (!flags.quick) return;
  flags.options.warmup = absl::Milliseconds(20);
  flags.options.calibration_requests = 20;
  flags.bare_requests = 100;
  for (CellSpec& cell : flags.cells) {
    cell.rounds = 1;
    for (absl::Duration* phase : {&cell.alone, &cell.mixed, &cell.batch}) *phase = std::min(*phase, absl::Seconds(0.2));
  }
}

/// The cells of an earlier run; null where there is none. Errors: no such JSON.
absl::StatusOr<Json> ReadEarlier(const std::string& path) {
  if (path.empty()) return Json();
  std::ifstream file(path);
  Json document = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("cells")) {
    return absl::InvalidArgumentError(absl::StrCat("--continue: expected JSON of this program, got '", path, "'"));
  }
  return document.at("cells");
}

absl::Status RunCell(Ladder& ladder, const Json& earlier, CellResults& results, CaseReport& report) {
  for (const Json& cell : earlier) {
    if (cell.value("key", "") != results.spec().Key()) continue;
    if (const absl::Status status = results.Continue(cell); !status.ok()) return status;
  }
  return ladder.Run(results, report);
}

/// Adds what it measured to `results`; false when something was over or could not be measured.
bool RunBare(const Flags& flags, Json& results) {
  bool passed = true;
  for (const std::string& model : flags.bare) {
    const absl::StatusOr<CaseReport> report =
        CompareWithBareLoop(flags.options.server, model, flags.bare_requests, /*judges=*/!flags.quick);
    if (!report.ok()) {
      std::cerr << "isolation: bare loop, " << model << ": " << report.status() << "\n";
      results.push_back({{"case", model}, {"error", report.status().ToString()}, {"within", false}});
      passed = false;
      continue;
    }
    if (flags.json_file != "-") std::cout << report->ToText() << "\n" << std::flush;
    results.push_back(report->ToJson());
    passed = passed && report->Within();
  }
  return passed;
}

int RunAll(const Flags& flags) {
  const absl::StatusOr<Json> earlier = ReadEarlier(flags.continue_file);
  if (!earlier.ok()) {
    std::cerr << "isolation: " << earlier.status().message() << "\n";
    return kExitUsage;
  }
  Json bare = Json::array();
  bool passed = RunBare(flags, bare);
  Ladder ladder(flags.options);
  Json cells = Json::array();
  for (const CellSpec& cell : flags.cells) {
    CellResults results(cell);
    CaseReport report(cell.Key(), /*judges=*/!flags.quick && flags.options.server.devices != "host");
    const absl::Status status = RunCell(ladder, *earlier, results, report);
    if (!status.ok()) {
      std::cerr << "isolation: " << cell.Key() << ": " << status << "\n";
      cells.push_back({{"key", cell.Key()}, {"error", status.ToString()}, {"within", false}});
      passed = false;
      continue;
    }
    results.Report(report);
    passed = passed && report.Within();
    if (flags.json_file != "-") std::cout << report.ToText() << "\n" << std::flush;
    cells.push_back(results.ToJson());
    cells.back()["report"] = report.ToJson();
    cells.back()["within"] = report.Within();
  }
  const Json document = {{"device", flags.options.server.devices},
                         {"quick", flags.quick},
                         {"seed", flags.options.seed},
                         {"bare", bare},
                         {"cells", cells}};
  // Samples would take a line each.
  return WriteJson("isolation", flags.json_file, document, /*indent=*/-1) && passed ? kExitOk : kExitFailed;
}

int Run(int argc, char** argv) {
  Flags flags;
  CLI::App app(Description());
  AddFlags(app, flags);
  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (flags.cells.empty() && flags.bare.empty()) {
    std::cerr << "isolation: expected --cell or --bare\n";
    return kExitUsage;
  }
  Complete(flags);
  return RunAll(flags);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Run(argc, argv); }
