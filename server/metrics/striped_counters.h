// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace sluice::metrics {

/// A row of counters kept once per stripe; a thread adds to the stripe its id hashes to, so threads rarely share a
/// cache line. Bounds: fixed at construction. Threads: Add and Sum from any thread, no lock, never block; nothing is
/// lost when two threads share a stripe. Sums taken while others add may miss additions that are not over yet.
class StripedCounters {
 public:
  static constexpr size_t kStripes = 8;

  explicit StripedCounters(size_t count)
      : lines_per_stripe_((count + kPerLine - 1) / kPerLine),
        lines_(std::make_unique<CacheLine[]>(lines_per_stripe_ * kStripes)) {}

  /// `index` is below the constructor's count.
  void Add(size_t index, int64_t amount) {
    const size_t stripe = std::hash<std::thread::id>()(std::this_thread::get_id()) % kStripes;
    Cell(stripe, index).fetch_add(amount, std::memory_order_relaxed);
  }

  int64_t Sum(size_t index) const {
    int64_t sum = 0;
    for (size_t stripe = 0; stripe < kStripes; ++stripe) sum += Cell(stripe, index).load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr size_t kPerLine = 8;
  struct alignas(64) CacheLine {
    std::array<std::atomic<int64_t>, kPerLine> cells;
  };
  std::atomic<int64_t>& Cell(size_t stripe, size_t index) const {
    return lines_[stripe * lines_per_stripe_ + index / kPerLine].cells[index % kPerLine];
  }

  const size_t lines_per_stripe_;
  const std::unique_ptr<CacheLine[]> lines_;
};

/// A T that is made by whichever thread first needs it, without a lock: when two race, one of the two is thrown away.
/// So a label combination that never occurs costs one pointer and no series.
template <class T>
class OnFirstUse {
 public:
  OnFirstUse() = default;
  OnFirstUse(const OnFirstUse&) = delete;
  OnFirstUse& operator=(const OnFirstUse&) = delete;
  ~OnFirstUse() { delete value_.load(std::memory_order_acquire); }

  template <class... Args>
  T& Get(Args&&... args) {
    if (T* value = value_.load(std::memory_order_acquire)) return *value;
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    T* expected = nullptr;
    if (value_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *made.release();
    }
    return *expected;
  }
  /// Null while nobody has asked for it.
  const T* get() const { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> value_ = nullptr;
};

}  // namespace sluice::metrics
