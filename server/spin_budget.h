// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace sluice::server {

/// Threads that poll instead of sleeping. On a GPU the work is microseconds long and a sleeping thread takes tens of
/// them to wake; without CPUs to spare a polling thread takes them from the ones that have work to do.
struct SpinBudget {
  bool launchers = false;         ///< Each CUDA device's launcher, while it has work.
  bool standard_threads = false;  ///< All standard threads of each CUDA device, while they wait for it.
  int latency_threads = 0;        ///< So many latency threads of each CUDA device, always.
  bool io_thread = false;         ///< One I/O thread, always.
};

/// Shares out `cpus` (affinity and the cgroup's quota), one CPU each: the launchers, one latency thread a device, one
/// I/O thread, leaving two to threads that sleep; then the other latency threads, up to `latency_threads` a device, and
/// at last the `standard_threads` of each device, as long as half of the CPUs are left. Below four CPUs, or without a
/// CUDA device, nothing polls: the host device's kernels need the CPUs.
SpinBudget MakeSpinBudget(int cpus, int cuda_devices, int latency_threads, int standard_threads);

/// How many request threads a CUDA device's latency lane has: `request_threads`, and more where more may poll. A third
/// request that comes while two are on the device starts beside them instead of behind them, but only a thread that is
/// awake is faster than that wait.
inline int LatencyThreads(const SpinBudget& budget, int request_threads) {
  return std::max(request_threads, budget.latency_threads);
}

}  // namespace sluice::server
