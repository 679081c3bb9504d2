// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/transfer.h"

namespace sluice::gpu {

/// Bandwidth with `window` chunks of `chunk_bytes` in flight, the next one issued when the host sees the oldest end:
/// what the launcher does. Bytes per second.
struct ChunkBandwidth {
  size_t chunk_bytes = 0;
  int window = 0;
  double to_device = 0;
  double to_host = 0;
};

/// Time of one copy of `size_bytes` alone, by copy engine and by kernel.
struct CopyDuration {
  size_t size_bytes = 0;
  absl::Duration engine_to_device, kernel_to_device, engine_to_host, kernel_to_host;
};

struct TransferCalibration {
  TransferTuning tuning;
  std::vector<ChunkBandwidth> chunks;  ///< What it was chosen from; empty where nothing was measured.
  std::vector<CopyDuration> copies;    ///< Ascending sizes.
};

/// The fewest bytes in flight that keep 85 % of the best bandwidth in both directions; and the largest size up to which
/// a kernel takes at most a quarter or 10 us longer than the copy engine alone, in both directions (at least the
/// smallest size: a kernel passes the copy engines' queues, which know no priority). An empty list leaves its default.
TransferTuning ChooseTransferTuning(std::span<const ChunkBandwidth> chunks, std::span<const CopyDuration> copies);

/// Measures `device` while nothing else runs on it: some 50 ms, and 16 MiB of either memory, which it gives back.
/// Nothing is measured where pinned memory is the device's own. At start only; blocks. Errors: the device's.
absl::StatusOr<TransferCalibration> CalibrateTransfers(Device& device, const Clock& clock);

}  // namespace sluice::gpu
