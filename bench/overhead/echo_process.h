// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice::bench {

/// An EchoServer in a process of its own, as the server that is measured has: in the caller's process both would share
/// gRPC's one set of polled descriptors, and each other's threads. Ownership: the process ends with this object.
/// Threads: one.
class EchoProcess {
 public:
  /// Runs this program again, which must call `ServeEcho` when its first argument is `kArgument`. INTERNAL when that
  /// fails.
  static absl::StatusOr<std::unique_ptr<EchoProcess>> Start(const grpc::ByteBuffer& answer, int thread_count);
  ~EchoProcess();
  EchoProcess(const EchoProcess&) = delete;
  EchoProcess& operator=(const EchoProcess&) = delete;

  static constexpr char kArgument[] = "--serve-echo";
  /// The other side: reads the answer from standard input, serves it on `thread_count` threads, prints its port, and
  /// ends when standard input does. Returns the process's exit code.
  static int ServeEcho(int thread_count);

  /// host:port
  const std::string& address() const { return address_; }

 private:
  EchoProcess(pid_t process, int to_process) : process_(process), to_process_(to_process) {}

  const pid_t process_;
  const int to_process_;
  std::string address_;
};

}  // namespace sluice::bench
