// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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
  void Stall();

 private:
  struct Link {
    int client = -1;
    int server = -1;
  };
  void Run();
  void Accept();
  /// Passes on what is there; false when one end is closed.
  static bool Pass(int from, int to);
  void Wake();

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  int wake_[2] = {-1, -1};
  std::atomic<bool> stalled_ = false;
  std::atomic<bool> stopping_ = false;
  std::vector<Link> links_;  ///< The thread's own.
  std::unique_ptr<Thread> thread_;
};

}  // namespace sluice::testing
