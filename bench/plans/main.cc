// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the plans of a repository's models take when nothing but their kernels runs, again and again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "bench/common/house.h"
#include "bench/common/output.h"
#include "bench/common/statistics.h"
#include "bench/plans/replay.h"
#include "model/description.h"
#include "server/repository/repository.h"

namespace sluice::bench {
namespace {

constexpr char kDescription[] =
    "plans: what the plans of a repository's models take when their kernels alone run, back to back\n\n"
    "Each plan is one graph, replayed on one stream with its inputs left on the device. All models are loaded at once\n"
    "and take turns, round by round. Values and integers of the inputs are the same in each run.\n\n"
    "--paced is for a caller that measures something else in between: each round waits for a line on standard input,\n"
    "the batch sizes it is for with commas between them, or nothing for all. Standard output has lines of JSON alone:\n"
    "  {\"event\":\"loaded\"}                             once, when rounds can begin\n"
    "  {\"event\":\"round\",\"number\":1,\"plans\":[...]}     after each, with the model, rows and ms of each plan\n"
    "The end of the input ends the rounds. The table goes to standard error, the results to the file of --json.\n\n"
    "exit codes: 0 measured, 1 a model could not be, 2 usage";

struct Flags {
  server::ServerConfig server;
  std::vector<std::string> models;
  std::vector<int64_t> rows;
  int rounds = 5;
  double phase_seconds = 0.2, warmup_seconds = 0.05, limit_seconds = 120;
  size_t kernels = 0;
  bool paced = false;
  std::string json_file;
};

void AddFlags(CLI::App& app, Flags& flags) {
  server::ServerConfig& server = flags.server;
  server.devices = "host";
  app.add_option("--models", server.model_repository, "Model repository")->required()->check(CLI::ExistingDirectory);
  app.add_option("--model", flags.models, "One of its models; repeatable (default: all)");
  app.add_option("--device", server.devices, "host:0 or cuda:N")->capture_default_str();
  app.add_option("--cuda-module", server.cuda_module, "As of sluice-server");
  app.add_option("--host-threads", server.host_threads, "As of sluice-server")->check(CLI::Range(0, 256));
  app.add_option("--tuning-cache", server.tuning_cache, "As of sluice-server");
  app.add_option("--rows", flags.rows, "Batch sizes, with commas between them (default: sluice.buckets of each model)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--rounds", flags.rounds, "Measurements of each plan")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--phase", flags.phase_seconds, "Seconds that a measurement replays a plan")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  app.add_option("--warmup", flags.warmup_seconds, "Seconds of replays before it that do not count")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app.add_option("--limit-seconds", flags.limit_seconds,
                 "Loading left out: no round is begun that would not be over by then")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  app.add_flag("--paced", flags.paced,
               "Wait for a line on standard input before each round and answer it, as said above");
  app.add_option("--kernels", flags.kernels, "Show as many kernels of each plan, the longest first");
  app.add_option("--json", flags.json_file, "Write the results as JSON to this file; - is standard output");
}

/// A plan with what was measured of it.
struct Subject {
  HouseModel model;
  const server::PreparedPlan* plan = nullptr;
  std::unique_ptr<Replay> replay;
  Numbers milliseconds;  ///< One a round.
};

/// A line of a paced run's output.
void Say(const nlohmann::ordered_json& event) { std::cout << event.dump() << std::endl; }

/// A line of its input.
absl::StatusOr<std::vector<int64_t>> ParseRows(const std::string& line) {
  std::vector<int64_t> rows;
  for (const absl::string_view part : absl::StrSplit(line, ',', absl::SkipWhitespace())) {
    if (!absl::SimpleAtoi(part, &rows.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("expected batch sizes on standard input, got '", line, "'"));
    }
  }
  return rows;
}

bool IsOneOf(const std::vector<int64_t>& rows, int64_t value) {
  return std::find(rows.begin(), rows.end(), value) != rows.end();
}

class Plans {
 public:
  explicit Plans(const Flags& flags) : flags_(flags) {}

