// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "client/commands/commands.h"

// The only place of the client that exits, and the only one that catches: the command line parser reports by throwing.
int main(int argc, char** argv) {
  int exit_code = sluice::client::kExitOk;
  CLI::App app("sluice: talk to an inference server that speaks the Open Inference Protocol", "sluice");
  app.require_subcommand(1);
  app.footer("Exit codes: 0 success, 1 failed, 2 wrong usage, 3 server unreachable.");
  sluice::client::AddInferCommand(app, exit_code);
  sluice::client::AddStatusCommand(app, exit_code);
  sluice::client::AddLoadCommand(app, exit_code);
  sluice::client::AddHealthCommand(app, exit_code);
  sluice::client::AddTraceCommand(app, exit_code);
  sluice::client::AddInspectCommand(app, exit_code);
  sluice::client::AddModelsCommand(app, exit_code);
  sluice::client::AddTuneCommand(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? sluice::client::kExitOk : sluice::client::kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << "sluice: " << error.what() << "\n";
    return sluice::client::kExitFailed;
  }
  return exit_code;
}
