// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/memory_budget.h"

namespace sluice::server {

/// The memory this process may use, and what is in use of it.
struct ContainerMemory {
  size_t limit_bytes = 0;
  size_t used_bytes = 0;  ///< By everything under that limit; file pages that can be dropped are left out.
  std::string source;     ///< The file that says so.
  size_t room_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

/// Of the cgroup (version 2: memory.max, memory.current) of this process and those above it, and of the machine
/// (MemTotal, MemAvailable): the one with the least room. `root` is "/" but in tests. FAILED_PRECONDITION when nothing
/// can be read.
absl::StatusOr<ContainerMemory> ReadContainerMemory(const std::string& root = "/");

/// Kept free for the process's own heap, messages and stacks: a sixteenth of the limit, 1 GiB at most.
size_t HostMemoryReserve(size_t limit_bytes);

/// The budget of pinned memory and of what host devices use: `pinned_limit` bytes (0: no limit of its own) and never
/// more than the container has left but the reserve. FAILED_PRECONDITION with the numbers when `pinned_limit` is more
/// than that already. `response_bytes` are kept free besides, for the response pool; the same error when they do not
/// fit.
absl::StatusOr<std::unique_ptr<gpu::MemoryBudget>> MakeHostMemoryBudget(int64_t pinned_limit,
                                                                        const std::string& root = "/",
                                                                        size_t response_bytes = 0);

}  // namespace sluice::server
