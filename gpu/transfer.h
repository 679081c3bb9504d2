// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/moving_average.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/slot.h"

namespace sluice::gpu {

inline constexpr int kMostChunksInFlight = 4;

/// How bytes move between one device and its pinned memory; measured at start (gpu/kernels/transfer_calibration.h) or
/// from the config. The defaults are what an H200 on PCIe 5 x16 measures.
struct TransferTuning {
  /// The most a standard or batch copy moves at once, and how many of these are in flight in each direction: copies
  /// ignore priority, so that is what a latency copy waits for (two chunks of 1 MiB: p99 73 us, at 45 of 53 GB/s).
  size_t chunk_bytes = size_t{1} << 20;
  int copy_window = 2;  ///< 1 to kMostChunksInFlight.
  /// Latency inputs, or outputs, of together at most this move by a kernel in the plan's graph instead.
  size_t kernel_bytes = size_t{2} << 20;
  friend bool operator==(const TransferTuning&, const TransferTuning&) = default;
};

/// A piece of one tensor.
struct Chunk {
  PinnedSpan pinned;
  DeviceSpan device;
};

/// Walks tensors in order, in chunks of at most `chunk_bytes` that never span two tensors. The tensors must outlive it.
class ChunkCursor {
 public:
  ChunkCursor() = default;
  ChunkCursor(std::span<const SlotTensor> tensors, size_t chunk_bytes) : tensors_(tensors), chunk_bytes_(chunk_bytes) {
    SkipEmpty();
  }
  bool done() const { return tensors_.empty(); }
  /// Only while not done.
  Chunk Next();

 private:
  void SkipEmpty();

  std::span<const SlotTensor> tensors_;
  size_t chunk_bytes_ = 0;
  size_t offset_bytes_ = 0;
};

/// What a chunk is predicted to take in each direction, corrected by what is measured. Any thread.
class CopyTimes {
 public:
  absl::Duration Predicted(Engine engine, size_t size_bytes) const;
  /// Small chunks are ignored: their time says little about a full one.
  void Add(Engine engine, size_t size_bytes, absl::Duration measured);

 private:
  // Per MiB; 48 GB/s until measured: PCIe 5 x16 in chunks of that size.
  std::array<MovingAverage, kEngineCount> mebibyte_ = {MovingAverage(absl::Microseconds(22)),
                                                       MovingAverage(absl::Microseconds(22)),
                                                       MovingAverage(absl::Microseconds(22))};
};

/// Issues all inputs (outputs) as whole copies: the latency lane, which asks nobody. Nothing with unified memory.
absl::Status CopyInputs(Device& device, StreamRef stream, const Slot& slot);
absl::Status CopyOutputs(Device& device, StreamRef stream, const Slot& slot);

}  // namespace sluice::gpu
