// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::client {

/// The options every subcommand shares.
struct ConnectionFlags {
  std::string address = "localhost:8001";
  int64_t connect_timeout_ms = 5000;
  int64_t deadline_ms = 30000;
  bool json = false;
  bool use_tls = false;
  TlsOptions tls;

  ClientOptions ToOptions() const;
};

void AddConnectionFlags(CLI::App& command, ConnectionFlags& flags);
/// The same for commands that ask the metrics port, whose address is then the default; `deadline` says of what.
void AddHttpConnectionFlags(CLI::App& command, ConnectionFlags& flags, const std::string& deadline);

/// Writes the error to stderr, or as {"error": ...} to stdout when JSON is asked for.
void PrintError(const ConnectionFlags& flags, const absl::Status& status);

/// One JSON document to stdout. Bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::json& document);

/// Connects; prints the error and leaves the exit code for it in `exit_code` when that fails.
std::unique_ptr<Client> ConnectOrExplain(const ConnectionFlags& flags, int& exit_code);

}  // namespace sluice::client