  /// Loads what can be loaded, measures it, and prints it. Errors: nothing could be measured at all.
  absl::Status Run();
  /// A model that could not be measured.
  bool failed() const { return !errors_.empty(); }
  nlohmann::ordered_json ToJson() const;
  std::string ToText() const;

 private:
  absl::Status LoadAll();
  absl::Status Load(const std::string& name);
  /// Of the plans of these batch sizes, all when there are none: what was measured, by plan.
  nlohmann::ordered_json MeasureRound(const std::vector<int64_t>& rows);
  nlohmann::ordered_json RowOf(const Subject& subject) const;
  std::vector<nlohmann::ordered_json> KernelsOf(const Subject& subject) const;

  const Flags& flags_;
  std::unique_ptr<House> house_;
  std::vector<Subject> subjects_;               // After the house, which owns what they are made from.
  std::vector<nlohmann::ordered_json> errors_;  ///< Rows.
};

absl::Status Plans::LoadAll() {
  std::vector<std::string> names = flags_.models;
  if (names.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto repository, server::ScanRepository(flags_.server.model_repository));
    for (const server::RepositoryModel& model : repository) names.push_back(model.name);
  }
  if (names.empty()) return absl::NotFoundError(absl::StrCat("no models in '", flags_.server.model_repository, "'"));
  ProgressLine progress("plans: load");
  for (const std::string& name : names) {
    progress.Say(name);
    if (const absl::Status loaded = Load(name); !loaded.ok()) {
      errors_.push_back({{"model", name}, {"error", loaded.ToString()}});
    }
  }
  return absl::OkStatus();
}

absl::Status Plans::Load(const std::string& name) {
  std::vector<int64_t> rows = flags_.rows;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  SLUICE_ASSIGN_OR_RETURN(const HouseModel model, house_->Load(name, {.latency_only = true, .buckets = rows}));
  for (const server::PreparedPlan& plan : model.instance->plans(0)) {
    SLUICE_ASSIGN_OR_RETURN(auto replay, Replay::Create(*house_, model, plan));
    subjects_.push_back({.model = model, .plan = &plan, .replay = std::move(replay), .milliseconds = {}});
  }
  return absl::OkStatus();
}

nlohmann::ordered_json Plans::MeasureRound(const std::vector<int64_t>& rows) {
  nlohmann::ordered_json measured = nlohmann::ordered_json::array();
  for (Subject& subject : subjects_) {
    if (subject.replay == nullptr) continue;  // It failed before.
    if (!rows.empty() && !IsOneOf(rows, subject.plan->rows)) continue;
    const std::string& name = subject.model.served->name;
    const absl::StatusOr<absl::Duration> took =
        subject.replay->Measure(absl::Seconds(flags_.warmup_seconds), absl::Seconds(flags_.phase_seconds));
    if (took.ok()) {
      subject.milliseconds.push_back(absl::ToDoubleMilliseconds(*took));
      measured.push_back({{"model", name}, {"rows", subject.plan->rows}, {"ms", subject.milliseconds.back()}});
      continue;
    }
    errors_.push_back({{"model", name}, {"rows", subject.plan->rows}, {"error", took.status().ToString()}});
    subject.replay.reset();
  }
  return measured;
}

absl::Status Plans::Run() {
  SLUICE_ASSIGN_OR_RETURN(house_, House::Create(flags_.server));
  SLUICE_RETURN_IF_ERROR(LoadAll());
  ProgressLine progress("plans");
  Rounds rounds(house_->clock(), flags_.rounds, house_->clock().Now() + absl::Seconds(flags_.limit_seconds));
  if (flags_.paced && !subjects_.empty()) Say({{"event", "loaded"}});
  while (!subjects_.empty() && rounds.Next()) {
    std::string line;
    if (flags_.paced && !std::getline(std::cin, line)) break;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, ParseRows(line));
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    const nlohmann::ordered_json measured = MeasureRound(rows);
    if (flags_.paced) Say({{"event", "round"}, {"number", rounds.number()}, {"plans", measured}});
  }
  return absl::OkStatus();
}

