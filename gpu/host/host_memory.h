// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "gpu/memory_budget.h"

namespace sluice::gpu::host {

/// Memory of one host device: aligned, counted, limited. Purpose: say "no" with a status instead of being killed later.
/// Every page is touched when it is allocated, so that none is missing when a request comes and the system's own count
/// is true. Bounds: `limit_bytes` in all, 0 for the machine's memory, and `parent`'s where there is one, which must
/// outlive this. Ownership: frees what is left when destroyed. Threads: any; load time only. Errors: INVALID_ARGUMENT
/// for no bytes, RESOURCE_EXHAUSTED beyond the limit, INTERNAL when freeing what was not allocated here or with another
/// size.
class HostMemory {
 public:
  static constexpr size_t kAlignment = 64;

  explicit HostMemory(size_t limit_bytes, std::string name = "host memory", MemoryBudget* parent = nullptr);

  absl::StatusOr<std::byte*> Allocate(size_t size_bytes, MemoryKind kind = MemoryKind::kOther);
  absl::Status Free(std::byte* data, size_t size_bytes);

  MemoryBudget& budget() { return budget_; }
  size_t limit_bytes() const { return limit_bytes_; }
  size_t allocated_bytes() const { return budget_.use().counted(); }
  size_t allocation_count() const;

 private:
  struct FreeAligned {
    void operator()(std::byte* data) const;
  };
  struct Block {
    std::unique_ptr<std::byte, FreeAligned> data;
    size_t size_bytes = 0;
    MemoryKind kind = MemoryKind::kOther;
  };

  const size_t limit_bytes_;
  MemoryBudget budget_;
  mutable Mutex mutex_;
  std::map<const std::byte*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gpu::host
