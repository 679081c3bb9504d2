// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/calls.h"
#include "bench/common/house.h"
#include "bench/common/report.h"
#include "gpu/device.h"
#include "gpu/slot_pool.h"
#include "server/config.h"

namespace sluice::bench {

/// One request after the other in a slot of the latency class with nobody in between: no queue, no gate, no other
/// thread. Purpose: what the device and its driver take, so that the rest is the server's. The house must outlive it.
/// Threads: one.
class BareLoop {
 public:
  /// Takes a slot of the model's plan for as many rows. UNAVAILABLE when there is none free.
  static absl::StatusOr<std::unique_ptr<BareLoop>> Create(House& house, const HouseModel& model,
                                                          const Payload& payload);

  /// What one call took: into the slot, the plan's graph with its copies until the host saw its end, out of the slot.
  struct Took {
    absl::Duration copy_in, device, copy_out;
    absl::Duration total() const { return copy_in + device + copy_out; }
  };
  absl::StatusOr<Took> Call();

 private:
  BareLoop(House& house, const Payload& payload, gpu::SlotLease slot)
      : device_(house.device()), clock_(house.clock()), payload_(payload), slot_(std::move(slot)) {}
  absl::Status Issue();
  absl::Status Await();

  gpu::Device& device_;
  const Clock& clock_;
  const Payload& payload_;
  gpu::SlotLease slot_;
  gpu::Stream stream_;
  std::vector<std::vector<std::byte>> outputs_;
};

/// `requests` requests of one row in the bare loop and as many through the server's lanes, in turns and one at a time.
/// Judged on a CUDA device: p99 of the lanes over the bare loop's, at most 15 us.
absl::StatusOr<CaseReport> CompareWithBareLoop(const server::ServerConfig& config, const std::string& model,
                                               int requests, bool judges);

}  // namespace sluice::bench
