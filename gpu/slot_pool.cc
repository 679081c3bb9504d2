// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/slot_pool.h"

#include <algorithm>
#include <cassert>

namespace sluice::gpu {
namespace {
constexpr absl::Duration kStopPoll = absl::Milliseconds(2);
}  // namespace

SlotLease::~SlotLease() {
  if (slot_ != nullptr) pool_->Release(slot_);
}

SlotPool::SlotPool(std::vector<std::unique_ptr<Slot>> slots) : slots_(std::move(slots)) {
  free_.reserve(slots_.size());
  for (const std::unique_ptr<Slot>& slot : slots_) free_.push_back(slot.get());
}

SlotPool::~SlotPool() { assert(free_count() == slots_.size()); }

SlotLease SlotPool::TryAcquire() {
  MutexLock lock(mutex_);
  if (free_.empty()) return {};
  Slot* slot = free_.back();
  free_.pop_back();
  return {this, slot};
}

SlotLease SlotPool::Acquire(const Clock& clock, Time deadline, const std::atomic<bool>* stop) {
  MutexLock lock(mutex_);
  while (free_.empty()) {
    if (stop != nullptr && stop->load(std::memory_order_acquire)) return {};
    const Time now = clock.Now();
    if (now >= deadline) return {};
    released_.WaitUntil(mutex_, stop == nullptr ? deadline : std::min(deadline, now + kStopPoll));
  }
  Slot* slot = free_.back();
  free_.pop_back();
  return {this, slot};
}

size_t SlotPool::free_count() const {
  MutexLock lock(mutex_);
  return free_.size();
}

void SlotPool::Release(Slot* slot) {
  {
    MutexLock lock(mutex_);
    free_.push_back(slot);
  }
  released_.NotifyOne();
}

}  // namespace sluice::gpu
