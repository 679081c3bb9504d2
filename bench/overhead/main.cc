// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the server's front end costs a request: its latency as a client sees it, less the latency of a bare echo of the
// same API and payload, less the time the request spent on the device; and what it leaves of the echo's throughput.
#include <CLI/CLI.hpp>
#include <csignal>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "bench/overhead/echo_process.h"
#include "bench/overhead/report.h"

namespace sluice::bench {
namespace {

enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

struct Flags {
  std::string url = "127.0.0.1:8001";
  std::vector<std::string> peers;
  std::vector<std::string> models = {"probe_1k", "probe_64k", "probe_600k"};
  OneAtATime one_at_a_time;
  ThroughputSettings throughput;
  int connections = 0;
  double turn_seconds = 1;
  std::string request_class = "latency";
  std::string json_file;
  Limits limits;
};

void AddOptions(CLI::App& app, Flags& flags) {
  app.option_defaults()->always_capture_default();
  app.add_option("--url", flags.url, "Server with the models of scripts/generate_gpu_models.sh, folder probes");
  app.add_option("--peer", flags.peers, "NAME=HOST:PORT of another server of the same protocol and models; repeatable")
      ->check([](const std::string& value) {
        const std::vector<std::string> parts = absl::StrSplit(value, absl::MaxSplits('=', 1));
        return parts.size() == 2 && !parts[0].empty() && !parts[1].empty() ? "" : "must be NAME=HOST:PORT";
      });
  app.add_option("--models", flags.models, "Models, smallest payload first")->delimiter(',');
  app.add_option("--requests", flags.one_at_a_time.requests, "Requests per model")->check(CLI::Range(100, 10'000'000));
  app.add_option("--warmup", flags.one_at_a_time.warmup, "Requests before them, not counted")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--pause-us", flags.one_at_a_time.pause_us, "Pause between requests")->check(CLI::Range(0, 1'000'000));
  app.add_option("--echo-threads", flags.one_at_a_time.echo_threads, "Threads of the bare echo")
      ->check(CLI::Range(1, 4));
  app.add_option("--connections", flags.connections,
                 "Also throughput with so many connections, a call in flight on each; 0: no")
      ->check(CLI::Range(0, 64));
  app.add_option("--client-threads", flags.throughput.client_threads, "Threads of each of its clients")
      ->check(CLI::Range(1, 16));
  app.add_option("--rounds", flags.throughput.rounds, "Its turns of each side")->check(CLI::Range(1, 1000));
  app.add_option("--turn-seconds", flags.turn_seconds, "One of its turns")->check(CLI::Range(0.05, 60.0));
  app.add_option("--class", flags.request_class, "Class of the requests")
      ->check(CLI::IsMember({"latency", "standard", "batch"}));
  app.add_option("--json", flags.json_file, "Write the results as JSON to this file; - is standard output");
  app.add_option("--max-p50-us", flags.limits.p50_us,
                 "Exit with 1 when the front end's p50 of the first model is above; 0: no");
  app.add_option("--max-p99-us", flags.limits.p99_us, "The same for its p99");
  app.add_option("--max-copies", flags.limits.copies,
                 "The same for the p50 of the last model, in copies of its payload");
  app.add_option("--min-throughput-ratio", flags.limits.throughput_ratio,
                 "Exit with 1 when the throughput of the first model is below so much of the echo's; 0: no");
}

absl::StatusOr<Results> MeasureAll(Flags flags) {
  flags.one_at_a_time.request_class = ParseRequestClass(flags.request_class).value_or(RequestClass::kLatency);
  flags.throughput.request_class = flags.one_at_a_time.request_class;
  flags.throughput.echo_threads = flags.one_at_a_time.echo_threads;
  flags.throughput.connections = flags.connections;
  flags.throughput.turn = absl::Seconds(flags.turn_seconds);
  std::vector<Target> targets = {{"sluice", flags.url, true}};
  for (const std::string& peer : flags.peers) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(peer, absl::MaxSplits('=', 1));
    targets.push_back({parts.first, parts.second, false});
  }
  Results results;
  for (const std::string& model : flags.models) {
    SLUICE_ASSIGN_OR_RETURN(std::vector<Measured> rows, MeasureOneAtATime(flags.one_at_a_time, targets, model));
    for (Measured& row : rows) results.rows.push_back(std::move(row));
    if (flags.connections == 0) continue;
    SLUICE_ASSIGN_OR_RETURN(std::vector<Throughput> rates, MeasureThroughput(flags.throughput, targets, model));
    results.throughput.insert(results.throughput.end(), rates.begin(), rates.end());
  }
  return results;
}

bool Write(const std::string& path, const Results& results) {
  if (path == "-") {
    std::cout << ToJson(results).dump(2) << "\n";
    return true;
  }
  std::cout << ToText(results);
  if (path.empty()) return true;
  std::ofstream file(path);
  file << ToJson(results).dump(2) << "\n";
  if (file.flush()) return true;
  std::cerr << "overhead: cannot write '" << path << "'\n";
  return false;
}

int Run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // an echo's process that ends early is an error, not our end
  Flags flags;
  CLI::App app("overhead: what the server's front end costs a request, beside a bare gRPC echo and without the device");
  AddOptions(app, flags);
  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const absl::StatusOr<Results> results = MeasureAll(flags);
  if (!results.ok()) {
    std::cerr << "overhead: " << results.status().message() << "\n";
    return kExitFailed;
  }
  if (!Write(flags.json_file, *results)) return kExitFailed;
  const std::vector<std::string> beyond = Beyond(flags.limits, *results);
  for (const std::string& line : beyond) std::cerr << "overhead: failed: " << line << "\n";
  return beyond.empty() ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc == 3 && absl::string_view(argv[1]) == sluice::bench::EchoProcess::kArgument) {
    int threads = 1;
    return absl::SimpleAtoi(argv[2], &threads) ? sluice::bench::EchoProcess::ServeEcho(threads) : 2;
  }
  return sluice::bench::Run(argc, argv);
}
