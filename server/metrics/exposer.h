// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

/// Records for a while and returns a document of JSON. Blocks an HTTP thread for as long, so the owner of the recorder
/// must end a recording before this server is stopped. Called on the HTTP server's threads, possibly at once: ABORTED
/// when one is under way already.
using TraceSource = absl::AnyInvocable<absl::StatusOr<std::string>(absl::Duration) const>;

/// What a loaded model looks like, as a document of JSON, by its name and version (empty: the newest). Called on the
/// HTTP server's threads, possibly at once, and must not block for long. NOT_FOUND for a model that is not there,
/// UNAVAILABLE while it is not ready, INVALID_ARGUMENT for a version that is no number.
using InspectSource = absl::AnyInvocable<absl::StatusOr<std::string>(const std::string&, const std::string&) const>;

/// HTTP for machines that watch the server: GET and HEAD of /metrics (Prometheus text), /healthz and /readyz (200 or
/// 503); GET of /trace?seconds=S, if there is a source (200 with JSON after S seconds, 400 for a wrong S, 409 while
/// another one is recorded, 503 when stopping, 404 when tracing is off); GET of /inspect?model=NAME&version=V, if there
/// is a source (200 with JSON, 400 without a name or with a wrong version, 404 for an unknown model, 503 while it is
/// not ready). Purpose: scrape, probes, traces and models on one port. Bounds: four threads, so that neither a slow
/// client nor a trace starves the probes; a connection may take 10 s to send its request. Ownership: `metrics` must
/// outlive it. Threads: the library's own. Errors: only at start.
class MetricsServer {
 public:
  /// INVALID_ARGUMENT for a port out of range; FAILED_PRECONDITION naming address and port when they cannot be listened
  /// on.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const MetricsServerOptions& options,
                                                              const Metrics& metrics, HealthProbes probes,
                                                              TraceSource trace = nullptr,
                                                              InspectSource inspect = nullptr);
  virtual ~MetricsServer() = default;
  /// The port listened on.
  virtual int port() const = 0;
  /// Stops listening, after waiting up to 2 s for the answers under way. Idempotent; also done by the destructor.
  virtual void Stop() = 0;
};

}  // namespace sluice::metrics
