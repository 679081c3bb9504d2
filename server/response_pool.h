// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "base/request_class.h"

namespace sluice::server {

class ResponsePool;

/// One output on its way to the client: memory of the pool, given back when destroyed, on any thread. Holds the pool
/// alive, because gRPC may let go of a written slice after the server that made it is gone.
class ResponseBuffer {
 public:
  ResponseBuffer() = default;
  ResponseBuffer(ResponseBuffer&& other) noexcept { *this = std::move(other); }
  ResponseBuffer& operator=(ResponseBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(request_class_, other.request_class_);
    return *this;
  }
  ~ResponseBuffer();
  explicit operator bool() const { return memory_ != nullptr; }
  /// Uninitialised until it is written.
  std::span<std::byte> bytes() { return {memory_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  friend class ResponseReservation;
  std::shared_ptr<ResponsePool> pool_;
  std::unique_ptr<std::byte[]> memory_;
  size_t size_ = 0;
  RequestClass request_class_ = RequestClass::kStandard;
};

/// Room in the pool for the outputs of one execution, taken before it starts; what no buffer took is given back when
/// destroyed.
class ResponseReservation {
 public:
  ResponseReservation() = default;
  ResponseReservation(ResponseReservation&& other) noexcept { *this = std::move(other); }
  ResponseReservation& operator=(ResponseReservation&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(left_bytes_, other.left_bytes_);
    std::swap(request_class_, other.request_class_);
    return *this;
  }
  ~ResponseReservation();
  /// A buffer of `size_bytes`, which are more than ResponsePool::kSmallBytes. Taking more than was reserved is a bug,
  /// and gives an empty buffer.
  ResponseBuffer Take(size_t size_bytes);
  size_t left_bytes() const { return left_bytes_; }

 private:
  friend class ResponsePool;
  std::shared_ptr<ResponsePool> pool_;
  size_t left_bytes_ = 0;
  RequestClass request_class_ = RequestClass::kStandard;
};

struct ResponsePoolOptions {
  size_t limit_bytes = size_t{256} << 20;
  /// Of limit_bytes: kept from standard and batch for latency, and as much again from batch for standard. Below 0.5.
  double reserved_share = 0.25;
};

/// What the pool holds for one class, and how often it could not.
struct ResponsePoolUse {
  size_t used_bytes = 0;   ///< Reserved, or filled and not yet written by gRPC.
  size_t limit_bytes = 0;  ///< The most that used_bytes may come to.
  int64_t waits = 0;       ///< Times that it asked for more than there was, and began to wait.
  int64_t timeouts = 0;    ///< Requests refused because they waited too long.
};

/// Memory of the outputs that clients have not read yet. Purpose: readers that are slow or have stopped hold a bounded
/// amount of memory, no slot, and nothing that a higher class needs. Not pinned: outputs are copied from the slot.
/// Bounds: limit_bytes, kept buffers included; latency may use all of it, standard all but the reserved share, standard
/// and batch together no more than that, batch all but two shares. Sizes are rounded up to a quarter of a power of two;
/// buffers of a size are kept for the next ones, so that steady work allocates nothing. Ownership: shared by the server
/// and every buffer. Threads: any; nothing blocks: whoever finds no room is called back once there may be some.
class ResponsePool : public std::enable_shared_from_this<ResponsePool> {
 public:
  /// Outputs up to this size are ordinary memory: with a limit on streams they are bounded, and copying is cheap.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  static std::shared_ptr<ResponsePool> Create(const ResponsePoolOptions& options);
  ~ResponsePool();

  /// What an output of `size_bytes` takes; 0 for small ones. At most a quarter more than it has.
  static size_t PooledBytes(size_t size_bytes);

  /// The most that one class may hold, so the largest response it can ever have.
  size_t limit(RequestClass request_class) const { return limits_[Index(request_class)]; }

  /// Counts `size_bytes` as used; to be adopted. False when there is no room; then `waiter` is called once there may
  /// be.
  bool TryReserve(RequestClass request_class, size_t size_bytes, size_t waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Whoever reserved owns it from here.
  ResponseReservation Adopt(RequestClass request_class, size_t size_bytes);

  /// `freed` is called by whichever thread gives memory back; it must not block, nor use the pool.
  size_t AddWaiter(absl::AnyInvocable<void()> freed) ABSL_LOCKS_EXCLUDED(waiters_mutex_);
  /// When it returns, `freed` is not running and never will again.
  void RemoveWaiter(size_t waiter) ABSL_LOCKS_EXCLUDED(waiters_mutex_);

  /// A request was refused because it waited too long.
  void CountTimeout(RequestClass request_class) ABSL_LOCKS_EXCLUDED(mutex_);
  ResponsePoolUse use(RequestClass request_class) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// Of buffers that wait for their next use.
  size_t kept_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class ResponseBuffer;
  friend class ResponseReservation;
  using Memory = std::unique_ptr<std::byte[]>;
  static constexpr size_t kSizeClasses = 64;

  explicit ResponsePool(const ResponsePoolOptions& options);
  static size_t Index(RequestClass request_class) { return static_cast<size_t>(request_class); }
  static size_t SizeClassOf(size_t pooled_bytes);
  Memory TakeMemory(size_t pooled_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  /// `memory` may be null: reserved and not used.
  void Release(RequestClass request_class, size_t pooled_bytes, Memory memory) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Fits(RequestClass request_class, size_t size_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::array<size_t, kRequestClassCount> limits_{};  // constant

  mutable Mutex mutex_;
  std::array<ResponsePoolUse, kRequestClassCount> use_ ABSL_GUARDED_BY(mutex_);
  size_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  ///< Of buffers in use and kept.
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::vector<Memory>, kSizeClasses> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> waiting_ ABSL_GUARDED_BY(mutex_);  ///< By waiter.
  bool any_waiting_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex waiters_mutex_;  ///< Before mutex_, and before whatever `freed` takes.
  std::vector<absl::AnyInvocable<void()>> waiters_ ABSL_GUARDED_BY(waiters_mutex_);
};

}  // namespace sluice::server
