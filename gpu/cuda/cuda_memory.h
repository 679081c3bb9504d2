// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "gpu/cuda/cuda_device_options.h"
#include "gpu/device.h"
#include "gpu/kept_blocks.h"
#include "gpu/memory_budget.h"

namespace sluice::gpu::cuda {

/// Device memory and pinned memory of one GPU. Purpose: every byte is counted before CUDA is asked for it, and what
/// CUDA says is in use beyond that (context, library handles, graphs, rounding, other processes) is known as well.
/// Bounds: device memory by CudaDeviceOptions, pinned memory by its budget, or the machine's memory. Pinned memory lies
/// on the GPU's NUMA node where there are several (numa.h), and what was freed of it is kept for a while, up to
/// CudaDeviceOptions::kept_pinned_bytes. Ownership: the device owns it; what is left when it goes is
/// the driver's to free. Threads: any; load time only; the device must be current. Errors: INVALID_ARGUMENT for no
/// bytes, RESOURCE_EXHAUSTED with the sum, INTERNAL when freeing what was not allocated here; cuda_status.h.
class CudaMemory {
 public:
  CudaMemory(int ordinal, const DeviceInfo& info, const CudaDeviceOptions& options);
  ~CudaMemory();

  MemoryBudget& budget() { return budget_; }
  MemoryBudget& pinned_budget() { return pinned_budget_; }

  absl::StatusOr<DeviceSpan> AllocateDevice(size_t size_bytes, MemoryKind kind);
  absl::StatusOr<PinnedSpan> AllocatePinned(size_t size_bytes, MemoryKind kind);
  absl::Status Free(DeviceSpan memory);
  absl::Status Free(PinnedSpan memory);

 private:
  struct Block {
    size_t size_bytes = 0;
    MemoryKind kind = MemoryKind::kOther;
    std::byte* device_data = nullptr;  ///< Of pinned memory.
  };
  using Blocks = std::map<const std::byte*, Block>;

  /// The block's facts, no longer kept; INTERNAL unless it is one, of that size.
  absl::StatusOr<Block> Take(Blocks& blocks, const std::byte* data, size_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<PinnedSpan> LockPages(size_t size_bytes);
  void FreeKept() ABSL_LOCKS_EXCLUDED(mutex_);

  MemoryBudget budget_;
  MemoryBudget own_pinned_budget_;  ///< For a device that is told none.
  MemoryBudget& pinned_budget_;
  const int numa_node_;  ///< -1: wherever.
  std::atomic<bool> numa_refused_ = false;
  Mutex mutex_;
  Blocks device_blocks_ ABSL_GUARDED_BY(mutex_);
  Blocks pinned_blocks_ ABSL_GUARDED_BY(mutex_);
  KeptBlocks kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gpu::cuda
