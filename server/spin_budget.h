// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::server {

/// Threads that poll instead of sleeping. On a GPU the work is microseconds long and a sleeping thread takes tens of
/// them to wake; without CPUs to spare a polling thread takes them from the ones that have work to do.
struct SpinBudget {
  bool launchers = false;        ///< Each CUDA device's launcher, while it has work.
  bool latency_threads = false;  ///< One latency thread of each CUDA device, always.
  bool io_thread = false;        ///< One I/O thread, always.
};

/// Shares out `cpus` (affinity and the cgroup's quota) in this order, one CPU each, and leaves two to threads that
/// sleep. Below four CPUs, or without a CUDA device, nothing spins: the host device's kernels need the CPUs.
SpinBudget MakeSpinBudget(int cpus, int cuda_devices);

}  // namespace sluice::server
