// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/channel.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "grpc/support/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace sluice::client {
namespace {

constexpr int kMostChannels = 64;
constexpr int kMostAttempts = 10;

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.address.empty()) return absl::InvalidArgumentError("address: is empty; give host:port");
  if (options.channel_count < 1 || options.channel_count > kMostChannels) {
    return absl::InvalidArgumentError(absl::StrCat("channel_count: must be 1 to ", kMostChannels));
  }
  if (options.max_message_bytes < 1 || options.max_message_bytes > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError("max_message_bytes: must be 1 to 2147483647");
  }
  if (options.default_deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("default_deadline: must be positive");
  }
  if (options.retry.max_attempts < 1 || options.retry.max_attempts > kMostAttempts) {
    return absl::InvalidArgumentError(absl::StrCat("retry.max_attempts: must be 1 to ", kMostAttempts));
  }
  if (options.tls.has_value() && options.tls->certificate.empty() != options.tls->key.empty()) {
    return absl::InvalidArgumentError("tls: give both certificate and key, or neither");
  }
  return absl::OkStatus();
}

absl::Status ReadPem(const std::string& path, std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (!text.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tls: cannot read '", path, "', or it is empty"));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(const ClientOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions pem;
  SLUICE_RETURN_IF_ERROR(ReadPem(options.tls->root_certificates, pem.pem_root_certs));
  SLUICE_RETURN_IF_ERROR(ReadPem(options.tls->certificate, pem.pem_cert_chain));
  SLUICE_RETURN_IF_ERROR(ReadPem(options.tls->key, pem.pem_private_key));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(pem);
  if (credentials == nullptr) return absl::InvalidArgumentError("tls: certificate and key are not a pair in PEM form");
  return credentials;
}

// Ends at the first failure instead of at the timeout: a refused connection is known at once.
absl::Status WaitForConnection(grpc::Channel& channel, const ClientOptions& options) {
  const gpr_timespec until =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(options.connect_timeout), GPR_TIMESPAN));
  grpc_connectivity_state state = channel.GetState(true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(absl::StrCat("cannot connect to ", options.address));
    }
    if (!channel.WaitForStateChange(state, until)) {
      return absl::UnavailableError(absl::StrCat("no connection to ", options.address, " within ",
                                                 absl::FormatDuration(options.connect_timeout)));
    }
    state = channel.GetState(true);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> OpenChannels(const ClientOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, MakeCredentials(options));
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < options.channel_count; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
    // Channels with equal arguments would otherwise share one connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels.push_back(grpc::CreateCustomChannel(options.address, credentials, arguments));
  }
  if (options.connect_timeout > absl::ZeroDuration()) {
    for (const auto& channel : channels) {
      if (absl::Status status = WaitForConnection(*channel, options); !status.ok()) return status;
    }
  }
  return channels;
}

}  // namespace sluice::client
