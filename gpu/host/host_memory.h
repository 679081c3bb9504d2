// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sluice::gpu::host {

/// Memory of one host device: aligned, counted, limited. Purpose: say "no" with a status instead of being killed later.
/// Bounds: `limit_bytes` in all, 0 for the machine's memory. Ownership: frees what is left when destroyed. Threads:
/// any; load time only. Errors: INVALID_ARGUMENT for no bytes, RESOURCE_EXHAUSTED beyond the limit, INTERNAL when
/// freeing what was not allocated here or with another size.
class HostMemory {
 public:
  static constexpr size_t kAlignment = 64;

  explicit HostMemory(size_t limit_bytes);

  absl::StatusOr<std::byte*> Allocate(size_t size_bytes);
  absl::Status Free(std::byte* data, size_t size_bytes);

  size_t limit_bytes() const { return limit_bytes_; }
  size_t allocated_bytes() const;
  size_t allocation_count() const;

 private:
  struct FreeAligned {
    void operator()(std::byte* data) const;
  };
  struct Block {
    std::unique_ptr<std::byte, FreeAligned> data;
    size_t size_bytes = 0;
  };

  const size_t limit_bytes_;
  mutable Mutex mutex_;
  std::map<const std::byte*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  size_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::gpu::host
