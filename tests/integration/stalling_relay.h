// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread.h"

namespace sluice::testing {

/// Stands between a client and a server on loopback and passes bytes on, until it is told to stop passing what the
/// server sends: to the server that is a client that no longer reads. A gRPC client in the server's own process cannot
/// be made to stop: all of gRPC's threads poll one set of sockets. Threads: one of its own; methods from any.
class StallingRelay {
 public:
  explicit StallingRelay(int server_port);
  /// Closes all connections.
  ~StallingRelay();
  int port() const { return port_; }
  /// From here on nothing of what the server sends is read.
  void Stall() { StallAfter(0); }
  /// The same once this much has been passed to the server: a large request needs the server's permission to go on.
  void StallAfter(size_t sent_bytes);

 private:
  struct Link {
    int client = -1;
    int server = -1;
  };
  void Run();
  void Accept();
  bool stalled() const { return sent_bytes_ >= stall_after_; }
  /// Passes on what is there and says how much; 0 when one end is closed.
  static size_t Pass(int from, int to);
  void Wake();

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  int wake_[2] = {-1, -1};
  std::atomic<size_t> stall_after_ = SIZE_MAX;
  std::atomic<bool> stopping_ = false;
  std::vector<Link> links_;  ///< The thread's own, as is the next.
  size_t sent_bytes_ = 0;
  std::unique_ptr<Thread> thread_;
};

}  // namespace sluice::testing
