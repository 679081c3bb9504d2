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

/// The most a standard or batch copy moves at once: copies ignore priority, so what is in flight is what a latency copy
/// waits for (two chunks of 1 MiB: p99 73 us on an H200, at 45 of 53 GB/s).
inline constexpr size_t kChunkBytes = size_t{1} << 20;

/// A piece of one tensor.
struct Chunk {
  PinnedSpan pinned;
  DeviceSpan device;
};

/// Walks tensors in order, in chunks of at most kChunkBytes that never span two tensors. The tensors must outlive it.
class ChunkCursor {
 public:
  ChunkCursor() = default;
  explicit ChunkCursor(std::span<const SlotTensor> tensors) : tensors_(tensors) { SkipEmpty(); }
  bool done() const { return tensors_.empty(); }
  /// Only while not done.
  Chunk Next();

 private:
  void SkipEmpty();

  std::span<const SlotTensor> tensors_;
  size_t offset_bytes_ = 0;
};

/// What a chunk is predicted to take in each direction, corrected by what is measured. Any thread.
class CopyTimes {
 public:
  absl::Duration Predicted(Engine engine, size_t size_bytes) const;
  /// Small chunks are ignored: their time says little about a full one.
  void Add(Engine engine, size_t size_bytes, absl::Duration measured);

 private:
  // 48 GB/s until measured: PCIe 5 x16 in chunks of this size.
  std::array<MovingAverage, kEngineCount> full_chunk_ = {MovingAverage(absl::Microseconds(22)),
                                                         MovingAverage(absl::Microseconds(22)),
                                                         MovingAverage(absl::Microseconds(22))};
};

/// Issues all inputs (outputs) as whole copies: the latency lane, which asks nobody. Nothing with unified memory.
absl::Status CopyInputs(Device& device, StreamRef stream, const Slot& slot);
absl::Status CopyOutputs(Device& device, StreamRef stream, const Slot& slot);

}  // namespace sluice::gpu
