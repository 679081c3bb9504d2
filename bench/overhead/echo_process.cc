// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/echo_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/overhead/echo_server.h"
#include "grpcpp/support/slice.h"

namespace sluice::bench {
namespace {

bool WriteAll(int descriptor, const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(descriptor, at, size);
    if (written <= 0) return false;
    at += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int descriptor, void* bytes, size_t size) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t count = read(descriptor, at, size);
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

bool Send(int descriptor, const grpc::ByteBuffer& answer) {
  std::vector<grpc::Slice> slices;
  if (!answer.Dump(&slices).ok()) return false;
  const uint64_t size = answer.Length();
  bool sent = WriteAll(descriptor, &size, sizeof(size));
  for (const grpc::Slice& slice : slices) sent = sent && WriteAll(descriptor, slice.begin(), slice.size());
  return sent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EchoProcess>> EchoProcess::Start(const grpc::ByteBuffer& answer, int thread_count) {
  std::array<int, 2> to{}, from{};
  if (pipe2(to.data(), O_CLOEXEC) != 0) return absl::InternalError("no pipe for the echo's process");
  if (pipe2(from.data(), O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    return absl::InternalError("no pipe for the echo's process");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::string name = "overhead", argument = kArgument, threads = absl::StrCat(thread_count);
  const std::array<char*, 4> arguments = {name.data(), argument.data(), threads.data(), nullptr};
  pid_t process = 0;
  const int error = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  if (error != 0) {
    close(to[1]);
    close(from[0]);
    return absl::InternalError(absl::StrCat("the echo's process: ", std::strerror(error)));
  }
  std::unique_ptr<EchoProcess> started(new EchoProcess(process, to[1]));
  int32_t port = 0;
  const bool ready = Send(to[1], answer) && ReadAll(from[0], &port, sizeof(port));
  close(from[0]);
  if (!ready) return absl::InternalError("the echo's process did not start");
  started->address_ = absl::StrCat("127.0.0.1:", port);
  return started;
}

EchoProcess::~EchoProcess() {
  close(to_process_);
  waitpid(process_, nullptr, 0);
}

int EchoProcess::ServeEcho(int thread_count) {
  uint64_t size = 0;
  if (!ReadAll(STDIN_FILENO, &size, sizeof(size))) return 1;
  std::string bytes(size, '\0');
  if (!ReadAll(STDIN_FILENO, bytes.data(), size)) return 1;
  const grpc::Slice slice(bytes);
  const auto server = EchoServer::Start(grpc::ByteBuffer(&slice, 1), thread_count);
  if (!server.ok()) {
    std::fprintf(stderr, "overhead: %s\n", std::string(server.status().message()).c_str());
    return 1;
  }
  const int32_t port = (*server)->port();
  char end = 0;
  if (!WriteAll(STDOUT_FILENO, &port, sizeof(port))) return 1;
  while (read(STDIN_FILENO, &end, 1) > 0) {
  }
  return 0;
}

}  // namespace sluice::bench
