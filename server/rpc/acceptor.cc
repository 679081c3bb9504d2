// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/rpc/unix_socket.h"

namespace sluice::rpc {
namespace {

constexpr int kAcceptedAtOnce = 64;
constexpr int kRetryMs = 50;  ///< Without descriptors: when to look again.

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const std::string& address, int port) {
  addrinfo hints{};
  absl::string_view host = address;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");  // an IPv6 address as in a URL
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen for gRPC on '", address, "': ", gai_strerror(error)));
  }
  return Addresses(found, &freeaddrinfo);
}

void SetOption(int descriptor, int level, int option, int value) {
  // Each is an improvement, none a condition.
  [[maybe_unused]] const int result = setsockopt(descriptor, level, option, &value, sizeof(value));
}

/// A listening socket, or -1 with errno. Connections inherit the options.
int Open(const sockaddr* address, socklen_t size, absl::Duration silence) {
  const int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  if (address->sa_family != AF_UNIX) {
    SetOption(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(silence)));
  }
  if (address->sa_family == AF_INET6) SetOption(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(descriptor, address, size) == 0 && listen(descriptor, SOMAXCONN) == 0) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

int PortOf(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<int> Acceptor::ListenOnPort(const std::string& address, int port, absl::Duration silence, Entry entry) {
  if (address == "0.0.0.0") {
    sockaddr_in6 everywhere{};
    everywhere.sin6_family = AF_INET6;
    everywhere.sin6_port = htons(static_cast<uint16_t>(port));
    const int descriptor = Open(reinterpret_cast<const sockaddr*>(&everywhere), sizeof(everywhere), silence);
    if (descriptor >= 0) {
      listeners_.push_back({descriptor, entry.get()});
      entries_.push_back(std::move(entry));
      return PortOf(descriptor);
    }
    // In use is in use; else there is no IPv6 here.
    if (errno == EADDRINUSE) {
      return absl::FailedPreconditionError(absl::StrCat("cannot listen for gRPC on port ", port, ": it is in use"));
    }
  }
  int chosen_port = port;
  SLUICE_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, port));
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    sockaddr_storage where{};
    std::memcpy(&where, one->ai_addr, one->ai_addrlen);
    (where.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                                 : reinterpret_cast<sockaddr_in&>(where).sin_port) =
        htons(static_cast<uint16_t>(chosen_port));
    const int descriptor = Open(reinterpret_cast<const sockaddr*>(&where), one->ai_addrlen, silence);
    if (descriptor < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot listen for gRPC on port ", port, " of '", address, "': ", std::strerror(errno)));
    }
    listeners_.push_back({descriptor, entry.get()});
    chosen_port = PortOf(descriptor);
  }
  entries_.push_back(std::move(entry));
  return chosen_port;
}

absl::Status Acceptor::ListenOnUnixSocket(const std::string& path, Entry entry) {
  SLUICE_RETURN_IF_ERROR(PrepareUnixSocket(path));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int descriptor = Open(reinterpret_cast<const sockaddr*>(&address), sizeof(address), absl::ZeroDuration());
  if (descriptor < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen for gRPC on the Unix socket '", path, "': ", std::strerror(errno)));
  }
  unix_path_ = path;
  listeners_.push_back({descriptor, entry.get()});
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status Acceptor::Start() {
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event_ < 0) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  thread_ = Thread("rpc-accept", [this] { Run(); });
  return absl::OkStatus();
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof(one));  // cannot be full
    thread_.Join();
  }
  for (const Listener& listener : listeners_) close(listener.descriptor);
  listeners_.clear();
  if (stop_event_ >= 0) close(std::exchange(stop_event_, -1));
  if (!unix_path_.empty()) unlink(std::exchange(unix_path_, "").c_str());
}

void Acceptor::Run() {
  std::vector<pollfd> waited = {{.fd = stop_event_, .events = POLLIN, .revents = 0}};
  for (const Listener& listener : listeners_) {
    waited.push_back({.fd = listener.descriptor, .events = POLLIN, .revents = 0});
  }
  bool starved = false;
  while (true) {
    // While there are none, the listeners are readable all the time: only the stop is waited for.
    const nfds_t count = starved ? 1 : waited.size();
    if (poll(waited.data(), count, starved ? kRetryMs : -1) < 0 && errno != EINTR) return;
    if (waited[0].revents != 0) return;
    bool accepted_all = true;
    for (const Listener& listener : listeners_) accepted_all &= AcceptFrom(listener);
    if (accepted_all == starved) {
      starved = !accepted_all;
      Log(Severity::kWarning, starved ? "a connection waits for a free descriptor" : "connections are accepted again");
    }
  }
}

bool Acceptor::AcceptFrom(const Listener& listener) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int connection = accept4(listener.descriptor, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN;
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listener.descriptor;
    parameters.fd = connection;
    listener.entry->HandleNewConnection(&parameters);
  }
  return true;
}

}  // namespace sluice::rpc
