// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/http.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

/// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string ErrnoText() { return strerrordesc_np(errno); }

/// Waits until `events` are there. The file descriptor does not block.
absl::Status Await(int fd, short events, absl::Duration timeout) {
  pollfd waited = {.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return absl::DeadlineExceededError("no answer in time");
  return ready > 0 ? absl::OkStatus() : absl::InternalError(ErrnoText());
}

absl::StatusOr<Socket> ConnectTo(const addrinfo& target, absl::Duration timeout) {
  Socket socket(::socket(target.ai_family, target.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, target.ai_protocol));
  if (socket.fd() < 0) return absl::InternalError(ErrnoText());
  if (connect(socket.fd(), target.ai_addr, target.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return absl::UnavailableError(ErrnoText());
  SLUICE_RETURN_IF_ERROR(Await(socket.fd(), POLLOUT, timeout));
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return absl::UnavailableError(strerrordesc_np(error));
  return socket;
}

absl::StatusOr<Socket> Connect(const std::string& host, const std::string& port, absl::Duration timeout) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("'", host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    absl::StatusOr<Socket> socket = ConnectTo(*target, timeout);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return absl::UnavailableError(absl::StrCat("nothing answers at ", host, ":", port, ": ", last.message()));
}

absl::Status Send(int fd, absl::string_view bytes, absl::Duration timeout) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      SLUICE_RETURN_IF_ERROR(Await(fd, POLLOUT, timeout));
    } else if (errno != EINTR) {
      return absl::UnavailableError(ErrnoText());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(int fd, const HttpOptions& options) {
  std::string all;
  std::string piece(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = recv(fd, piece.data(), piece.size(), 0);
    if (got == 0) return all;
    if (got > 0) {
      all.append(piece, 0, static_cast<size_t>(got));
      if (all.size() > options.most_bytes) return absl::DataLossError("the answer is too long");
    } else if (errno == EAGAIN) {
      SLUICE_RETURN_IF_ERROR(Await(fd, POLLIN, options.silence_timeout));
    } else if (errno != EINTR) {
      return absl::UnavailableError(ErrnoText());
    }
  }
}

absl::StatusOr<HttpAnswer> Parse(std::string text) {
  const size_t head_end = text.find("\r\n\r\n");
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text).substr(0, head_end == std::string::npos ? 0 : head_end), "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines.front(), ' ');
  HttpAnswer answer;
  if (!absl::StartsWith(lines.front(), "HTTP/1.") || words.size() < 2 || !absl::SimpleAtoi(words[1], &answer.status)) {
    return absl::DataLossError("the answer is not HTTP; is this the metrics port?");
  }
  const size_t body_start = head_end + 4;
  for (const absl::string_view line : lines) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    uint64_t length = 0;
    if (!absl::EqualsIgnoreCase(field.first, "content-length")) continue;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(field.second), &length) || length > text.size() - body_start) {
      return absl::DataLossError("the answer ended too early");
    }
    text.resize(body_start + static_cast<size_t>(length));
  }
  answer.body = text.substr(body_start);
  return answer;
}

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const std::string& address, const std::string& path, const HttpOptions& options) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--url: expected host:port, got '", address, "'"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);  // an IPv6 address
  SLUICE_ASSIGN_OR_RETURN(const Socket socket, Connect(host, absl::StrCat(port), options.connect_timeout));
  SLUICE_RETURN_IF_ERROR(
      Send(socket.fd(), absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n"),
           options.silence_timeout));
  SLUICE_ASSIGN_OR_RETURN(std::string text, ReadAll(socket.fd(), options));
  return Parse(std::move(text));
}

}  // namespace sluice::client
