// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "base/request_class.h"
#include "server/response_pool.h"
#include "server/scheduler/response_memory.h"

namespace sluice::server {

/// The response pool as one class queue sees it. Ownership: holds the pool. Threads: any; nothing blocks. Destroyed
/// before what `freed` uses, and after the last TryReserve.
class LaneMemory final : public scheduler::ResponseMemory {
 public:
  /// `freed` is called by any thread once memory that TryReserve did not get may be there.
  LaneMemory(std::shared_ptr<ResponsePool> pool, RequestClass request_class, absl::AnyInvocable<void()> freed)
      : pool_(std::move(pool)), request_class_(request_class), waiter_(pool_->AddWaiter(std::move(freed))) {}
  LaneMemory(const LaneMemory&) = delete;
  LaneMemory& operator=(const LaneMemory&) = delete;
  ~LaneMemory() override { pool_->RemoveWaiter(waiter_); }

  bool TryReserve(size_t size_bytes) override { return pool_->TryReserve(request_class_, size_bytes, waiter_); }
  /// Takes over what TryReserve took.
  ResponseReservation Adopt(size_t size_bytes) { return pool_->Adopt(request_class_, size_bytes); }

 private:
  const std::shared_ptr<ResponsePool> pool_;
  const RequestClass request_class_;
  const size_t waiter_;
};

}  // namespace sluice::server
