// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/http.h"
#include "client/inspection.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

struct InspectFlags {
  ConnectionFlags connection;
  std::string model;
  std::string version;
  InspectionView view;
};

absl::StatusOr<std::string> Fetch(const InspectFlags& flags) {
  HttpOptions options;
  options.connect_timeout = absl::Milliseconds(flags.connection.connect_timeout_ms);
  options.silence_timeout = absl::Milliseconds(flags.connection.deadline_ms);
  SLUICE_ASSIGN_OR_RETURN(HttpAnswer answer,
                          HttpGet(flags.connection.address, InspectPath(flags.model, flags.version), options));
  if (answer.status == 200) return std::move(answer.body);
  const absl::string_view reason = absl::StripTrailingAsciiWhitespace(answer.body);
  if (answer.status == 400) return absl::InvalidArgumentError(reason);
  if (answer.status == 404) return absl::NotFoundError(reason);
  return absl::FailedPreconditionError(absl::StrCat("the server answered ", answer.status, ": ", reason));
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

int RunInspect(const InspectFlags& flags) {
  const absl::StatusOr<std::string> text = Fetch(flags);
  if (!text.ok()) {
    PrintError(flags.connection, text.status());
    return ExitCodeOf(text.status());
  }
  const absl::StatusOr<nlohmann::json> inspection = ParseInspection(*text);
  if (!inspection.ok()) {
    PrintError(flags.connection, inspection.status());
    return kExitFailed;
  }
  if (flags.connection.json) {
    std::cout << *text << "\n";  // As it came: field order is the server's.
  } else {
    std::cout << RenderInspection(*inspection, flags.view);
  }
  return std::cout ? kExitOk : kExitFailed;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a loaded model became: plans, units, kernels and their times, memory, graph");
  command->add_option("model", flags->model, "Name of the model")->required();
  command->add_option("--model-version", flags->version, "Version; default the newest that is ready");
  AddHttpConnectionFlags(*command, flags->connection, "Longest wait for the answer");
  command->add_flag("--units", flags->view.all_units, "All units of the batch plan, not only the longest");
  command->add_flag("--kernels", flags->view.kernels, "And all its kernels");
  command->add_flag("--graph", flags->view.graph, "And the graph: before passes | after passes");
  command->add_flag("--json", flags->connection.json, "Print everything as JSON, as the server gives it");
  command->callback([flags, &exit_code] { exit_code = RunInspect(*flags); });
}

}  // namespace sluice::client
