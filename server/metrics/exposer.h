// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"

namespace sluice::metrics {

struct MetricsServerOptions {
  std::string address = "0.0.0.0";  ///< IPv4, to listen on.
  int port = 8002;                  ///< 0: any free one.
};

/// What the probes answer. Both are called on the HTTP server's threads, possibly at once, and must not block.
struct HealthProbes {
  absl::AnyInvocable<bool() const> live;
  absl::AnyInvocable<bool() const> ready;
};

/// HTTP for machines that watch the server: GET and HEAD of /metrics (Prometheus text), /healthz and /readyz (200 or
/// 503). Purpose: scrape and probes on one port. Bounds: four threads, so that a slow client does not starve the
/// probes; a connection may take 10 s to send its request. Ownership: `metrics` must outlive it. Threads: the library's
/// own; Stop waits for requests being answered. Errors: only at start.
class MetricsServer {
 public:
  /// INVALID_ARGUMENT for a port out of range; FAILED_PRECONDITION naming address and port when they cannot be listened
  /// on.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const MetricsServerOptions& options,
                                                              const Metrics& metrics, HealthProbes probes);
  virtual ~MetricsServer() = default;
  /// The port listened on.
  virtual int port() const = 0;
  /// Stops listening. Idempotent; also done by the destructor.
  virtual void Stop() = 0;
};

}  // namespace sluice::metrics
