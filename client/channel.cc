// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/channel.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
  return absl::OkStatus();
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
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < options.channel_count; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
    // Channels with equal arguments would otherwise share one connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels.push_back(grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments));
  }
  if (options.connect_timeout > absl::ZeroDuration()) {
    for (const auto& channel : channels) {
      if (absl::Status status = WaitForConnection(*channel, options); !status.ok()) return status;
    }
  }
  return channels;
}

}  // namespace sluice::client
