// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace sluice::scheduler {

/// Where a class queue gets the memory of responses from, before their requests start.
class ResponseMemory {
 public:
  virtual ~ResponseMemory() = default;
  /// Takes `size_bytes` for the execution that is about to start, which owns them from then on. False when there is no
  /// room; then ClassQueue::MemoryFreed is called once there may be. Any thread, under the queue's lock; never blocks.
  virtual bool TryReserve(size_t size_bytes) = 0;
};

}  // namespace sluice::scheduler
