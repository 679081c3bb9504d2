// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/listen_config.h"

#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

constexpr double kLongestSeconds = 30 * 86400;
constexpr size_t kLongestHeader = 256;  ///< Of a header's name, and of its value: clients send it with every call.
constexpr absl::string_view kHeaderPrefix = "triton-grpc-protocol-";

absl::Status InRange(absl::string_view flag, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected ", low, " to ", high, ", got ", value));
}

/// Zero turns it off.
absl::Status SecondsOrOff(absl::string_view flag, absl::Duration value) {
  return value == absl::ZeroDuration() ? absl::OkStatus()
                                       : InRange(flag, absl::ToDoubleSeconds(value), 1, kLongestSeconds);
}

void AddSeconds(CLI::App& app, const std::string& flag, absl::Duration& value, const std::string& help) {
  app.add_option_function<double>(
         flag, [&value](const double& seconds) { value = absl::Seconds(seconds); }, help)
      ->default_str(absl::StrCat(absl::ToDoubleSeconds(value)));
}

absl::Status ValidateConnections(const ConnectionLimits& connections) {
  SLUICE_RETURN_IF_ERROR(InRange("max-concurrent-streams", connections.max_concurrent_streams, 1, 1 << 20));
  SLUICE_RETURN_IF_ERROR(SecondsOrOff("max-connection-age-secs", connections.max_age));
  SLUICE_RETURN_IF_ERROR(
      InRange("max-connection-age-grace-secs", absl::ToDoubleSeconds(connections.max_age_grace), 0, kLongestSeconds));
  SLUICE_RETURN_IF_ERROR(SecondsOrOff("max-connection-idle-secs", connections.max_idle));
  SLUICE_RETURN_IF_ERROR(
      InRange("keepalive-time-secs", absl::ToDoubleSeconds(connections.keepalive_time), 1, kLongestSeconds));
  SLUICE_RETURN_IF_ERROR(
      InRange("keepalive-timeout-secs", absl::ToDoubleSeconds(connections.keepalive_timeout), 0.1, 3600));
  return InRange("min-ping-interval-secs", absl::ToDoubleSeconds(connections.min_ping_interval), 0.1, 3600);
}

absl::Status ValidateLimits(const ParseLimits& limits) {
  SLUICE_RETURN_IF_ERROR(InRange("max-request-tensors", static_cast<double>(limits.tensors), 1, 1 << 16));
  SLUICE_RETURN_IF_ERROR(InRange("max-tensor-rank", static_cast<double>(limits.dimensions), 1, 1024));
  SLUICE_RETURN_IF_ERROR(InRange("max-request-parameters", static_cast<double>(limits.parameters), 1, 1 << 16));
  return InRange("max-name-bytes", static_cast<double>(limits.name_bytes), 16, 1 << 20);
}

absl::Status ValidateTls(const ListenConfig& config) {
  const std::pair<const char*, const std::string*> files[] = {{"grpc-server-cert", &config.tls.certificate},
                                                              {"grpc-server-key", &config.tls.key}};
  const bool on = config.use_tls || config.mutual_tls;
  for (const auto& [flag, file] : files) {
    if (on == !file->empty()) continue;
    return absl::InvalidArgumentError(
        on ? absl::StrCat("--", flag, ": expected the path of a PEM file, since TLS is on, got nothing")
           : absl::StrCat("--", flag, ": expected --grpc-use-ssl beside it, got TLS turned off"));
  }
  if (config.mutual_tls == !config.tls.root_certificates.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      config.mutual_tls
          ? "--grpc-root-cert: expected the path of a PEM file, since clients must show a certificate, got "
            "nothing"
          : "--grpc-root-cert: expected --grpc-use-ssl-mutual beside it, got no check of clients turned on");
}

