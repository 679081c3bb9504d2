// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

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

/// Of memory that was lent out no more; whoever kept it cannot be told of a failure. A lost device frees nothing, and
/// has been reported once.
void FreePinned(std::byte* data) {
  const absl::Status freed = SLUICE_CUDA_STATUS(cudaFreeHost(data));
  if (!freed.ok() && !MeansDeviceLost(freed))
    Log(Severity::kError, "pinned memory was not freed", {{"error", freed.ToString()}});
}

}  // namespace

CudaMemory::CudaMemory(int ordinal, const DeviceInfo& info, const CudaDeviceOptions& options)
    : budget_(DeviceBudget(ordinal, info, options.memory_limit_bytes)),
      own_pinned_budget_({.name = "host memory", .counted_limit = MachineMemoryBytes()}),
      pinned_budget_(options.pinned_memory == nullptr ? own_pinned_budget_ : *options.pinned_memory),
      numa_node_(NumaNodeOf(ordinal)),
      kept_(options.kept_pinned_bytes) {
  pinned_budget_.AddReclaimer(this, [this] { FreeKept(); });
}

CudaMemory::~CudaMemory() {
  pinned_budget_.RemoveReclaimer(this);
  FreeKept();
}

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

absl::StatusOr<PinnedSpan> CudaMemory::LockPages(size_t size_bytes) {
  {
    MutexLock lock(mutex_);
    if (const std::optional<KeptBlocks::Block> kept = kept_.Take(size_bytes); kept.has_value()) {
      return PinnedSpan{kept->data, kept->device_data, size_bytes};
    }
  }
  void* data = nullptr;
  {
    const NumaPreference here(numa_node_, numa_refused_);
    SLUICE_RETURN_IF_ERROR(
        SLUICE_CUDA_STATUS(cudaHostAlloc(&data, size_bytes, cudaHostAllocMapped | cudaHostAllocPortable)));
  }
  void* on_device = nullptr;
  if (absl::Status status = SLUICE_CUDA_STATUS(cudaHostGetDevicePointer(&on_device, data, 0)); !status.ok()) {
    FreePinned(static_cast<std::byte*>(data));
    return status;
  }
  return PinnedSpan{static_cast<std::byte*>(data), static_cast<std::byte*>(on_device), size_bytes};
}

absl::StatusOr<PinnedSpan> CudaMemory::AllocatePinned(size_t size_bytes, MemoryKind kind) {
  if (size_bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  SLUICE_RETURN_IF_ERROR(pinned_budget_.Reserve(size_bytes, kind));
  absl::StatusOr<PinnedSpan> span = LockPages(size_bytes);
  if (absl::IsResourceExhausted(span.status())) {
    FreeKept();
    span = LockPages(size_bytes);
  }
  if (!span.ok()) {
    pinned_budget_.Release(size_bytes, kind);
    return span;
  }
  MutexLock lock(mutex_);
  pinned_blocks_[span->data] = {size_bytes, kind, span->device_data};
  return span;
}

void CudaMemory::FreeKept() {
  std::vector<KeptBlocks::Block> kept;
  {
    MutexLock lock(mutex_);
    kept = kept_.TakeAll();
  }
  for (const KeptBlocks::Block& block : kept) FreePinned(block.data);
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
  std::vector<KeptBlocks::Block> gone;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(block, Take(pinned_blocks_, memory.data, memory.size_bytes));
    gone = kept_.Keep({memory.data, block.device_data, block.size_bytes});
  }
  pinned_budget_.Release(block.size_bytes, block.kind);
  for (const KeptBlocks::Block& other : gone) FreePinned(other.data);
  return absl::OkStatus();
}

}  // namespace sluice::gpu::cuda