nlohmann::ordered_json Plans::RowOf(const Subject& subject) const {
  const auto& parameters = subject.model.served->config.parameters();
  const auto precision = parameters.find("sluice.precision");
  return {{"model", subject.model.served->name},
          {"precision", precision == parameters.end() ? "fp32" : precision->second.string_value()},
          {"rows", subject.plan->rows},
          {"kernels", subject.plan->plan->Describe().launches.size() - 2},
          {"ms p50", Median(subject.milliseconds)},
          {"ms least", *std::min_element(subject.milliseconds.begin(), subject.milliseconds.end())},
          {"n", subject.milliseconds.size()}};
}

std::vector<nlohmann::ordered_json> Plans::KernelsOf(const Subject& subject) const {
  std::vector<model::LaunchDescription> launches = subject.plan->plan->Describe().launches;
  absl::Duration sum;
  std::vector<std::pair<absl::Duration, size_t>> longest;
  for (size_t i = 1; i + 1 < launches.size(); ++i) {  // The first and the last are stamps.
    sum += launches[i].time;
    longest.emplace_back(launches[i].time, i);
  }
  std::sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  longest.resize(std::min(longest.size(), flags_.kernels));
  std::vector<nlohmann::ordered_json> rows;
  for (const auto& [time, index] : longest) {
    rows.push_back({{"model", subject.model.served->name},
                    {"rows", subject.plan->rows},
                    {"kernel", index},
                    {"us", absl::ToDoubleMicroseconds(time)},
                    {"% of all", 100 * Ratio(absl::ToDoubleSeconds(time), absl::ToDoubleSeconds(sum))},
                    {"name", launches[index].kernel}});
  }
  return rows;
}

std::string Plans::ToText() const {
  std::vector<nlohmann::ordered_json> rows;
  for (const Subject& subject : subjects_) {
    if (!subject.milliseconds.empty()) rows.push_back(RowOf(subject));
  }
  std::string text = rows.empty() ? "" : RenderTable(rows);
  if (!errors_.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", RenderTable(errors_));
  for (const Subject& subject : subjects_) {
    const std::vector<nlohmann::ordered_json> kernels = KernelsOf(subject);
    if (!kernels.empty()) absl::StrAppend(&text, "\n", RenderTable(kernels));
  }
  return text;
}

nlohmann::ordered_json Plans::ToJson() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Subject& subject : subjects_) {
    if (subject.milliseconds.empty()) continue;
    rows.push_back(RowOf(subject));
    rows.back()["rounds ms"] = subject.milliseconds;
    if (flags_.kernels > 0) rows.back()["longest kernels"] = KernelsOf(subject);
  }
  return {{"device", house_->device().info().name},
          {"rounds", flags_.rounds},
          {"phase_seconds", flags_.phase_seconds},
          {"rows", rows},
          {"errors", errors_}};
}

int Run(int argc, char** argv) {
  Flags flags;
  CLI::App app(kDescription);
  AddFlags(app, flags);
  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (flags.paced && flags.json_file == "-") {
    std::cerr << "plans: --paced keeps standard output for its own lines, so --json needs a file\n";
    return kExitUsage;
  }
  // One device is measured; the server's own flag reads host:N as a number of devices.
  if (flags.server.devices == "host:0") flags.server.devices = "host";
  Plans plans(flags);
  if (const absl::Status status = plans.Run(); !status.ok()) {
    std::cerr << "plans: " << status << "\n";
    return kExitFailed;
  }
  if (flags.json_file != "-") (flags.paced ? std::cerr : std::cout) << plans.ToText() << std::flush;
  return WriteJson("plans", flags.json_file, plans.ToJson()) && !plans.failed() ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Run(argc, argv); }
