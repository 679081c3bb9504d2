// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace sluice {

Thread::Thread(absl::string_view name, absl::AnyInvocable<void()> body, int nice_increment)
    : thread_([name = std::string(name.substr(0, 15)), body = std::move(body), nice_increment]() mutable {
        pthread_setname_np(pthread_self(), name.c_str());
        if (nice_increment > 0) {
          // On Linux a thread has a nice level of its own; setpriority takes its thread id.
          const auto tid = static_cast<id_t>(syscall(SYS_gettid));
          if (setpriority(PRIO_PROCESS, tid, nice_increment) != 0) {
            Log(Severity::kWarning, "cannot lower a thread's priority",
                {{"thread", name}, {"error", std::strerror(errno)}});
          }
        }
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

Thread::~Thread() { Join(); }

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace sluice
