// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/commands/connection.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>

#include "client/errors.h"
#include "nlohmann/json.hpp"

namespace sluice::client {

ClientOptions ConnectionFlags::ToOptions() const {
  ClientOptions options;
  options.address = address;
  if (use_tls) options.tls = tls;
  options.connect_timeout = absl::Milliseconds(connect_timeout_ms);
  options.default_deadline = absl::Milliseconds(deadline_ms);
  return options;
}

namespace {

void AddFlags(CLI::App& command, ConnectionFlags& flags, const std::string& url, const std::string& deadline) {
  command.add_option("-u,--url", flags.address, url)->capture_default_str();
  command.add_option("--connect-timeout-ms", flags.connect_timeout_ms, "Longest wait for the connection")
      ->capture_default_str()
      ->check(CLI::Range(1, 600'000));
  command.add_option("--deadline-ms", flags.deadline_ms, deadline)
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400'000));
  command.footer("Exit codes: 0 success, 1 failed, 2 wrong usage, 3 server unreachable.");
}

}  // namespace

void AddConnectionFlags(CLI::App& command, ConnectionFlags& flags) {
  AddFlags(command, flags, "Address of the server, host:port or unix:PATH", "Deadline of each call");
  CLI::Option* tls = command.add_flag("--tls", flags.use_tls, "Speak TLS");
  command
      .add_option("--ca-cert", flags.tls.root_certificates,
                  "PEM file of the certificates that the server's is checked by; default those of the system")
      ->needs(tls);
  CLI::Option* certificate =
      command.add_option("--client-cert", flags.tls.certificate, "PEM file of the certificate to show")->needs(tls);
  CLI::Option* key =
      command.add_option("--client-key", flags.tls.key, "PEM file of its private key")->needs(certificate);
  certificate->needs(key);
}

void AddHttpConnectionFlags(CLI::App& command, ConnectionFlags& flags, const std::string& deadline) {
  flags.address = "localhost:8002";
  AddFlags(command, flags, "Metrics port of the server, host:port", deadline);
}

void PrintJson(const nlohmann::json& document) {
  std::cout << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void PrintError(const ConnectionFlags& flags, const absl::Status& status) {
  if (flags.json) {
    PrintJson({{"error", {{"code", CodeName(status.code())}, {"message", std::string(status.message())}}}});
    return;
  }
  std::cerr << "sluice: " << CodeName(status.code()) << ": " << status.message() << "\n";
}

std::unique_ptr<Client> ConnectOrExplain(const ConnectionFlags& flags, int& exit_code) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(flags.ToOptions());
  if (client.ok()) return *std::move(client);
  PrintError(flags, client.status());
  exit_code = client.status().code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitUnreachable;
  return nullptr;
}

}  // namespace sluice::client
