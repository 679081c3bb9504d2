// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tuning runs on the device, so the server's own program does it; this finds the program, and shows its report.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/text_table.h"

namespace sluice::client {
namespace {

constexpr char kServerName[] = "sluice-server";

struct TuneFlags {
  std::string model;
  std::string repository, cache;
  std::string devices = "auto";
  std::string server;
  bool json = false;
};

/// Beside this program, else wherever PATH has it.
std::string ServerPath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* folder : {".", "../server"}) {  // As installed, and in a build tree.
    const std::filesystem::path path = program.parent_path() / folder / kServerName;
    if (std::filesystem::is_regular_file(path, error)) return path.lexically_normal().string();
  }
  return kServerName;
}

struct Finished {
  int exit_code = 0;
  std::string output;
};

/// Runs a program to its end with its standard output caught; its standard error is ours. Errors: it cannot be started.
absl::StatusOr<Finished> RunProgram(std::vector<std::string> command) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) return absl::ErrnoToStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Finished finished;
  std::array<char, 4096> piece;
  for (ssize_t got = 0; failed == 0 && (got = read(ends[0], piece.data(), piece.size())) != 0;) {
    if (got > 0) finished.output.append(piece.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  if (failed != 0) return absl::ErrnoToStatus(failed, absl::StrCat("cannot run '", command[0], "'"));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
  return finished;
}

std::string Microseconds(double value) { return absl::StrFormat("%.1f", value); }

std::string Render(const nlohmann::json& report) {
  TextTable plans({"device", "version", "input", "rows", "us before", "us after", "ratio"});
  for (const nlohmann::json& plan : report.at("plans")) {
    std::vector<std::string> shapes;
    for (const nlohmann::json& shape : plan.at("input_shapes")) {
      shapes.push_back(absl::StrCat("[", absl::StrJoin(shape.get<std::vector<int64_t>>(), ","), "]"));
    }
    const double before = plan.at("us_before"), after = plan.at("us_after");
    plans.AddRow({plan.at("device"), absl::StrCat(plan.at("version").get<int64_t>()), absl::StrJoin(shapes, " "),
                  absl::StrCat(plan.at("rows").get<int64_t>()), Microseconds(before), Microseconds(after),
                  before > 0 ? absl::StrFormat("%.3f", after / before) : "-"});
  }
  std::string text = plans.Render();
  for (const nlohmann::json& device : report.at("devices")) {
    absl::StrAppendFormat(
        &text, "%s: %d choices made in %.1f s, %d in %s\n  of %s\n  a load takes %.1f s instead of %.1f\n",
        device.at("name").get<std::string>(), device.at("choices").get<int64_t>(),
        device.at("tuning_seconds").get<double>(), device.at("choices_in_file").get<int64_t>(),
        device.at("file").get<std::string>(), device.at("environment").get<std::string>(),
        device.at("load_seconds_after").get<double>(), device.at("load_seconds_before").get<double>());
  }
  return text;
}

int RunTune(const TuneFlags& flags, const std::vector<std::string>& more) {
  std::vector<std::string> command = {flags.server.empty() ? ServerPath() : flags.server,
                                      "tune",
                                      flags.model,
                                      "--model-repository",
                                      flags.repository,
                                      "--tuning-cache",
                                      flags.cache,
                                      "--devices",
                                      flags.devices};
  command.insert(command.end(), more.begin(), more.end());
  const absl::StatusOr<Finished> finished = RunProgram(std::move(command));
  if (!finished.ok()) {
    std::cerr << "sluice tune: " << finished.status().message() << "\n";
    return kExitFailed;
  }
  if (finished->exit_code != 0) return finished->exit_code == kExitUsage ? kExitUsage : kExitFailed;
  const nlohmann::json report = nlohmann::json::parse(finished->output, nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) {
    std::cerr << "sluice tune: expected a report in JSON from the server's program, got " << finished->output.size()
              << " bytes of something else\n";
    return kExitFailed;
  }
  if (!report.contains("plans") || !report.contains("devices")) {
    std::cerr << "sluice tune: expected plans and devices in the report, got " << finished->output;
    return kExitFailed;
  }
  std::cout << (flags.json ? finished->output : Render(report));
  return std::cout ? kExitOk : kExitFailed;
}

}  // namespace

void AddTuneCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = app.add_subcommand(
      "tune", "Try all ways of computing a model's kernels on this machine's GPU, and keep the fastest for servers");
  command->add_option("model", flags->model, "Name of the model")->required();
  command->add_option("--model-repository", flags->repository, "Folder that has it")->required();
  command->add_option("--tuning-cache", flags->cache, "Folder for what is found; the server's flag of the same name")
      ->required();
  command->add_option("--devices", flags->devices, "As of sluice-server: auto, cuda:0,1")->capture_default_str();
  command->add_option("--server", flags->server, "Path of sluice-server; default beside this program, else in PATH");
  command->add_flag("--json", flags->json, "Print the report as JSON");
  command->footer("Other flags are handed to sluice-server. Nothing else should run on the GPU meanwhile.");
  command->allow_extras();
  command->callback([flags, command, &exit_code] { exit_code = RunTune(*flags, command->remaining()); });
}

}  // namespace sluice::client
