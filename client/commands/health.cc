// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

struct HealthFlags {
  ConnectionFlags connection;
  std::string service;
};

const char* StateName(HealthState state) {
  switch (state) {
    case HealthState::kServing:
      return "SERVING";
    case HealthState::kNotServing:
      return "NOT_SERVING";
    case HealthState::kServiceUnknown:
      return "SERVICE_UNKNOWN";
    case HealthState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

int RunHealth(const HealthFlags& flags) {
  int exit_code = kExitOk;
  const std::unique_ptr<Client> client = ConnectOrExplain(flags.connection, exit_code);
  if (client == nullptr) return exit_code;
  const absl::StatusOr<HealthState> state = client->Health(flags.service);
  if (!state.ok()) {
    PrintError(flags.connection, state.status());
    return kExitFailed;
  }
  if (flags.connection.json) {
    PrintJson({{"service", flags.service}, {"status", StateName(*state)}});
  } else {
    std::cout << StateName(*state) << "\n";
  }
  return *state == HealthState::kServing ? kExitOk : kExitFailed;
}

}  // namespace

void AddHealthCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* command = app.add_subcommand("health", "Ask the health service; succeeds when the answer is SERVING");
  AddConnectionFlags(*command, flags->connection);
  command->add_option("--service", flags->service,
                      "\"\" is readiness, \"liveness\" the process, a model's name that model");
  command->add_flag("--json", flags->connection.json, "Print JSON");
  command->callback([flags, &exit_code] { exit_code = RunHealth(*flags); });
}

}  // namespace sluice::client
