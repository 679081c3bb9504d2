// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/listen_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sluice::server {

/// How the gRPC front listens, apart from address and port: part of ServerConfig.
struct ListenConfig {
  std::optional<int> latency_port;  ///< 0: any free one; requests there are of the latency class by default.
  std::string unix_socket;          ///< Path of a socket beside the port; empty: none.
  ConnectionLimits connections;
  ParseLimits limits;
  bool use_tls = false;
  bool mutual_tls = false;  ///< Implies use_tls.
  TlsFiles tls;
  std::vector<std::string> restricted_protocols;  ///< As on the command line: names:key=value.
  bool reflection = false;
};

/// Adds the flags; `config` must outlive the parsing.
void AddListenFlags(CLI::App& app, ListenConfig& config);

/// Adds the subcommand `healthcheck`; `probe` must outlive the parsing.
CLI::App* AddHealthcheck(CLI::App& app, HealthProbe& probe);

/// INVALID_ARGUMENT naming the flag, what was expected and what came. Opens no file.
absl::Status ValidateListen(const ListenConfig& config, int grpc_port, int metrics_port);

/// Reads `--grpc-restricted-protocol`s: "name,name:key=value" each. INVALID_ARGUMENT as above, but without the value.
absl::StatusOr<ProtocolAccess> ParseRestrictedProtocols(std::span<const std::string> flags);

}  // namespace sluice::server
