// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu {

/// All bounds of a host device.
struct HostDeviceOptions {
  int index = 0;                 ///< The device's name is "host:<index>".
  int threads = 1;               ///< Team size inside one kernel (OpenMP); the flag --host-threads.
  int compute_thread_count = 1;  ///< Kernels that run at once; more than one only with teams of one.
  bool copiers = false;  ///< A thread per copy direction, and pinned memory apart from device memory: for tests.
  size_t queue_capacity = 1024;    ///< Entries of one stream; a full one makes the issuer wait.
  int max_streams = 256;           ///< CreateStream beyond it is RESOURCE_EXHAUSTED.
  int max_thread_streams = 64;     ///< ThreadStream for more threads than this is RESOURCE_EXHAUSTED.
  size_t memory_limit_bytes = 0;   ///< Device and pinned memory together; 0 is the machine's memory.
  MemoryBudget* memory = nullptr;  ///< Of the machine or container, which must have room as well. Outlives the device.
};

/// The host as a device: the embedded default, and the reference every other backend is compared with.
///
/// Purpose: streams, events, graphs and priorities as on a GPU, run by `compute_thread_count` threads. Streams are FIFO
/// queues; the next kernel run is always the head of the highest-priority ready stream, and the oldest-issued one among
/// equals: a higher priority takes over at the next kernel, as on a GPU. Copies ignore priority when there are copiers.
/// Without copiers memory is unified: pinned and device memory are the same, and a copy between a pinned span and its
/// own device span does nothing.
/// Bounds: as in the options. Ownership: owns `library`; `clock` must outlive it, and so must the device everything
/// that was made by it. Threads: as in gpu::Device; starts one thread for each compute thread and copier. Destroying it
/// waits for outstanding work. Errors: INVALID_ARGUMENT for bad options.
absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options, const Clock& clock,
                                                         std::unique_ptr<KernelLibrary> library);

}  // namespace sluice::gpu
