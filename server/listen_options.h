// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// What both the flags and the gRPC front know of connections and of who may call what. Plain data.
namespace sluice::server {

/// Bounds on connections, and how dead or forgotten ones are found.
struct ConnectionLimits {
  int max_concurrent_streams = 1024;  ///< Per connection; bounds what one client can have under way.
  /// A connection is closed after this, give or take 10 %, so that clients behind a balancer of connections spread
  /// anew; zero: never. Off by default: opening the next one costs its first request one to two milliseconds.
  absl::Duration max_age = absl::ZeroDuration();
  absl::Duration max_age_grace = absl::Seconds(60);  ///< Then calls under way are cut off; above the longest deadline.
  /// A connection without calls is closed after this; zero: never. Gives back the descriptors of forgotten clients.
  absl::Duration max_idle = absl::Hours(1);
  absl::Duration keepalive_time = absl::Hours(2);  ///< How long a connection may be silent before the server pings.
  absl::Duration keepalive_timeout = absl::Seconds(20);
  /// Clients may ping this often, also without calls: 10 to 30 s are common, and gRPC's default of 5 min cuts them off.
  absl::Duration min_ping_interval = absl::Seconds(5);
};

/// Bounds on what a request message may ask us to allocate beyond its own size; no real request comes near them.
struct ParseLimits {
  size_t tensors = 1024;     ///< Inputs, outputs, raw entries: each.
  size_t dimensions = 64;    ///< Of one input.
  size_t parameters = 256;   ///< Of the request, of each input and output.
  size_t name_bytes = 4096;  ///< Of each name, version, datatype, key and of the id.
};

/// Files in PEM form. With `root_certificates`, clients must show a certificate that one of them signed.
struct TlsFiles {
  std::string certificate;  ///< The server's, followed by those that lead to its root.
  std::string key;
  std::string root_certificates;
};

/// Groups of calls that can be kept from those who do not know a header; Triton's.
enum class Protocol {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging
};
inline constexpr std::array<absl::string_view, 9> kProtocolNames = {"health",        "metadata",     "inference",
                                                                    "shared-memory", "model-config", "model-repository",
                                                                    "statistics",    "trace",        "logging"};

/// A header that calls of a protocol must carry. The value is a secret: it goes into no message, log or metric.
struct RequiredHeader {
  std::string name;
  std::string value;
};
/// By protocol; without a header anybody may call.
using ProtocolAccess = std::array<std::optional<RequiredHeader>, kProtocolNames.size()>;

/// What `sluice-server healthcheck` asks, and where.
struct HealthProbe {
  int grpc_port = 8001;     ///< On this machine.
  std::string unix_socket;  ///< Instead of the port, unless empty.
  std::string service;      ///< As in grpc.health.v1; empty: readiness.
  bool tls = false;         ///< The server's certificate is not checked: it is this machine that answers.
  std::string certificate;  ///< The client's, for a server that asks for one; empty: none.
  std::string key;
};

}  // namespace sluice::server
