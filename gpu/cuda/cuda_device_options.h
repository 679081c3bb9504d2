// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gpu/kernels/tuning.h"

namespace sluice::gpu {

class MemoryBudget;

/// What a CUDA device is started with.
struct CudaDeviceOptions {
  /// Of all that is in use on the device, this process's context and other processes included; 0: all there is but
  /// kCudaMemoryReserveBytes or a sixteenth, whichever is less. More than that is cut to it.
  size_t memory_limit_bytes = 0;
  /// Counts and limits pinned memory; must outlive the device. None: the machine's memory is the limit.
  MemoryBudget* pinned_memory = nullptr;
  /// Freed pinned memory that is kept for later allocations of the same size (gpu/kept_blocks.h), uncounted; 0: none.
  size_t kept_pinned_bytes = size_t{256} << 20;
  TuningOptions tuning = {};
};

/// Kept free for what CUDA and its libraries allocate beside us: graphs, handles, trials of convolutions.
inline constexpr size_t kCudaMemoryReserveBytes = size_t{1} << 30;

}  // namespace sluice::gpu
