// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/errors.h"
#include "client/load/export.h"
#include "client/load/load_run.h"
#include "client/load/report.h"
#include "client/load/summary.h"
#include "client/load/threshold.h"
#include "client/tensor_file.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

struct LoadFlags {
  ConnectionFlags connection;
  std::vector<std::string> streams;
  std::string phases;
  double phase_seconds = 10;
  double warmup_seconds = 2;
  double drain_seconds = 10;
  int max_outstanding = 256;
  uint64_t seed = 1;
  int connections = 1;
  int threads = 1;
  std::string force_class;
  bool compare_standard = false;
  bool timings = false;
  double interval_seconds = 0;
  std::string json_file;
  std::string csv_file;
  std::string hgrm_prefix;
  std::vector<std::string> fail_if;
};

absl::StatusOr<LoadOptions> MakeOptions(const LoadFlags& flags) {
  LoadOptions options;
  for (const std::string& text : flags.streams) {
    absl::StatusOr<StreamSpec> spec = ParseStreamSpec(text);
    if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("--stream '", text, "': ", spec.status().message()));
    options.streams.push_back(*std::move(spec));
  }
  NameStreams(options.streams);
  // Before the classes are forced: which streams run alone is decided by what they are, not by what they are sent as.
  options.phases = DefaultPhases(options.streams);
  if (!flags.phases.empty()) {
    SLUICE_ASSIGN_OR_RETURN(options.phases, ParsePhases(flags.phases));
  }
  if (flags.compare_standard) {
    auto mixed = options.phases.end();
    for (auto it = options.phases.begin(); it != options.phases.end(); ++it) {
      if (*it == Phase::kMixed) mixed = it;
    }
    if (mixed == options.phases.end()) {
      return absl::InvalidArgumentError("--compare-standard needs a mixed phase to compare with");
    }
    options.phases.insert(mixed + 1, Phase::kMixedStandard);
  }
  options.measured = absl::Seconds(flags.phase_seconds);
  options.warmup = absl::Seconds(flags.warmup_seconds);
  options.drain = absl::Seconds(flags.drain_seconds);
  options.max_outstanding = flags.max_outstanding;
  options.timings = flags.timings;
  options.interval = absl::Seconds(flags.interval_seconds);
  options.seed = flags.seed;
  options.default_deadline = absl::Milliseconds(flags.connection.deadline_ms);
  if (!flags.force_class.empty()) options.forced_class = ParseRequestClass(flags.force_class);
  return options;
}

