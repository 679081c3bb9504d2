// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::rpc {
namespace {

absl::Status Refuse(const std::string& path, absl::string_view reason) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen for gRPC on the Unix socket '", path, "': ", reason));
}

/// The error of connecting to it; 0 when somebody listens.
int ConnectError(const std::string& path) {
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int result = connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = result == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

}  // namespace

absl::Status PrepareUnixSocket(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return Refuse(path, "the path is too long");
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Refuse(path, std::strerror(errno));
  }
  if (!S_ISSOCK(found.st_mode)) return Refuse(path, "a file that is no socket is there");
  const int error = ConnectError(path);
  if (error != ECONNREFUSED) return Refuse(path, error == 0 || error == EAGAIN ? "it is in use" : std::strerror(error));
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : Refuse(path, std::strerror(errno));
}

}  // namespace sluice::rpc
