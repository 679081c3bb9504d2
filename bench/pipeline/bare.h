// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "bench/common/house.h"
#include "gpu/device.h"
#include "gpu/slot.h"
#include "gpu/slot_pool.h"
#include "model/model.h"

namespace sluice::bench {

/// Micro-batches of one request, and the slots they go through: those of the model's batch class, which nothing else
/// can have meanwhile. The house must be idle when they are taken, and outlive this.
struct Parts {
  struct Part {
    int64_t first_row = 0, row_count = 0;
    size_t slot = 0;  ///< Into `slots`.
  };
  std::vector<Part> parts;
  std::vector<gpu::SlotLease> slots;
  std::vector<int64_t> plan_rows;  ///< Of the plans in use, ascending, each once.
  int64_t rows() const { return parts.empty() ? 0 : parts.back().first_row + parts.back().row_count; }
};

/// The plan prepared for that many rows, which is one of them.
const model::Plan& PlanFor(const HouseModel& model, int64_t plan_rows);

/// Cuts `rows` as the batch lane does. UNAVAILABLE when the model's batch slots are in use or there are none.
absl::StatusOr<Parts> CutLikeTheLane(const HouseModel& model, int64_t rows);

/// What of a micro-batch is run: its chunks to the device, its units, or its chunks to the host.
enum class Stage : uint8_t { kCopiesIn, kUnits, kCopiesOut };

/// Runs parts of slots with no gate, no launcher and nobody in between: what a device gives when it is simply handed
/// everything. Threads: one.
class BareRunner {
 public:
  /// On low-priority streams, which micro-batches take in turn, those of one slot always the same one.
  static absl::StatusOr<std::unique_ptr<BareRunner>> Create(House& house, int stream_count);

  /// Issues one of the three for every micro-batch, in order, all of it `times` times, and waits. From the first issue
  /// to the last end, as the host sees it.
  absl::StatusOr<absl::Duration> Run(const Parts& parts, Stage stage, int64_t times = 1);

 private:
  explicit BareRunner(House& house)
      : device_(house.device()), clock_(house.clock()), chunk_bytes_(house.transfer_tuning().chunk_bytes) {}
  absl::Status IssueAll(const Parts& parts, Stage stage, int64_t times);
  absl::Status Issue(gpu::StreamRef stream, const gpu::Slot& slot, Stage stage);

  gpu::Device& device_;
  const Clock& clock_;
  const size_t chunk_bytes_;
  std::vector<gpu::Stream> streams_;
  std::vector<gpu::Event> ends_;  ///< One a stream.
};

}  // namespace sluice::bench
