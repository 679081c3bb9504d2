// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/host/host_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::gpu::host {
namespace {

size_t MachineMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return size_t{1} << 40;  // Unknown: malloc itself is the limit then.
  return static_cast<size_t>(pages) * static_cast<size_t>(page_bytes);
}

}  // namespace

void HostMemory::FreeAligned::operator()(std::byte* data) const { std::free(data); }

HostMemory::HostMemory(size_t limit_bytes) : limit_bytes_(limit_bytes == 0 ? MachineMemoryBytes() : limit_bytes) {}

absl::StatusOr<std::byte*> HostMemory::Allocate(size_t size_bytes) {
  if (size_bytes == 0) return absl::InvalidArgumentError("an allocation of 0 bytes");
  MutexLock lock(mutex_);
  if (size_bytes > limit_bytes_ - allocated_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size_bytes, " bytes: ", allocated_bytes_,
                                                     " of ", limit_bytes_, " are in use"));
  }
  // aligned_alloc wants a multiple of the alignment; the limit keeps the sum from overflowing.
  const size_t rounded_bytes = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded_bytes));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("the system refused ", size_bytes, " bytes"));
  }
  blocks_.emplace(data, Block{std::unique_ptr<std::byte, FreeAligned>(data), size_bytes});
  allocated_bytes_ += size_bytes;
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
  allocated_bytes_ -= size_bytes;
  blocks_.erase(block);
  return absl::OkStatus();
}

size_t HostMemory::allocated_bytes() const {
  MutexLock lock(mutex_);
  return allocated_bytes_;
}

size_t HostMemory::allocation_count() const {
  MutexLock lock(mutex_);
  return blocks_.size();
}

}  // namespace sluice::gpu::host
