// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice::model {

/// Memory that is needed from one launch to another, both included.
struct MemoryRequest {
  size_t size_bytes = 0;
  size_t first_launch = 0;
  size_t last_launch = 0;
};

struct MemoryLayout {
  std::vector<size_t> offsets = {};  ///< One per request, multiples of the alignment.
  size_t total_bytes = 0;
};

/// Places requests in one block so that those alive at the same time do not overlap: largest first, each into the
/// smallest gap that holds it. The total is never more than the sum of the (aligned) sizes. `alignment` is a power of
/// two. Quadratic in the number of requests.
MemoryLayout PlanMemory(std::span<const MemoryRequest> requests, size_t alignment);

/// `size_bytes` rounded up to a multiple of `alignment`.
constexpr size_t AlignUp(size_t size_bytes, size_t alignment) {
  return (size_bytes + alignment - 1) & ~(alignment - 1);
}

}  // namespace sluice::model
