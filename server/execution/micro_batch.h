// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/request_class.h"
#include "server/infer_request.h"

namespace sluice::server {

/// A run of rows of an execution that goes through one slot of one plan.
struct MicroBatch {
  size_t plan_index = 0;  ///< Into the ascending list of plans.
  int64_t first_row = 0;  ///< Within the execution.
  int64_t row_count = 0;  ///< At most the plan's rows; the rest of the slot is padding.
  friend bool operator==(const MicroBatch&, const MicroBatch&) = default;
};

/// Cuts `rows` (at least 1) into micro-batches for plans prepared for `plan_rows` rows, ascending and non-empty.
/// latency: as few kernels in sequence as possible, so the smallest plan that holds all rows, padded. standard and
/// batch: as little padding as possible, so full plans, largest first, and one padded plan for what is left when no
/// plan is small enough. The result covers every row once, in order.
std::vector<MicroBatch> CutRows(int64_t rows, std::span<const int64_t> plan_rows, RequestClass request_class);

/// Copies `count` bytes at `offset` of a tensor that lies in pieces to `destination`. The range must be inside.
void CopyFromPieces(const std::vector<Bytes>& pieces, size_t offset, size_t count, std::byte* destination);

/// The same of an input wherever it lies. Fails for shared memory only, as SharedMemoryRegion::Read.
absl::Status CopyFromInput(const RequestInput& input, size_t offset, size_t count, std::byte* destination);

}  // namespace sluice::server
