// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/numa.h"

namespace sluice::gpu::cuda {
namespace {

size_t MachineMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;  // Unknown: the driver itself is the limit then.
  return static_cast<size_t>(pages) * static_cast<size_t>(page_bytes);
}

MemoryBudgetOptions DeviceBudget(int ordinal, const DeviceInfo& info, size_t limit_bytes) {
  const size_t usable = info.total_bytes - std::min(kCudaMemoryReserveBytes, info.total_bytes / 16);
  MemoryBudgetOptions options;
  options.name = info.name;
  options.total_limit = limit_bytes == 0 ? usable : std::min(limit_bytes, usable);
  options.probe = [ordinal]() -> absl::StatusOr<size_t> {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaMemGetInfo(&free_bytes, &total_bytes)));
    return total_bytes - std::min(free_bytes, total_bytes);
  };
  return options;
}

}  // namespace

CudaMemory::CudaMemory(int ordinal, const DeviceInfo& info, const CudaDeviceOptions& options)
    : budget_(DeviceBudget(ordinal, info, options.memory_limit_bytes)),
      own_pinned_budget_({.name = "host memory", .counted_limit = MachineMemoryBytes()}),
      pinned_budget_(options.pinned_memory == nullptr ? own_pinned_budget_ : *options.pinned_memory),
      numa_node_(NumaNodeOf(ordinal)) {}

absl::StatusOr<DeviceSpan> CudaMemory::AllocateDevice(size_t size_bytes, MemoryKind kind) {
  if (size_bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  SLUICE_RETURN_IF_ERROR(budget_.Reserve(size_bytes, kind));
  void* data = nullptr;
  if (absl::Status status = SLUICE_CUDA_STATUS(cudaMalloc(&data, size_bytes)); !status.ok()) {
    budget_.Release(size_bytes, kind);
    return status;
  }
  const DeviceSpan span = {static_cast<std::byte*>(data), size_bytes};
  MutexLock lock(mutex_);
  device_blocks_[span.data] = {size_bytes, kind};
  return span;
}

absl::StatusOr<PinnedSpan> CudaMemory::AllocatePinned(size_t size_bytes, MemoryKind kind) {
  if (size_bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  SLUICE_RETURN_IF_ERROR(pinned_budget_.Reserve(size_bytes, kind));
  void* data = nullptr;
  void* on_device = nullptr;
  absl::Status status;
  {
    const NumaPreference here(numa_node_, numa_refused_);
    status = SLUICE_CUDA_STATUS(cudaHostAlloc(&data, size_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  }
  if (status.ok()) status = SLUICE_CUDA_STATUS(cudaHostGetDevicePointer(&on_device, data, 0));
  if (!status.ok()) {
    if (data != nullptr) {
      const absl::Status freed = SLUICE_CUDA_STATUS(cudaFreeHost(data));
      if (!freed.ok()) Log(Severity::kError, "pinned memory was not freed", {{"error", freed.ToString()}});
    }
    pinned_budget_.Release(size_bytes, kind);
    return status;
  }
  const PinnedSpan span = {static_cast<std::byte*>(data), static_cast<std::byte*>(on_device), size_bytes};
  MutexLock lock(mutex_);
  pinned_blocks_[span.data] = {size_bytes, kind};
  return span;
}

absl::StatusOr<CudaMemory::Block> CudaMemory::Take(Blocks& blocks, const std::byte* data, size_t size_bytes) {
  const auto found = blocks.find(data);
  if (found == blocks.end()) return absl::InternalError("freeing memory that the device did not allocate");
  const Block block = found->second;
  if (block.size_bytes != size_bytes) {
    return absl::InternalError(
        absl::StrCat("freeing ", size_bytes, " bytes of an allocation of ", block.size_bytes, " bytes"));
  }
  blocks.erase(found);
  return block;
}

absl::Status CudaMemory::Free(DeviceSpan memory) {
  Block block;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(block, Take(device_blocks_, memory.data, memory.size_bytes));
  }
  absl::Status status = SLUICE_CUDA_STATUS(cudaFree(memory.data));
  if (status.ok()) budget_.Release(block.size_bytes, block.kind);  // Otherwise it is in use still.
  return status;
}

absl::Status CudaMemory::Free(PinnedSpan memory) {
  Block block;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(block, Take(pinned_blocks_, memory.data, memory.size_bytes));
  }
  absl::Status status = SLUICE_CUDA_STATUS(cudaFreeHost(memory.data));
  if (status.ok()) pinned_budget_.Release(block.size_bytes, block.kind);
  return status;
}

}  // namespace sluice::gpu::cuda
