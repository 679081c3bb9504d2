// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace sluice::client {

/// Exit codes of `sluice`, the same for every subcommand.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,       ///< The server answered with an error, is not ready, or a threshold was crossed.
  kExitUsage = 2,        ///< The command line or a file given on it is wrong.
  kExitUnreachable = 3,  ///< Nothing answers at the address.
};

/// Each adds one subcommand to `app`. When it is parsed, it runs and leaves its exit code in `exit_code`, which must
/// outlive `app`.
void AddInferCommand(CLI::App& app, int& exit_code);
void AddStatusCommand(CLI::App& app, int& exit_code);
void AddLoadCommand(CLI::App& app, int& exit_code);
void AddHealthCommand(CLI::App& app, int& exit_code);
void AddTraceCommand(CLI::App& app, int& exit_code);
void AddInspectCommand(CLI::App& app, int& exit_code);
void AddModelsCommand(CLI::App& app, int& exit_code);
void AddTuneCommand(CLI::App& app, int& exit_code);

}  // namespace sluice::client
