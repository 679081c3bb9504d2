// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/host/host_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu::host {
namespace {

constexpr size_t kTouchBytes = 4096;  // The smallest page there is.

size_t MachineMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return size_t{1} << 40;  // Unknown: malloc itself is the limit then.
  return static_cast<size_t>(pages) * static_cast<size_t>(page_bytes);
}

}  // namespace

void HostMemory::FreeAligned::operator()(std::byte* data) const { std::free(data); }

HostMemory::HostMemory(size_t limit_bytes, std::string name, MemoryBudget* parent)
    : limit_bytes_(limit_bytes == 0 ? MachineMemoryBytes() : limit_bytes),
      budget_({.name = std::move(name), .counted_limit = limit_bytes_, .parent = parent}) {}

absl::StatusOr<std::byte*> HostMemory::Allocate(size_t size_bytes, MemoryKind kind) {
  if (size_bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  SLUICE_RETURN_IF_ERROR(budget_.Reserve(size_bytes, kind));
  // aligned_alloc wants a multiple of the alignment; the limit keeps the sum from overflowing.
  const size_t rounded_bytes = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded_bytes));
  if (data == nullptr) {
    budget_.Release(size_bytes, kind);
    return absl::ResourceExhaustedError(absl::StrCat("the system refused ", size_bytes, " bytes"));
  }
  for (size_t offset = 0; offset < rounded_bytes; offset += kTouchBytes) data[offset] = std::byte{0};
  data[rounded_bytes - 1] = std::byte{0};
  MutexLock lock(mutex_);
  blocks_.emplace(data, Block{std::unique_ptr<std::byte, FreeAligned>(data), size_bytes, kind});
  return data;
}

absl::Status HostMemory::Free(std::byte* data, size_t size_bytes) {
  MutexLock lock(mutex_);
  const auto block = blocks_.find(data);
  if (block == blocks_.end()) return absl::InternalError("freeing memory that the device did not allocate");
  if (block->second.size_bytes != size_bytes) {
    return absl::InternalError(
        absl::StrCat("freeing ", size_bytes, " bytes of an allocation of ", block->second.size_bytes, " bytes"));
  }
  budget_.Release(size_bytes, block->second.kind);
  blocks_.erase(block);
  return absl::OkStatus();
}

size_t HostMemory::allocation_count() const {
  MutexLock lock(mutex_);
  return blocks_.size();
}

}  // namespace sluice::gpu::host
