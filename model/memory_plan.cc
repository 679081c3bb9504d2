// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice::model {
namespace {

struct Placed {
  size_t offset = 0;
  size_t size_bytes = 0;
  size_t request = 0;
};

bool Overlap(const MemoryRequest& a, const MemoryRequest& b) {
  return a.first_launch <= b.last_launch && b.first_launch <= a.last_launch;
}

/// Where `size_bytes` fit best between the placed requests alive at the same time, which are in order of offset.
size_t BestOffset(std::span<const MemoryRequest> requests, const std::vector<Placed>& placed,
                  const MemoryRequest& request, size_t size_bytes) {
  size_t best = std::numeric_limits<size_t>::max();
  size_t best_gap = std::numeric_limits<size_t>::max();
  size_t end = 0;  // Of what lies below the gap that is looked at.
  for (const Placed& other : placed) {
    if (!Overlap(requests[other.request], request)) continue;
    if (other.offset > end) {
      const size_t gap = other.offset - end;
      if (gap >= size_bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
    }
    end = std::max(end, other.offset + other.size_bytes);
  }
  return best == std::numeric_limits<size_t>::max() ? end : best;
}

}  // namespace

MemoryLayout PlanMemory(std::span<const MemoryRequest> requests, size_t alignment) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].size_bytes > requests[b].size_bytes; });
  MemoryLayout layout{.offsets = std::vector<size_t>(requests.size(), 0)};
  std::vector<Placed> placed;
  for (const size_t index : order) {
    const size_t size_bytes = AlignUp(requests[index].size_bytes, alignment);
    if (size_bytes == 0) continue;
    const Placed here{BestOffset(requests, placed, requests[index], size_bytes), size_bytes, index};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), here,
                                   [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                  here);
    layout.offsets[index] = here.offset;
    layout.total_bytes = std::max(layout.total_bytes, here.offset + size_bytes);
  }
  return layout;
}

}  // namespace sluice::model
