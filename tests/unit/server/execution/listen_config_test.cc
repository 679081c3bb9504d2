// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the flags of ports, TLS, limits and restricted protocols mean what --help says, and wrong ones stop the start
// with a sentence that names the flag. Method: tables.
#include "server/listen_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/config.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ParsedFlags> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"sluice-server", "--model-repository", "m"});
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
}

TEST(ListenFlags, ReadsLimits) {
  const auto flags =
      Parse({"--max-concurrent-streams=7", "--max-connection-age-secs=600", "--max-connection-age-grace-secs=1.5",
             "--max-connection-idle-secs=0", "--keepalive-time-secs=30", "--keepalive-timeout-secs=3",
             "--min-ping-interval-secs=0.5", "--max-request-tensors=3", "--max-tensor-rank=4",
             "--max-request-parameters=5", "--max-name-bytes=60"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const ConnectionLimits& connections = flags->config.listen.connections;
  EXPECT_EQ(connections.max_concurrent_streams, 7);
  EXPECT_EQ(connections.max_age, absl::Minutes(10));
  EXPECT_EQ(connections.max_age_grace, absl::Seconds(1.5));
  EXPECT_EQ(connections.max_idle, absl::ZeroDuration());
  EXPECT_EQ(connections.keepalive_time, absl::Seconds(30));
  EXPECT_EQ(connections.keepalive_timeout, absl::Seconds(3));
  EXPECT_EQ(connections.min_ping_interval, absl::Seconds(0.5));
  const ParseLimits& limits = flags->config.listen.limits;
  EXPECT_EQ(limits.tensors, 3u);
  EXPECT_EQ(limits.dimensions, 4u);
  EXPECT_EQ(limits.parameters, 5u);
  EXPECT_EQ(limits.name_bytes, 60u);
}

TEST(ListenFlags, KeepsDefaults) {
  const ListenConfig config = Parse({})->config.listen;
  EXPECT_EQ(config.connections.max_concurrent_streams, 1024);
  EXPECT_EQ(config.connections.max_age, absl::ZeroDuration());
  EXPECT_EQ(config.connections.max_idle, absl::Hours(1));
  EXPECT_FALSE(config.latency_port.has_value());
  EXPECT_EQ(config.unix_socket, "");
  EXPECT_FALSE(config.use_tls || config.mutual_tls);
}

TEST(ListenFlags, ReadsPortsAndTls) {
  const auto flags = Parse({"--latency-port=0", "--grpc-unix-socket=/run/s", "--grpc-use-ssl-mutual=1",
                            "--grpc-server-cert=c", "--grpc-server-key=k", "--grpc-root-cert=r"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const ListenConfig& config = flags->config.listen;
  EXPECT_EQ(config.latency_port, 0);
  EXPECT_EQ(config.unix_socket, "/run/s");
  EXPECT_TRUE(config.mutual_tls);
  EXPECT_EQ(config.tls.certificate, "c");
  EXPECT_EQ(config.tls.key, "k");
  EXPECT_EQ(config.tls.root_certificates, "r");
}

TEST(ListenFlags, RefusesWhatIsWrongAndNamesIt) {
  const std::string long_path = "--grpc-unix-socket=/" + std::string(107, 'p');
  const std::vector<std::pair<std::vector<const char*>, std::string>> table = {
      {{"--max-concurrent-streams=0"}, "--max-concurrent-streams: expected 1 to"},
      {{"--max-connection-age-secs=-1"}, "--max-connection-age-secs: expected 1 to"},
      {{"--max-connection-age-secs=0.5"}, "--max-connection-age-secs"},
      {{"--max-connection-age-secs=nan"}, "--max-connection-age-secs"},
      {{"--max-connection-age-grace-secs=-1"}, "--max-connection-age-grace-secs"},
      {{"--max-connection-idle-secs=1e9"}, "--max-connection-idle-secs"},
      {{"--keepalive-time-secs=0"}, "--keepalive-time-secs"},
      {{"--keepalive-timeout-secs=0"}, "--keepalive-timeout-secs"},
      {{"--min-ping-interval-secs=0"}, "--min-ping-interval-secs"},
      {{"--min-ping-interval-secs=often"}, "--min-ping-interval-secs"},
      {{"--max-request-tensors=0"}, "--max-request-tensors"},
      {{"--max-tensor-rank=-3"}, "--max-tensor-rank"},
      {{"--max-request-parameters=100000"}, "--max-request-parameters"},
      {{"--max-name-bytes=15"}, "--max-name-bytes: expected 16 to"},
      {{"--latency-port=65536"}, "--latency-port"},
      {{"--latency-port=8001"}, "--latency-port: expected a port other than"},
      {{"--latency-port=8002"}, "--latency-port: expected a port other than"},
      {{long_path.c_str()}, "--grpc-unix-socket: expected a path of at most 107 bytes, got 108"},
      {{"--grpc-server-cert=c", "--grpc-server-key=k"}, "--grpc-server-cert: expected --grpc-use-ssl beside it"},
      {{"--grpc-server-key=k"}, "--grpc-server-key: expected --grpc-use-ssl beside it"},
      {{"--grpc-use-ssl=1"}, "--grpc-server-cert: expected the path"},
      {{"--grpc-use-ssl=1", "--grpc-server-cert=c"}, "--grpc-server-key: expected the path"},
      {{"--grpc-use-ssl-mutual=1", "--grpc-server-cert=c", "--grpc-server-key=k"},
       "--grpc-root-cert: expected the path"},
      {{"--grpc-use-ssl=1", "--grpc-server-cert=c", "--grpc-server-key=k", "--grpc-root-cert=r"},
       "--grpc-root-cert: expected --grpc-use-ssl-mutual beside it"},
      {{"--grpc-root-cert=r"}, "--grpc-root-cert"},
  };
  for (const auto& [arguments, words] : table) {
    const auto flags = Parse(arguments);
    ASSERT_FALSE(flags.ok()) << words;
    EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr(words));
  }
}

TEST(RestrictedProtocols, ReadsNamesAndHeaders) {
  const auto flags = Parse({"--grpc-restricted-protocol", "model-repository,logging:admin=a=b:c",
                            "--grpc-restricted-protocol=health:probe=x"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const auto access = ParseRestrictedProtocols(flags->config.listen.restricted_protocols);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto header = [&access](Protocol protocol) { return (*access)[static_cast<size_t>(protocol)]; };
  for (const Protocol protocol : {Protocol::kModelRepository, Protocol::kLogging}) {
    ASSERT_TRUE(header(protocol).has_value());
    EXPECT_EQ(header(protocol)->name, "triton-grpc-protocol-admin");
    EXPECT_EQ(header(protocol)->value, "a=b:c");
  }
  EXPECT_EQ(header(Protocol::kHealth)->value, "x");
  EXPECT_FALSE(header(Protocol::kInference).has_value());
}

// Not even a flag that cannot be read may put the secret into an error.
TEST(RestrictedProtocols, RefusesWhatIsWrongWithoutTheSecret) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"--grpc-restricted-protocol=health:key", "NAMES:KEY=VALUE"},
      {"--grpc-restricted-protocol=health,secret", "NAMES:KEY=VALUE"},
      {"--grpc-restricted-protocol=secret=health", "NAMES:KEY=VALUE"},
      {"--grpc-restricted-protocol=:key=secret", "names of health"},
      {"--grpc-restricted-protocol=health,:key=secret", "names of health"},
      {"--grpc-restricted-protocol=helth:key=secret", "got 'helth'"},
      {"--grpc-restricted-protocol=health,health:key=secret", "got 'health' again"},
      {"--grpc-restricted-protocol=health:Key=secret", "got 'Key'"},
      {"--grpc-restricted-protocol=health:=secret", "a key of lower-case letters"},
      {"--grpc-restricted-protocol=health:key-bin=secret", "got 'key-bin'"},
      {"--grpc-restricted-protocol=health:key=", "got one of 0 bytes"},
      {"--grpc-restricted-protocol=health:key=a secret", "printable"},
      {"--grpc-restricted-protocol=health:key=secret\xC3\xA4", "printable"},
  };
  for (const auto& [argument, words] : table) {
    const auto flags = Parse({argument});
    ASSERT_FALSE(flags.ok()) << argument;
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr("--grpc-restricted-protocol: expected"));
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr(words));
    EXPECT_THAT(std::string(flags.status().message()), Not(HasSubstr("secret")));
  }
}

TEST(Healthcheck, ReadsWhereToAsk) {
  const auto parse = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"sluice-server", "healthcheck"});
    return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
  };
  const auto port = parse({"--grpc-port=9001", "--tls", "--client-cert=c", "--client-key=k", "--service=liveness"});
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(port->health_probe->grpc_port, 9001);
  EXPECT_TRUE(port->health_probe->tls);
  EXPECT_EQ(port->health_probe->certificate, "c");
  EXPECT_EQ(port->health_probe->key, "k");
  EXPECT_EQ(port->health_probe->service, "liveness");
  EXPECT_EQ(parse({"--grpc-unix-socket=/run/s"})->health_probe->unix_socket, "/run/s");
  EXPECT_FALSE(parse({"--grpc-port=0"}).ok());
  EXPECT_FALSE(parse({"--client-cert=c", "--client-key=k"}).ok());
  EXPECT_FALSE(parse({"--tls", "--client-cert=c"}).ok());
  EXPECT_FALSE(parse({"--tls", "--client-key=k"}).ok());
  EXPECT_FALSE(parse({"--grpc-unix-socket=/run/s", "--tls"}).ok());
}

}  // namespace
}  // namespace sluice::server