absl::Status ValidatePorts(const ListenConfig& config, int grpc_port, int metrics_port) {
  if (config.latency_port.has_value()) {
    const int port = *config.latency_port;
    SLUICE_RETURN_IF_ERROR(InRange("latency-port", port, 0, 65535));
    if (port != 0 && (port == grpc_port || port == metrics_port)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--latency-port: expected a port other than --grpc-port and --metrics-port, got ", port));
    }
  }
  constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;
  if (config.unix_socket.size() > kLongestPath) {
    return absl::InvalidArgumentError(absl::StrCat("--grpc-unix-socket: expected a path of at most ", kLongestPath,
                                                   " bytes, got ", config.unix_socket.size()));
  }
  return absl::OkStatus();
}

absl::Status BadRestriction(absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(
      absl::StrCat("--grpc-restricted-protocol: expected ", expected, ", got ", got.empty() ? "nothing" : got));
}

/// gRPC would refuse, or bend, any other header.
absl::StatusOr<RequiredHeader> ReadHeader(absl::string_view key, absl::string_view value) {
  const bool key_fits = !key.empty() && key.size() <= kLongestHeader && !absl::EndsWith(key, "-bin") &&
                        std::all_of(key.begin(), key.end(), [](char c) {
                          return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '_' || c == '.';
                        });
  if (!key_fits) {
    return BadRestriction("a key of lower-case letters, digits, '-', '_' and '.' that does not end in -bin",
                          absl::StrCat("'", key, "'"));
  }
  const bool value_fits = !value.empty() && value.size() <= kLongestHeader &&
                          std::all_of(value.begin(), value.end(), [](char c) { return absl::ascii_isgraph(c); });
  if (!value_fits) {
    return BadRestriction(
        absl::StrCat("a value of 1 to ", kLongestHeader, " printable ASCII characters without blanks"),
        absl::StrCat("one of ", value.size(), " bytes"));
  }
  return RequiredHeader{absl::StrCat(kHeaderPrefix, key), std::string(value)};
}

}  // namespace

void AddListenFlags(CLI::App& app, ListenConfig& config) {
  app.add_option(
      "--latency-port", config.latency_port,
      "A second gRPC port with an I/O thread of its own, where requests are of the latency class unless they "
      "say otherwise; 0 picks a free one; default none");
  app.add_option("--grpc-unix-socket", config.unix_socket,
                 "Path of a Unix socket beside the port, without TLS; who may write to it may connect");
  ConnectionLimits& connections = config.connections;
  app.add_option("--max-concurrent-streams", connections.max_concurrent_streams, "Calls under way, per connection");
  AddSeconds(app, "--max-connection-age-secs", connections.max_age,
             "Connections are closed after this, give or take 10 %, so that clients spread anew; 0: never");
  AddSeconds(app, "--max-connection-age-grace-secs", connections.max_age_grace,
             "Time for calls under way on such a connection");
  AddSeconds(app, "--max-connection-idle-secs", connections.max_idle,
             "Connections without calls are closed after this; 0: never");
  AddSeconds(app, "--keepalive-time-secs", connections.keepalive_time,
             "The server pings a connection that was silent for so long");
  AddSeconds(app, "--keepalive-timeout-secs", connections.keepalive_timeout,
             "And closes it when no answer comes within this");
  AddSeconds(app, "--min-ping-interval-secs", connections.min_ping_interval,
             "Clients that ping more often are disconnected");
  app.add_option("--max-request-tensors", config.limits.tensors, "Inputs of a request; also outputs, and raw entries");
  app.add_option("--max-tensor-rank", config.limits.dimensions, "Dimensions of an input");
  app.add_option("--max-request-parameters", config.limits.parameters, "Parameters of a request, and of each tensor");
  app.add_option("--max-name-bytes", config.limits.name_bytes, "Length of a request's id and of each name in it");
  app.add_option("--grpc-use-ssl", config.use_tls, "TLS on the gRPC ports; files that change are read again");
  app.add_option("--grpc-use-ssl-mutual", config.mutual_tls, "The same, and clients must show a certificate");
  app.add_option("--grpc-server-cert", config.tls.certificate, "PEM file of the server's certificate chain");
  app.add_option("--grpc-server-key", config.tls.key, "PEM file of its private key");
  app.add_option("--grpc-root-cert", config.tls.root_certificates,
                 "PEM file of the certificates that clients' are checked by");
  app.add_option("--grpc-reflection", config.reflection, "Tell clients which methods there are, as grpcurl asks");
  app.add_option("--grpc-restricted-protocol", config.restricted_protocols,
                 "NAMES:KEY=VALUE: calls of these protocols must carry the header triton-grpc-protocol-KEY with this "
                 "value; names with commas between them, of " +
                     absl::StrJoin(kProtocolNames, ", ") + "; may be repeated")
      ->expected(1)
      ->take_all();
}

