// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// sluice-server: flags, signals and exit codes. The only place that may exit.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>

#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/config.h"
#include "server/execution/tuner.h"
#include "server/rpc/health_check.h"
#include "server/rpc/polling_engine.h"
#include "server/server.h"

namespace sluice::server {
namespace {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitDeviceLost = 3,     ///< The supervisor should restart the process, perhaps elsewhere.
  kExitDrainTimedOut = 4,  ///< Requests in flight were cut off.
};

/// Each connection takes a descriptor; without one, the next client waits.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    Log(Severity::kWarning, "cannot raise the limit of open files", {{"limit", limit.rlim_cur}});
  }
}

int Fail(const absl::Status& status, ExitCode code) {
  Log(Severity::kError, "cannot start", {{"error", std::string(status.message())}});
  return code;
}

/// `sluice-server tune MODEL`.
int Tune(const ServerConfig& config, const std::string& model) {
  const MonotonicClock clock;
  const absl::StatusOr<TuneReport> report = TuneModel(config, model, clock, [](absl::string_view what) {
    Log(Severity::kInfo, "tuning", {{"step", what}});
  });
  if (!report.ok()) {
    Log(Severity::kError, "cannot tune", {{"model", model}, {"error", report.status().ToString()}});
    return kExitFailed;
  }
  std::printf("%s\n", ToJson(*report).c_str());
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

/// Waits for SIGTERM or SIGINT, or for a lost device. True: a signal.
bool WaitForEnd(int signal_fd, const Server& server) {
  constexpr int kLookMs = 200;  // a lost device ends the process within this
  pollfd poll_fd{.fd = signal_fd, .events = POLLIN, .revents = 0};
  while (true) {
    if (poll(&poll_fd, 1, kLookMs) > 0) return true;
    if (server.DeviceLost()) return false;
  }
}

/// A second signal, or a drain that outlasts its time, ends the process at once: gRPC's own shutdown may never return.
class Watchdog {
 public:
  Watchdog(int signal_fd, absl::Duration limit)
      : thread_("watchdog", [this, signal_fd, limit] {
          signalfd_siginfo info;
          // The first signal is still in the descriptor.
          [[maybe_unused]] const ssize_t first = read(signal_fd, &info, sizeof(info));
          const MonotonicClock clock;
          const Time end = clock.Now() + limit;
          pollfd poll_fd{.fd = signal_fd, .events = POLLIN, .revents = 0};
          while (!done_.load()) {
            if (poll(&poll_fd, 1, 50) > 0 || clock.Now() > end) {
              Log(Severity::kError, "shutdown was cut short");
              _exit(kExitDrainTimedOut);
            }
          }
        }) {}
  ~Watchdog() { done_.store(true); }

 private:
  std::atomic<bool> done_ = false;
  Thread thread_;
};

int Run(int argc, char** argv) {
  // Debian builds Abseil with its search for cycles of locks on, which costs each of gRPC's locks a global one.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const absl::StatusOr<ParsedFlags> flags = ParseFlags(argc, argv);
  if (!flags.ok()) {
    std::fprintf(stderr, "sluice-server: %s\nRun 'sluice-server --help' for the flags.\n",
                 std::string(flags.status().message()).c_str());
    return kExitUsage;
  }
  if (flags->exit_now) return kExitOk;
  if (flags->health_probe.has_value()) return rpc::CheckHealth(*flags->health_probe) ? kExitOk : kExitFailed;
  if (!flags->tune_model.empty()) return Tune(flags->config, flags->tune_model);
  const bool ports_apart = flags->config.listen.latency_port.has_value();
  if (const absl::Status status = rpc::ChoosePollingEngine(ports_apart); !status.ok()) return Fail(status, kExitUsage);
  RaiseDescriptorLimit();

  // Blocked before any thread starts, so that every thread inherits it and only this one sees the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signal_fd < 0) return Fail(absl::InternalError("signalfd failed"), kExitFailed);

  const MonotonicClock clock;
  auto server = Server::Start(flags->config, clock);
  if (!server.ok()) return Fail(server.status(), kExitFailed);
  if (const absl::Status status = (*server)->LoadModels(); !status.ok()) return Fail(status, kExitFailed);
  std::printf("%s\n", (*server)->ReadyLine().c_str());
  std::fflush(stdout);

  const bool signalled = WaitForEnd(signal_fd, **server);
  if (!signalled) Log(Severity::kError, "a device is lost");
  bool in_time = false;
  {
    // Room for what comes after the grace: cancelled calls, joins, the last scrape.
    Watchdog watchdog(signal_fd, flags->config.exit_timeout + absl::Seconds(5));
    in_time = (*server)->Shutdown(signalled ? flags->config.exit_timeout : absl::ZeroDuration());
    server->reset();
  }
  close(signal_fd);
  if (!signalled) return kExitDeviceLost;
  return in_time ? kExitOk : kExitDrainTimedOut;
}

}  // namespace
}  // namespace sluice::server

int main(int argc, char** argv) {
  try {
    return sluice::server::Run(argc, argv);
  } catch (const std::exception& error) {  // third-party start-up code throws; ours does not
    sluice::Log(sluice::Severity::kError, "unexpected exception", {{"error", error.what()}});
    return 1;
  }
}
