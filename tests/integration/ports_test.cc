// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: everything a server listens on serves, and ends with it. Method: a whole server with a latency port, a Unix
// socket or TLS, and the client library at each.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/server/rpc/certificates.h"

namespace sluice::testing {
namespace {

class PortsTest : public ServerTest {
 protected:
  static absl::StatusOr<std::unique_ptr<client::Client>> Connect(
      const std::string& address, const std::optional<client::TlsOptions>& tls = std::nullopt) {
    client::ClientOptions options;
    options.address = address;
    options.tls = tls;
    return client::Client::Connect(options);
  }

  std::string LatencyAddress() const { return absl::StrCat("127.0.0.1:", *server_->latency_port()); }

  /// The class that a request had which went there and asked for `class_word`, if for any.
  std::string ClassAt(const std::string& address, const std::string& class_word = "") {
    const auto stub =
        inference::GRPCInferenceService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    if (!class_word.empty()) context.AddMetadata("sluice-class", class_word);
    inference::ModelInferResponse response;
    const grpc::Status status = stub->ModelInfer(&context, Request("double", 1), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.parameters().at("sluice_class").string_param();
  }

  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    std::ofstream(path) << text;
    return path;
  }

  const TemporaryFolder folder_;
};

TEST_F(PortsTest, LatencyPortGivesItsClass) {
  server::ServerConfig config = SmallConfig();
  config.listen.latency_port = 0;
  Start(config);
  const std::string port = absl::StrCat("127.0.0.1:", server_->grpc_port());
  EXPECT_EQ(ClassAt(port), "standard");
  EXPECT_EQ(ClassAt(LatencyAddress()), "latency");
  EXPECT_EQ(ClassAt(LatencyAddress(), "batch"), "batch");
  const nlohmann::json line = nlohmann::json::parse(server_->ReadyLine());
  EXPECT_EQ(line.at("latency_port"), *server_->latency_port());
  EXPECT_EQ(line.at("grpc_port"), server_->grpc_port());
  EXPECT_NE(server_->grpc_port(), *server_->latency_port());
}

TEST_F(PortsTest, NoLatencyPortUnlessAskedFor) {
  Start(SmallConfig());
  EXPECT_FALSE(server_->latency_port().has_value());
  EXPECT_FALSE(nlohmann::json::parse(server_->ReadyLine()).contains("latency_port"));
}

// What was begun on either port is answered, and then neither takes calls.
TEST_F(PortsTest, ShutdownDrainsBothPorts) {
  server::ServerConfig config = SmallConfig();
  config.listen.latency_port = 0;
  Start(config);
  const std::string latency_address = LatencyAddress();
  const std::string address = absl::StrCat("127.0.0.1:", server_->grpc_port());
  const auto latency_stub = inference::GRPCInferenceService::NewStub(
      grpc::CreateChannel(latency_address, grpc::InsecureChannelCredentials()));
  const std::unique_ptr<PendingCall> on_port = Begin(2048, RequestClass::kBatch);
  PendingCall on_latency_port(*latency_stub, Request("chain", 2048), RequestClass::kStandard);
  AwaitExecuting(2);
  EXPECT_TRUE(server_->Shutdown(absl::Minutes(5)));
  EXPECT_TRUE(on_port->Wait().ok()) << on_port->Wait().error_message();
  EXPECT_TRUE(on_latency_port.Wait().ok()) << on_latency_port.Wait().error_message();
  EXPECT_EQ(Connect(address).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Connect(latency_address).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PortsTest, UnixSocketServes) {
  server::ServerConfig config = SmallConfig();
  config.listen.unix_socket = absl::StrCat(folder_.path(), "/socket");
  Start(config);
  const auto client = Connect(absl::StrCat("unix:", config.listen.unix_socket));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(*(*client)->ServerReady());
  EXPECT_EQ(nlohmann::json::parse(server_->ReadyLine()).at("grpc_unix_socket"), config.listen.unix_socket);
  EXPECT_TRUE(server_->Shutdown(absl::Minutes(1)));
  EXPECT_FALSE(std::filesystem::exists(config.listen.unix_socket));
}

// The client library's half of TLS, and that it guards the latency port too, but not the socket.
TEST_F(PortsTest, TlsOnEveryPort) {
  rpc::CertificateAuthority authority("ours");
  rpc::CertificateAuthority stranger("theirs");
  const rpc::Identity identity = authority.Issue("server");
  const rpc::Identity client_identity = authority.Issue("client");
  server::ServerConfig config = SmallConfig();
  config.model_repository = repository_;
  config.address = "127.0.0.1";
  config.grpc_port = 0;
  config.metrics_port = 0;
  config.listen.latency_port = 0;
  config.listen.unix_socket = absl::StrCat(folder_.path(), "/socket");
  config.listen.mutual_tls = true;
  config.listen.tls = {Write("cert.pem", identity.certificate), Write("key.pem", identity.key),
                       Write("roots.pem", authority.certificate())};
  auto server = server::Server::Start(config, clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);

  const client::TlsOptions right = {.root_certificates = Write("ca.pem", authority.certificate()),
                                    .certificate = Write("client.pem", client_identity.certificate),
                                    .key = Write("client.key", client_identity.key)};
  client::TlsOptions trusts_a_stranger = right;
  trusts_a_stranger.root_certificates = Write("stranger.pem", stranger.certificate());
  for (const int port : {server_->grpc_port(), *server_->latency_port()}) {
    const std::string address = absl::StrCat("127.0.0.1:", port);
    const auto client = Connect(address, right);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(*(*client)->ServerLive());
    EXPECT_EQ(Connect(address, trusts_a_stranger).status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(Connect(absl::StrCat("unix:", config.listen.unix_socket)).ok());

  client::TlsOptions no_key = right;
  no_key.key.clear();
  EXPECT_EQ(Connect("127.0.0.1:1", no_key).status().code(), absl::StatusCode::kInvalidArgument);
  client::TlsOptions missing = right;
  missing.root_certificates = absl::StrCat(folder_.path(), "/missing.pem");
  EXPECT_EQ(Connect("127.0.0.1:1", missing).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::testing
