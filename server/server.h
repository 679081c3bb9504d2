// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/call_metrics.h"
#include "server/config.h"
#include "server/execution/serving.h"
#include "server/metrics/exposer.h"
#include "server/metrics/metrics.h"
#include "server/rpc/rpc_server.h"

namespace sluice::server {

/// The composition root: builds everything a server is made of and takes it down in reverse. Threads: all methods from
/// one thread, but DeviceLost from any.
class Server {
 public:
  /// Starts devices, metrics and gRPC; live, not ready. The error says which flag or part failed.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config, const Clock& clock);
  ~Server();

  /// Loads the repository; afterwards the server is ready if its models are.
  absl::Status LoadModels();

  bool ready() const { return serving_->ready(); }
  bool DeviceLost() const { return serving_->DeviceLost(); }
  int grpc_port() const { return rpc_->port(); }
  std::optional<int> latency_port() const {
    return latency_rpc_ == nullptr ? std::nullopt : std::optional<int>(latency_rpc_->port());
  }
  int metrics_port() const { return metrics_server_->port(); }
  /// What is printed on stdout when the server is ready: one line of JSON with the ports and models.
  std::string ReadyLine() const;
  Serving& serving() { return *serving_; }

  /// Readiness off, no new requests, up to `grace` for those in flight, then the rest is cancelled; returns true when
  /// everything in flight was answered in time. The metrics port closes last, so that a final scrape exists.
  /// Idempotent.
  bool Shutdown(absl::Duration grace);

 private:
  Server() = default;
  absl::Status Listen(const ServerConfig& config, const Clock& clock);
  void HealthChanged();
  void DrainPorts(absl::Duration grace);

  const Clock* clock_ = nullptr;
  std::unique_ptr<metrics::Metrics> metrics_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<CallMetrics> call_metrics_;
  std::unique_ptr<metrics::MetricsServer> metrics_server_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  std::unique_ptr<rpc::RpcServer> latency_rpc_;  ///< Null without --latency-port.
  std::string unix_socket_;
  bool stopped_ = false;
};

}  // namespace sluice::server