absl::StatusOr<std::vector<Tensor>> MakeTensors(const StreamSpec& spec, const ModelInfo& model, uint64_t seed) {
  if (spec.data != "random" && model.inputs.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("stream field 'data': '", spec.model, "' has ", model.inputs.size(),
                                                   " inputs; a file is for a model with one"));
  }
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorInfo& info = model.inputs[i];
    InputSource source{spec.data, std::nullopt};
    if (const auto shape = spec.shapes.find(info.name); shape != spec.shapes.end()) source.shape = shape->second;
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor, LoadInput(info, source, spec.batch, seed + i));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Encodes each stream's request and sends it once: a mistake in a stream is an error here, not ten thousand errors in a
// table. A server that is only too busy is no mistake.
absl::StatusOr<std::vector<EncodedRequest>> Prepare(const LoadOptions& options, Client& client) {
  std::vector<EncodedRequest> requests;
  for (size_t i = 0; i < options.streams.size(); ++i) {
    const StreamSpec& spec = options.streams[i];
    InferOptions infer;
    infer.model_version = spec.version;
    infer.timings = options.timings;
    infer.request_class = options.SentClass(spec, Phase::kMixed);
    SLUICE_ASSIGN_OR_RETURN(const ModelInfo model, client.ModelMetadata(spec.model, spec.version));
    SLUICE_ASSIGN_OR_RETURN(std::vector<Tensor> tensors, MakeTensors(spec, model, options.seed + 1000 * i));
    SLUICE_ASSIGN_OR_RETURN(EncodedRequest request, EncodedRequest::Encode(spec.model, tensors, infer));
    const absl::Status first = client.Infer(spec.model, std::move(tensors), infer).status();
    if (!first.ok() && !IsRetryable(first)) {
      return absl::Status(first.code(), absl::StrCat("stream '", spec.name, "': ", first.message()));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void ShowProgress(const LoadOptions& options, const Progress& progress) {
  std::cerr << absl::StrFormat("\r\033[Kphase %d of %d (%s): %.0f of %.0f s, %d answers", progress.phase_index + 1,
                               options.phases.size(), PhaseName(progress.phase),
                               absl::ToDoubleSeconds(progress.elapsed),
                               absl::ToDoubleSeconds(options.warmup + options.measured), progress.answered)
            << std::flush;
}

/// To standard output when the file is "-".
absl::Status WriteText(const std::string& file, absl::string_view text) {
  if (file == "-") {
    std::cout << text << std::flush;
    return absl::OkStatus();
  }
  std::ofstream stream(file);
  stream << text;
  if (!stream.flush()) return absl::InvalidArgumentError(absl::StrCat("cannot write '", file, "'"));
  return absl::OkStatus();
}

absl::Status WriteFiles(const LoadFlags& flags, const LoadOptions& options, const std::vector<PhaseResult>& phases,
                        const nlohmann::json& document) {
  if (!flags.json_file.empty()) SLUICE_RETURN_IF_ERROR(WriteText(flags.json_file, document.dump(2) + "\n"));
  if (!flags.csv_file.empty()) SLUICE_RETURN_IF_ERROR(WriteText(flags.csv_file, CsvReport(options, phases)));
  if (flags.hgrm_prefix.empty()) return absl::OkStatus();
  for (const PercentileFile& file : PercentileFiles(options, phases)) {
    SLUICE_RETURN_IF_ERROR(WriteText(absl::StrCat(flags.hgrm_prefix, "-", file.suffix, ".hgrm"), file.text));
  }
  return absl::OkStatus();
}

int WriteReports(const LoadFlags& flags, const LoadOptions& options, const std::vector<PhaseResult>& phases,
                 const std::vector<Threshold>& thresholds) {
  const MachineInfo machine = ReadMachineInfo();
  const LoadSummary summary = Summarize(options, phases);
  const std::vector<std::string> failed = FailedThresholds(thresholds, options, phases, summary);
  nlohmann::json document = JsonReport(options, machine, phases, summary);
  document["failed_thresholds"] = failed;
  if (const absl::Status status = WriteFiles(flags, options, phases, document); !status.ok()) {
    PrintError(flags.connection, status);
    return kExitUsage;
  }
  if (flags.json_file != "-" && flags.csv_file != "-") std::cout << TextReport(options, machine, phases, summary);
  for (const std::string& line : failed) std::cerr << "sluice: failed: " << line << "\n";
  return failed.empty() ? kExitOk : kExitFailed;
}

int RunLoadCommand(const LoadFlags& flags) {
  std::vector<Threshold> thresholds;
  const absl::StatusOr<LoadOptions> options = MakeOptions(flags);
  absl::Status usage = options.status();
  for (const std::string& text : flags.fail_if) {
    if (!usage.ok()) break;
    absl::StatusOr<Threshold> threshold = ParseThreshold(text);
    usage = threshold.ok() ? CheckThreshold(*threshold, *options) : threshold.status();
    if (usage.ok()) thresholds.push_back(*std::move(threshold));
  }
  if (!usage.ok()) {
    PrintError(flags.connection, usage);
    return kExitUsage;
  }
  int exit_code = kExitOk;
  const std::unique_ptr<Client> client = ConnectOrExplain(flags.connection, exit_code);
  if (client == nullptr) return exit_code;
  const absl::StatusOr<std::vector<EncodedRequest>> requests = Prepare(*options, *client);
  if (!requests.ok()) {
    PrintError(flags.connection, requests.status());
    return kExitFailed;
  }
  ClientOptions connection = flags.connection.ToOptions();
  connection.channel_count = flags.connections;
  const absl::StatusOr<std::unique_ptr<AsyncClient>> sender = AsyncClient::Connect(connection, flags.threads);
  if (!sender.ok()) {
    PrintError(flags.connection, sender.status());
    return kExitUnreachable;
  }
  const bool intervals = flags.interval_seconds > 0;
  const bool terminal = !intervals && isatty(STDERR_FILENO) == 1;
  OnProgress on_progress;
  if (terminal) on_progress = [&options](const Progress& progress) { ShowProgress(*options, progress); };
  if (intervals) on_progress = [&options](const Progress& progress) { std::cerr << IntervalText(*options, progress); };
  const absl::StatusOr<std::vector<PhaseResult>> phases =
      RunLoad(*options, *requests, **sender, std::move(on_progress));
  if (terminal) std::cerr << "\r\033[K" << std::flush;
  if (!phases.ok()) {
    PrintError(flags.connection, phases.status());
    return kExitUsage;
  }
  return WriteReports(flags, *options, *phases, thresholds);
}

}  // namespace

void AddLoadCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LoadFlags>();
  CLI::App* command =
      app.add_subcommand("load", "Make load with one or more streams of requests and measure the latency");
  AddConnectionFlags(*command, flags->connection);
  command
      ->add_option(
          "--stream", flags->streams,
          "One stream, repeatable: \"class=latency,model=M,rate=20\" (open loop) or "
          "\"class=batch,model=M,concurrency=4,batch=4\" (closed loop). Fields: class, model, version, name, rate, "
          "distribution=poisson|constant|bursty, concurrency, requests, batch, deadline-ms, data=random|FILE, "
          "shape=NAME:AxBxC")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter('\0');
  command->add_option(
      "--phases", flags->phases,
      "Phases in order, of alone (latency streams), mixed (all), batch-alone (the others), mixed-standard "
      "(all, sent as standard). Default with latency and other streams: alone,mixed,alone");
  command->add_option("--phase-seconds", flags->phase_seconds, "Measured time of each phase")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  command->add_option("--warmup-seconds", flags->warmup_seconds, "Discarded time at the start of each phase")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  command->add_option("--drain-seconds", flags->drain_seconds, "Longest wait for answers after each phase")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  command->add_option("--max-outstanding", flags->max_outstanding, "Most requests in flight of an open-loop stream")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command->add_option("--seed", flags->seed, "Seed of schedules and random inputs")->capture_default_str();
  command->add_option("--connections", flags->connections, "TCP connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option("--threads", flags->threads, "Threads that receive answers")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  CLI::Option* force = command
                           ->add_option("--force-class", flags->force_class,
                                        "Send every stream as this class; the phases stay as they are")
                           ->check(CLI::IsMember({"latency", "standard", "batch"}));
  command
      ->add_flag("--compare-standard", flags->compare_standard,
                 "After the mixed phase, run it again with everything sent as standard, and compare")
      ->excludes(force);
  command->add_flag("--timings", flags->timings,
                    "Ask for the server's stage times and report them beside the client's");
  command
      ->add_option("--interval-seconds", flags->interval_seconds,
                   "Print a line for each stream and so many seconds to standard error; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  command->add_option("--json", flags->json_file, "Write the results as JSON to this file; - is standard output");
  command->add_option("--csv", flags->csv_file,
                      "Write a line for each phase and stream to this file; - is standard output");
  command->add_option("--hgrm", flags->hgrm_prefix,
                      "Write each phase's and stream's percentiles to PREFIX-<phase>-<stream>.hgrm, as HdrHistogram's "
                      "plotter reads them");
  command
      ->add_option("--fail-if", flags->fail_if,
                   "Exit with 1 when this holds, repeatable: \"latency.p99_ms>50\", \"isolation_ratio>1.5\", "
                   "\"alone:NAME.errors>0\"")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->callback([flags, &exit_code] { exit_code = RunLoadCommand(*flags); });
}

}  // namespace sluice::client
