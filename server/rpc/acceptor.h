// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/thread.h"

namespace sluice::rpc {

/// Accepts connections for a gRPC server. gRPC 1.51 does so itself until it has no descriptor for one, and then never
/// again; here such a connection waits in the kernel's queue until there is one. Bounds: that queue. Ownership: owns
/// the listening sockets; connections are gRPC's once they are handed over. Threads: one of its own, `rpc-accept`,
/// which blocks in poll; the methods from one thread at a time. Errors: when it is told to listen.
class Acceptor {
 public:
  /// Where a gRPC server takes connections.
  using Entry = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  Acceptor() = default;
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Listens on every address that `address` stands for; 0.0.0.0 is IPv6 too, where there is any. Connections whose
  /// peer acknowledges nothing for `silence` are cut. Returns the port, also when `port` is 0. FAILED_PRECONDITION
  /// naming address and port when one of them cannot be had, or nobody knows the name.
  absl::StatusOr<int> ListenOnPort(const std::string& address, int port, absl::Duration silence, Entry entry);
  /// Listens on a socket at `path`, which Stop removes. Errors as PrepareUnixSocket's.
  absl::Status ListenOnUnixSocket(const std::string& path, Entry entry);
  /// Begins to accept. The gRPC server must be started, and stay until Stop.
  absl::Status Start();
  /// Ends listening: who connects from now on is refused. Idempotent.
  void Stop();

 private:
  struct Listener {
    int descriptor;
    grpc::experimental::ExternalConnectionAcceptor* entry;
  };

  void Run();
  /// Hands over what waits there, up to a bound. False when the rest has to wait for a descriptor, or for memory.
  static bool AcceptFrom(const Listener& listener);

  std::vector<Listener> listeners_;  // constant while the thread runs, as the others
  std::vector<Entry> entries_;
  std::string unix_path_;
  int stop_event_ = -1;
  Thread thread_;
};

}  // namespace sluice::rpc
