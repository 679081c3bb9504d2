// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/server.h"
#include "grpcpp/support/byte_buffer.h"
#include "inference.grpc.pb.h"

namespace sluice::bench {

/// The least a gRPC server can do with ModelInfer: the async API on one shared queue, raw bytes, and always the same
/// answer, without a look at the request. What a request costs beyond it is a server's own doing.
/// Bounds: `kArmedCalls` calls at once, more wait. Ownership: owns its port, queue and threads. Threads: Start and the
/// destructor by one thread. Errors: FAILED_PRECONDITION when it cannot listen.
class EchoServer {
 public:
  static constexpr int kArmedCalls = 64;

  /// Listens on a free port of the loopback with `thread_count` threads on its queue.
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(grpc::ByteBuffer answer, int thread_count);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  int port() const { return port_; }

 private:
  using Service = inference::GRPCInferenceService::WithRawMethod_ModelInfer<inference::GRPCInferenceService::Service>;
  struct Call;

  explicit EchoServer(grpc::ByteBuffer answer) : answer_(std::move(answer)) {}
  void Poll();

  const grpc::ByteBuffer answer_;
  int port_ = 0;
  Service service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<Thread> threads_;
};

}  // namespace sluice::bench
