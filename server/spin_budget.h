// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::server {

/// Threads that poll instead of sleeping. On a GPU the work is microseconds long and a sleeping thread takes tens of
/// them to wake; without CPUs to spare a polling thread takes them from the ones that have work to do.
struct SpinBudget {
  bool launchers = false;   ///< Each CUDA device's launcher, while it has work.
  int latency_threads = 0;  ///< So many latency threads of each CUDA device, always.
  bool io_thread = false;   ///< One I/O thread, always.
};

/// Shares out `cpus` (affinity and the cgroup's quota), one CPU each: the launchers, one latency thread a device, one
/// I/O thread, leaving two to threads that sleep; then the other latency threads, up to `latency_threads` a device, as
/// long as half of the CPUs are left. Below four CPUs, or without a CUDA device, nothing polls: the host device's
/// kernels need the CPUs.
SpinBudget MakeSpinBudget(int cpus, int cuda_devices, int latency_threads);

}  // namespace sluice::server
