// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/health_check.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "health.grpc.pb.h"

namespace sluice::rpc {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty()) return absl::NotFoundError(absl::StrCat("cannot read '", path, "', or it is empty"));
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const server::HealthProbe& probe) {
  if (!probe.tls) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!probe.certificate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(std::string certificate, ReadFile(probe.certificate));
    SLUICE_ASSIGN_OR_RETURN(std::string key, ReadFile(probe.key));
    options.set_certificate_provider(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
        std::vector<grpc::experimental::IdentityKeyCertPair>{{std::move(key), std::move(certificate)}}));
    options.watch_identity_key_cert_pairs();
  }
  // Its name is that of the service, not of the loopback address.
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

bool CheckHealth(const server::HealthProbe& probe) {
  const absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = Credentials(probe);
  if (!credentials.ok()) {
    std::printf("%s\n", std::string(credentials.status().message()).c_str());
    return false;
  }
  const auto channel = grpc::CreateChannel(probe.unix_socket.empty() ? absl::StrCat("127.0.0.1:", probe.grpc_port)
                                                                     : absl::StrCat("unix:", probe.unix_socket),
                                           *credentials);
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  // A monotonic deadline: the wall clock may be stepped.
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(2, GPR_TIMESPAN)));
  grpc::health::v1::HealthCheckResponse response;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(probe.service);
  const grpc::Status status = stub->Check(&context, request, &response);
  const bool serving = status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  std::printf("%s\n", serving ? "ready" : status.ok() ? "not ready" : status.error_message().c_str());
  return serving;
}

}  // namespace sluice::rpc
