// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: with TLS only those who may get an answer, files that do not fit stop the start, and files that change are
// served. Method: real connections with certificates made for the test.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "certificates.h"
#include "rpc_fixture.h"
#include "server/rpc/health_check.h"
#include "tests/support/temporary_folder.h"

namespace sluice::rpc {
namespace {

using testing::HasSubstr;

class RpcTlsTest : public RpcTest {
 protected:
  std::string Path(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  /// The pair in a folder of its own behind the link `live`, put there in one step.
  void PutLive(const Identity& identity) {
    const std::string name = absl::StrCat("pair", ++pairs_);
    std::filesystem::create_directory(Path(name));
    Write(name + "/cert.pem", identity.certificate);
    Write(name + "/key.pem", identity.key);
    std::filesystem::create_symlink(name, Path("next"));
    std::filesystem::rename(Path("next"), Path("live"));
  }

  RpcOptions TlsOptionsOf(bool mutual) {
    RpcOptions options;
    options.tls =
        server::TlsFiles{.certificate = Path("live/cert.pem"), .key = Path("live/key.pem"), .root_certificates = ""};
    if (mutual) options.tls->root_certificates = Write("roots.pem", authority_.certificate());
    options.tls_reload_interval = absl::Seconds(1);
    return options;
  }

  void StartTls(bool mutual) {
    PutLive(authority_.Issue("first"));
    StartServer(TlsOptionsOf(mutual));
  }

  /// The answer to one call on a connection of its own; `served` gets the name in the server's certificate.
  grpc::Status Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials, std::string* served = nullptr) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->port()), credentials, arguments));
    grpc::ClientContext context;
    inference::ServerLiveResponse response;
    const grpc::Status status = stub->ServerLive(&context, {}, &response);
    if (status.ok() && served != nullptr) {
      const std::vector<grpc::string_ref> names = context.auth_context()->FindPropertyValues("x509_common_name");
      *served = names.empty() ? "" : std::string(names[0].data(), names[0].size());
    }
    return status;
  }

  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const CertificateAuthority& authority,
                                                            const Identity& identity = {}) {
    return grpc::SslCredentials({.pem_root_certs = authority.certificate(),
                                 .pem_private_key = identity.key,
                                 .pem_cert_chain = identity.certificate});
  }

  /// Makes new connections until one is served the certificate of that name; a minute at most.
  bool AwaitServed(const std::string& name) const {
    const Time end = clock_.Now() + absl::Minutes(1);
    std::string served;
    while (served != name && clock_.Now() < end) Call(Trusting(authority_), &served);
    return served == name;
  }

  absl::Status StartWith(const server::TlsFiles& files) {
    RpcOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.tls = files;
    return RpcServer::Start(options, backend_, observer_, clock_).status();
  }

  const TemporaryFolder folder_;
  int pairs_ = 0;
  CertificateAuthority authority_{"ours"};
  CertificateAuthority stranger_{"theirs"};
};

TEST_F(RpcTlsTest, ServesWhoTrustsItAndSpeaksTls) {
  StartTls(/*mutual=*/false);
  std::string served;
  const grpc::Status status = Call(Trusting(authority_), &served);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(served, "first");
  EXPECT_EQ(Call(grpc::InsecureChannelCredentials()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(Trusting(stranger_)).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcTlsTest, MutualNeedsACertificateOfOurs) {
  StartTls(/*mutual=*/true);
  const grpc::Status status = Call(Trusting(authority_, authority_.Issue("client")));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Call(Trusting(authority_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(Trusting(authority_, stranger_.Issue("client"))).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The connection that is there goes on; a pair that does not match is not the end.
TEST_F(RpcTlsTest, ServesWhatTheFilesBecome) {
  StartTls(/*mutual=*/false);
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), Trusting(authority_));
  const auto old_stub = inference::GRPCInferenceService::NewStub(channel);
  const auto still_served = [&old_stub] {
    grpc::ClientContext context;
    inference::ServerLiveResponse response;
    return old_stub->ServerLive(&context, {}, &response).ok();
  };
  EXPECT_TRUE(still_served());
  PutLive(authority_.Issue("second"));
  EXPECT_TRUE(AwaitServed("second"));
  EXPECT_TRUE(still_served());
  PutLive({authority_.Issue("third").certificate, authority_.Issue("other").key});
  PutLive(authority_.Issue("fourth"));
  EXPECT_TRUE(AwaitServed("fourth"));
}

TEST_F(RpcTlsTest, BadFilesStopTheStart) {
  const Identity identity = authority_.Issue("server");
  const std::string certificate = Write("cert.pem", identity.certificate);
  const std::string key = Write("key.pem", identity.key);
  const std::string other_key = Write("other.pem", authority_.Issue("other").key);
  const std::string garbage = Write("garbage.pem", "no certificate");
  const std::string missing = Path("missing.pem");
  const std::vector<std::pair<server::TlsFiles, std::string>> table = {
      {{missing, key, ""}, "--grpc-server-cert"},
      {{garbage, key, ""}, "--grpc-server-cert"},
      {{key, key, ""}, "--grpc-server-cert"},
      {{certificate, missing, ""}, "--grpc-server-key"},
      {{certificate, garbage, ""}, "--grpc-server-key"},
      {{certificate, other_key, ""}, "--grpc-server-key"},
      {{certificate, key, missing}, "--grpc-root-cert"},
      {{certificate, key, garbage}, "--grpc-root-cert"},
      {{certificate, key, other_key}, "--grpc-root-cert"}};
  for (const auto& [files, flag] : table) {
    const absl::Status status = StartWith(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(flag));
  }
  EXPECT_TRUE(StartWith({certificate, key, ""}).ok());
}

// `sluice-server healthcheck`: what exec probes of a port with TLS call.
TEST_F(RpcTlsTest, HealthcheckSpeaksTls) {
  StartTls(/*mutual=*/true);
  const Identity client = authority_.Issue("probe");
  server::HealthProbe probe;
  probe.grpc_port = server_->port();
  EXPECT_FALSE(CheckHealth(probe));
  probe.tls = true;
  EXPECT_FALSE(CheckHealth(probe));
  probe.certificate = Write("client.pem", client.certificate);
  probe.key = Write("client.key", client.key);
  EXPECT_TRUE(CheckHealth(probe));
  probe.service = "liveness";
  EXPECT_TRUE(CheckHealth(probe));
  probe.service = "nobody";
  EXPECT_FALSE(CheckHealth(probe));
}

}  // namespace
}  // namespace sluice::rpc
