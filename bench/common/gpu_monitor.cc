// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/gpu_monitor.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::bench {
namespace {

/// nvmlClocksEventReasons: software power cap, hardware slowdown, software and hardware thermal slowdown, power brake.
constexpr uint64_t kCapped = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

/// The process and the end of its output to read from; {-1, -1} when it could not be started.
std::pair<pid_t, int> Spawn(const std::vector<std::string>& command) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return {-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (failed == 0) return {child, pipe_ends[0]};
  close(pipe_ends[0]);
  return {-1, -1};
}

}  // namespace

std::unique_ptr<GpuMonitor> GpuMonitor::Start(int ordinal, const Clock& clock) {
  const auto [child, output] = Spawn({"nvidia-smi", absl::StrCat("--id=", ordinal),
                                      "--query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active",
                                      "--format=csv,noheader,nounits", "--loop-ms=100"});
  return child < 0 ? nullptr : std::unique_ptr<GpuMonitor>(new GpuMonitor(child, output, clock));
}

GpuMonitor::GpuMonitor(pid_t child, int output, const Clock& clock)
    : child_(child), clock_(clock), thread_("gpu-monitor", [this, output] { Run(output); }) {}

GpuMonitor::~GpuMonitor() {
  kill(child_, SIGTERM);
  waitpid(child_, nullptr, 0);
}

void GpuMonitor::Run(int output) {
  FILE* const lines = fdopen(output, "r");
  char line[256];
  while (fgets(line, sizeof(line), lines) != nullptr) {
    Reading reading{.at = clock_.Now()};
    uint64_t reasons = 0;
    if (sscanf(line, "%lf, %lf, %lf, %" SCNx64, &reading.mhz, &reading.watts, &reading.celsius, &reasons) < 3) continue;
    reading.capped = (reasons & kCapped) != 0;
    MutexLock lock(mutex_);
    if (readings_.size() >= kMostReadings) readings_.erase(readings_.begin(), readings_.begin() + kMostReadings / 2);
    readings_.push_back(reading);
  }
  fclose(lines);
}

std::optional<GpuState> GpuMonitor::Between(Time from, Time to) const {
  MutexLock lock(mutex_);
  GpuState state;
  double count = 0;
  for (const Reading& reading : readings_) {
    if (reading.at < from || reading.at > to) continue;
    state.least_mhz = count == 0 ? reading.mhz : std::min(state.least_mhz, reading.mhz);
    state.mean_mhz += reading.mhz;
    state.mean_watts += reading.watts;
    state.most_celsius = std::max(state.most_celsius, reading.celsius);
    state.capped = state.capped || reading.capped;
    ++count;
  }
  if (count == 0) return std::nullopt;
  state.mean_mhz /= count;
  state.mean_watts /= count;
  return state;
}

}  // namespace sluice::bench
