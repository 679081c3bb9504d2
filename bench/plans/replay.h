// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/house.h"
#include "gpu/device.h"
#include "gpu/slot_pool.h"
#include "server/execution/model_instance.h"

namespace sluice::bench {

/// One plan over and over: the kernels of its latency slot as one graph, without the stamps or copies that the slot's
/// own graph begins and ends with. Purpose: the time of the kernels alone, from inputs that are on the device already.
/// The slot is taken for as long as this lives. The house must outlive it. Threads: one.
class Replay {
 public:
  /// `plan` is one of `model`'s, which was loaded with a latency slot. Fills the inputs and puts them on the device.
  static absl::StatusOr<std::unique_ptr<Replay>> Create(House& house, const HouseModel& model,
                                                        const server::PreparedPlan& plan);

  /// Replays back to back for about `warmup`, then for about `phase`: what one of the latter takes, by the device's
  /// clock.
  absl::StatusOr<absl::Duration> Measure(absl::Duration warmup, absl::Duration phase);

  size_t kernel_count() const { return slot_->launches.size() - 2; }

 private:
  Replay(gpu::Device& device, gpu::SlotLease slot) : device_(device), slot_(std::move(slot)) {}
  absl::Status Prepare(const HouseModel& model);
  /// All of `times` replays.
  absl::StatusOr<absl::Duration> Run(int64_t times);
  absl::Status Issue(int64_t times);

  gpu::Device& device_;
  gpu::SlotLease slot_;
  gpu::Stream stream_;
  gpu::TimedEvent start_, end_;
  gpu::Graph graph_;
};

}  // namespace sluice::bench
