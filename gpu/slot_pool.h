// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "gpu/slot.h"

namespace sluice::gpu {

class SlotPool;

/// A slot taken from a pool; gives it back when destroyed. Only once nothing launched from it is still running: after
/// Lane::Finish. Empty when there was none. The pool must outlive it.
class SlotLease {
 public:
  SlotLease() = default;
  SlotLease(SlotLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), slot_(std::exchange(other.slot_, nullptr)) {}
  SlotLease& operator=(SlotLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~SlotLease();
  explicit operator bool() const { return slot_ != nullptr; }
  Slot* get() const { return slot_; }
  Slot& operator*() const { return *slot_; }
  Slot* operator->() const { return slot_; }

 private:
  friend class SlotPool;
  SlotLease(SlotPool* pool, Slot* slot) : pool_(pool), slot_(slot) {}

  SlotPool* pool_ = nullptr;
  Slot* slot_ = nullptr;
};

/// The slots of one plan and class. Purpose: bound what is in flight by what was allocated at load time. Bounds: the
/// slots given to the constructor, never more. Ownership: owns them. Threads: any; only Acquire blocks. All leases are
/// back before it is destroyed.
class SlotPool {
 public:
  explicit SlotPool(std::vector<std::unique_ptr<Slot>> slots);
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  /// Never blocks; empty when all are taken or owed to threads that wait, so that a thread that takes one slot after
  /// another does not starve them. The slot that was given back last comes first: its memory is warm.
  SlotLease TryAcquire() ABSL_LOCKS_EXCLUDED(mutex_);
  /// Waits for a slot until `deadline` (on MonotonicClock's scale) or until `stop` is seen, which is looked at every
  /// 2 ms; empty then. `stop` may be null. Those who wait are served in the order in which they came.
  SlotLease Acquire(const Clock& clock, Time deadline, const std::atomic<bool>* stop = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const { return slots_.size(); }
  size_t free_count() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class SlotLease;
  SlotLease TakeFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Slot* slot) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<std::unique_ptr<Slot>> slots_;
  mutable Mutex mutex_;
  CondVar released_;
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);  ///< Tickets, first come first.
  uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::gpu
