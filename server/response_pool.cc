// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/response_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace sluice::server {

ResponseBuffer::~ResponseBuffer() {
  if (pool_ != nullptr) pool_->Release(request_class_, ResponsePool::PooledBytes(size_), std::move(memory_));
}

ResponseReservation::~ResponseReservation() {
  if (pool_ != nullptr && left_bytes_ > 0) pool_->Release(request_class_, left_bytes_, nullptr);
}

ResponseBuffer ResponseReservation::Take(size_t size_bytes) {
  const size_t pooled_bytes = ResponsePool::PooledBytes(size_bytes);
  ResponseBuffer buffer;
  if (pool_ == nullptr || pooled_bytes == 0 || pooled_bytes > left_bytes_) return buffer;
  left_bytes_ -= pooled_bytes;
  buffer.pool_ = pool_;
  buffer.memory_ = pool_->TakeMemory(pooled_bytes);
  buffer.size_ = size_bytes;
  buffer.request_class_ = request_class_;
  return buffer;
}

std::shared_ptr<ResponsePool> ResponsePool::Create(const ResponsePoolOptions& options) {
  return std::shared_ptr<ResponsePool>(new ResponsePool(options));
}

ResponsePool::ResponsePool(const ResponsePoolOptions& options) {
  const double limit = static_cast<double>(options.limit_bytes);
  const auto share = static_cast<size_t>(limit * std::clamp(options.reserved_share, 0.0, 0.5));
  limits_[Index(RequestClass::kLatency)] = options.limit_bytes;
  limits_[Index(RequestClass::kStandard)] = options.limit_bytes - share;
  limits_[Index(RequestClass::kBatch)] = options.limit_bytes - 2 * share;
  MutexLock lock(mutex_);
  for (const RequestClass request_class : kRequestClasses) {
    use_[Index(request_class)].limit_bytes = limits_[Index(request_class)];
  }
}

ResponsePool::~ResponsePool() {
  MutexLock lock(mutex_);
  assert(allocated_bytes_ == kept_bytes_);
}

size_t ResponsePool::PooledBytes(size_t size_bytes) {
  if (size_bytes <= kSmallBytes) return 0;
  // Four sizes to each power of two.
  const size_t step = std::bit_floor(size_bytes - 1) / 4;
  return (size_bytes + step - 1) / step * step;
}

size_t ResponsePool::SizeClassOf(size_t pooled_bytes) {
  const size_t power = std::bit_floor(pooled_bytes - 1);
  const auto doublings = static_cast<size_t>(std::countr_zero(power) - std::countr_zero(kSmallBytes));
  const size_t quarter = (pooled_bytes - power) / (power / 4) - 1;
  return std::min(4 * doublings + quarter, kSizeClasses - 1);
}

bool ResponsePool::Fits(RequestClass request_class, size_t size_bytes) const {
  // Each class counts with those below it, so a lower class never has what a higher one is owed.
  size_t used = 0;
  for (size_t i = kRequestClassCount; i-- > 0;) {
    used += use_[i].used_bytes;
    if (i <= Index(request_class) && (used > limits_[i] || size_bytes > limits_[i] - used)) return false;
  }
  return true;
}

bool ResponsePool::TryReserve(RequestClass request_class, size_t size_bytes, size_t waiter) {
  MutexLock lock(mutex_);
  ResponsePoolUse& use = use_[Index(request_class)];
  if (Fits(request_class, size_bytes)) {
    use.used_bytes += size_bytes;
    return true;
  }
  // Noted under the same lock, so that no memory comes back unseen between the look and the wait.
  if (waiter < waiting_.size() && !waiting_[waiter]) {
    waiting_[waiter] = true;
    any_waiting_ = true;
    ++use.waits;
  }
  return false;
}

ResponseReservation ResponsePool::Adopt(RequestClass request_class, size_t size_bytes) {
  ResponseReservation reservation;
  if (size_bytes == 0) return reservation;
  reservation.pool_ = shared_from_this();
  reservation.left_bytes_ = size_bytes;
  reservation.request_class_ = request_class;
  return reservation;
}

ResponsePool::Memory ResponsePool::TakeMemory(size_t pooled_bytes) {
  std::vector<Memory> evicted;  // freed outside of the lock, before the new one is made
  {
    MutexLock lock(mutex_);
    std::vector<Memory>& same_size = kept_[SizeClassOf(pooled_bytes)];
    if (!same_size.empty()) {
      Memory memory = std::move(same_size.back());
      same_size.pop_back();
      kept_bytes_ -= pooled_bytes;
      return memory;
    }
    // What is reserved and not yet taken fits beside what is in use, so kept buffers are all that can be in the way.
    for (size_t i = 0; i < kSizeClasses && allocated_bytes_ + pooled_bytes > limits_[0]; ++i) {
      const size_t power = kSmallBytes << (i / 4);
      const size_t size = power + (i % 4 + 1) * (power / 4);
      while (!kept_[i].empty() && allocated_bytes_ + pooled_bytes > limits_[0]) {
        evicted.push_back(std::move(kept_[i].back()));
        kept_[i].pop_back();
        kept_bytes_ -= size;
        allocated_bytes_ -= size;
      }
    }
    allocated_bytes_ += pooled_bytes;
  }
  evicted.clear();
  return std::make_unique_for_overwrite<std::byte[]>(pooled_bytes);
}

void ResponsePool::Release(RequestClass request_class, size_t pooled_bytes, Memory memory) {
  std::vector<size_t> woken;
  {
    MutexLock lock(mutex_);
    use_[Index(request_class)].used_bytes -= pooled_bytes;
    if (memory != nullptr) {
      kept_[SizeClassOf(pooled_bytes)].push_back(std::move(memory));
      kept_bytes_ += pooled_bytes;
    }
    if (!any_waiting_) return;
    any_waiting_ = false;
    for (size_t waiter = 0; waiter < waiting_.size(); ++waiter) {
      if (waiting_[waiter]) woken.push_back(waiter);
      waiting_[waiter] = false;
    }
  }
  MutexLock lock(waiters_mutex_);
  for (const size_t waiter : woken) {
    if (waiters_[waiter] != nullptr) waiters_[waiter]();
  }
}

size_t ResponsePool::AddWaiter(absl::AnyInvocable<void()> freed) {
  MutexLock lock(waiters_mutex_);
  waiters_.push_back(std::move(freed));
  MutexLock state_lock(mutex_);
  waiting_.resize(waiters_.size());
  return waiters_.size() - 1;
}

void ResponsePool::RemoveWaiter(size_t waiter) {
  MutexLock lock(waiters_mutex_);
  waiters_[waiter] = nullptr;
}

void ResponsePool::CountTimeout(RequestClass request_class) {
  MutexLock lock(mutex_);
  ++use_[Index(request_class)].timeouts;
}

ResponsePoolUse ResponsePool::use(RequestClass request_class) const {
  MutexLock lock(mutex_);
  return use_[Index(request_class)];
}

size_t ResponsePool::kept_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

}  // namespace sluice::server
