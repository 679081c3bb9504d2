// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/slot_pool.h"

#include <algorithm>
#include <cassert>

namespace sluice::gpu {
namespace {
constexpr absl::Duration kStopPoll = absl::Milliseconds(2);
constexpr size_t kUsualWaiters = 16;  ///< More than a lane's request threads.
}  // namespace

SlotLease::~SlotLease() {
  if (slot_ != nullptr) pool_->Release(slot_);
}

SlotPool::SlotPool(std::vector<std::unique_ptr<Slot>> slots) : slots_(std::move(slots)) {
  free_.reserve(slots_.size());
  waiting_.reserve(kUsualWaiters);
  for (const std::unique_ptr<Slot>& slot : slots_) free_.push_back(slot.get());
}

SlotPool::~SlotPool() { assert(free_count() == slots_.size()); }

SlotLease SlotPool::TryAcquire() {
  MutexLock lock(mutex_);
  return free_.size() > waiting_.size() ? TakeFree() : SlotLease();
}

SlotLease SlotPool::TakeFree() {
  Slot* slot = free_.back();
  free_.pop_back();
  return {this, slot};
}

SlotLease SlotPool::Acquire(const Clock& clock, Time deadline, const std::atomic<bool>* stop) {
  MutexLock lock(mutex_);
  const uint64_t ticket = ++last_ticket_;
  waiting_.push_back(ticket);
  SlotLease lease;
  while (true) {
    const auto place = std::find(waiting_.begin(), waiting_.end(), ticket);
    if (static_cast<size_t>(place - waiting_.begin()) < free_.size()) {
      lease = TakeFree();
      waiting_.erase(place);
      return lease;
    }
    const Time now = clock.Now();
    if (now >= deadline || (stop != nullptr && stop->load(std::memory_order_acquire))) {
      waiting_.erase(place);
      released_.NotifyAll();  // whoever waited behind this one may have moved up to a free slot
      return lease;
    }
    released_.WaitUntil(mutex_, stop == nullptr ? deadline : std::min(deadline, now + kStopPoll));
  }
}

size_t SlotPool::free_count() const {
  MutexLock lock(mutex_);
  return free_.size();
}

void SlotPool::Release(Slot* slot) {
  bool notify = false;
  {
    MutexLock lock(mutex_);
    free_.push_back(slot);
    notify = !waiting_.empty();
  }
  if (notify) released_.NotifyAll();
}

}  // namespace sluice::gpu