CLI::App* AddHealthcheck(CLI::App& app, HealthProbe& probe) {
  CLI::App* command = app.add_subcommand("healthcheck", "Ask a running server for its readiness and exit 0 or 1");
  command->option_defaults()->always_capture_default();
  CLI::Option* port = command->add_option("--grpc-port", probe.grpc_port, "gRPC port of the server on this machine")
                          ->check(CLI::Range(1, 65535));
  CLI::Option* socket =
      command->add_option("--grpc-unix-socket", probe.unix_socket, "Its Unix socket, instead of a port");
  socket->excludes(port);
  command->add_option("--service", probe.service, "'' is readiness, 'liveness' the process, a model's name that model");
  CLI::Option* tls =
      command->add_flag("--tls", probe.tls, "The port speaks TLS; the server's certificate is not checked")
          ->excludes(socket);
  CLI::Option* certificate =
      command->add_option("--client-cert", probe.certificate, "PEM file of the certificate to show")->needs(tls);
  CLI::Option* key = command->add_option("--client-key", probe.key, "PEM file of its private key")->needs(certificate);
  certificate->needs(key);
  return command;
}

absl::StatusOr<ProtocolAccess> ParseRestrictedProtocols(std::span<const std::string> flags) {
  ProtocolAccess access;
  for (const absl::string_view flag : flags) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(flag, absl::MaxSplits(':', 1));
    const size_t equals = parts.second.find('=');
    // A flag that cannot be read may hold the secret anywhere: it is not repeated.
    if (equals == absl::string_view::npos) return BadRestriction("NAMES:KEY=VALUE", "something else");
    SLUICE_ASSIGN_OR_RETURN(const RequiredHeader header,
                            ReadHeader(parts.second.substr(0, equals), parts.second.substr(equals + 1)));
    for (const absl::string_view name : absl::StrSplit(parts.first, ',')) {
      const auto* const found = std::find(kProtocolNames.begin(), kProtocolNames.end(), name);
      if (found == kProtocolNames.end()) {
        return BadRestriction(absl::StrCat("names of ", absl::StrJoin(kProtocolNames, ", ")),
                              absl::StrCat("'", name, "'"));
      }
      std::optional<RequiredHeader>& place = access[static_cast<size_t>(found - kProtocolNames.begin())];
      if (place.has_value()) return BadRestriction("each protocol once", absl::StrCat("'", name, "' again"));
      place = header;
    }
  }
  return access;
}

absl::Status ValidateListen(const ListenConfig& config, int grpc_port, int metrics_port) {
  SLUICE_RETURN_IF_ERROR(ValidatePorts(config, grpc_port, metrics_port));
  SLUICE_RETURN_IF_ERROR(ValidateConnections(config.connections));
  SLUICE_RETURN_IF_ERROR(ValidateLimits(config.limits));
  SLUICE_RETURN_IF_ERROR(ValidateTls(config));
  return ParseRestrictedProtocols(config.restricted_protocols).status();
}

}  // namespace sluice::server
