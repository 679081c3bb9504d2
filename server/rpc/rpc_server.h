// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/infer_request.h"
#include "server/listen_options.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/convert.h"
#include "server/rpc/health_calls.h"
#include "server/rpc/infer_call.h"
#include "server/rpc/rpc_observer.h"
#include "server/rpc/stream_infer_call.h"

namespace sluice::rpc {

struct RpcOptions {
  std::string address = "0.0.0.0";  ///< An IPv4 or IPv6 address, or a host name.
  int port = 8001;                  ///< 0: any free one.
  int io_threads = 2;               ///< 1 to 16.
  int polling_threads = 0;          ///< So many of them poll instead of sleeping; each takes a CPU. Up to io_threads.
  /// Longest message in and out. Clients of the protocol expect no smaller bound than the encoding's own.
  int max_message_bytes = std::numeric_limits<int32_t>::max();
  /// ModelInfer calls that are armed at any time. One at a time is a known bottleneck; more calls wait inside gRPC.
  int armed_calls = 64;
  /// ModelStreamInfer calls that may be open at once, on all connections; more are refused.
  int max_infer_streams = 1024;
  /// Requests of one such call that may be read and not yet answered and written; then it reads no more.
  int stream_requests = 256;
  server::ConnectionLimits connections;
  std::optional<server::TlsFiles> tls;                     ///< Of the port; nothing: plain text.
  absl::Duration tls_reload_interval = absl::Seconds(10);  ///< How often the files are looked at.
  std::string unix_socket;             ///< Path of a plain-text socket beside the port; empty: none.
  bool reflection = false;             ///< Also serve grpc.reflection.v1alpha, on a few threads of gRPC's.
  std::string thread_name = "rpc-io";  ///< Of the I/O threads, before their number.
  RequestPolicy policy;
};

/// The gRPC front of a server: inference and health services on one port and perhaps a Unix socket, one shared
/// completion queue and a few I/O threads that never block on anything else. Bounds: in RpcOptions; calls under way are
/// bounded by the connections' streams, and the backend bounds its queues. Ownership: backend, observer and clock must
/// outlive it; requests it gave to the backend may outlive it. Threads: every method from any thread; Drain and Stop
/// block. Errors: at Start only.
class RpcServer {
 public:
  /// Listens and serves. INVALID_ARGUMENT for options out of range and for files of TLS that do not fit;
  /// FAILED_PRECONDITION naming the port or socket when it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, server::InferenceBackend& backend,
                                                          RpcObserver& observer, const Clock& clock);
  ~RpcServer();

  int port() const { return port_; }
  /// Tells Watch streams that readiness or a model's state may have changed.
  void HealthChanged();
  /// Takes no more calls, waits up to `grace` for those under way, then cancels them, and returns when all are over and
  /// the I/O threads are gone. The backend's readiness should be off by then. Later calls wait for the first.
  void Drain(absl::Duration grace);
  /// Drain without grace.
  void Stop() { Drain(absl::ZeroDuration()); }

 private:
  RpcServer(const RpcOptions& options, server::InferenceBackend& backend, RpcObserver& observer, const Clock& clock);
  absl::Status Listen(const RpcOptions& options);
  void Serve(const RpcOptions& options);

  CallEnvironment environment_;
  HealthWatches watches_;
  StreamInferCalls streams_;
  const std::shared_ptr<InferCallPool> pool_;
  std::unique_ptr<grpc::Server> server_;
  Acceptor acceptor_;
  int port_ = 0;
  Mutex drain_mutex_;  // held for the whole of Drain: it is what later calls wait for; nothing else takes it
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
  std::vector<Thread> io_threads_;
};

}  // namespace sluice::rpc
