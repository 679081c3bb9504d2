// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace sluice::client {

/// When and how often a failed inference is sent again. Off by default.
struct RetryPolicy {
  int max_attempts = 1;                                ///< With the first one; 1 is no retry, 10 is the most.
  absl::Duration first_wait = absl::Milliseconds(50);  ///< Doubles with each attempt; the server's push-back wins.
  absl::Duration longest_wait = absl::Milliseconds(2000);
};

/// Paths of PEM files; they are read when the channels are opened.
struct TlsOptions {
  std::string root_certificates;  ///< That the server's is checked by; empty: those of the system.
  std::string certificate;        ///< The client's, with those that lead to its root; empty: it shows none.
  std::string key;                ///< Its private key.
};

struct ClientOptions {
  std::string address;            ///< host:port, or unix:PATH
  std::optional<TlsOptions> tls;  ///< Nothing: plain text.
  int channel_count = 1;          ///< TCP connections, used in turn; 1 to 64.
  int64_t max_message_bytes = std::numeric_limits<int32_t>::max();
  absl::Duration default_deadline = absl::Seconds(30);  ///< Of calls that name none. Must be positive.
  /// How long Connect may wait for each connection; zero connects at the first call instead.
  absl::Duration connect_timeout = absl::Seconds(5);
  RetryPolicy retry;
};

/// Opens `options.channel_count` channels, each with a connection of its own, and waits until all are connected.
/// INVALID_ARGUMENT names the option that is out of range or the file that cannot be read; UNAVAILABLE when nothing
/// answers at the address.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> OpenChannels(const ClientOptions& options);

}  // namespace sluice::client
