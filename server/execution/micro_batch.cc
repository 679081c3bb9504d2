// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/micro_batch.h"

#include <algorithm>
#include <cstring>

namespace sluice::server {

std::vector<MicroBatch> CutRows(int64_t rows, std::span<const int64_t> plan_rows, RequestClass request_class) {
  std::vector<MicroBatch> result;
  int64_t first_row = 0;
  while (first_row < rows) {
    const int64_t left = rows - first_row;
    const auto holds_all = std::lower_bound(plan_rows.begin(), plan_rows.end(), left);
    size_t index = 0;
    if (holds_all != plan_rows.end() &&
        (*holds_all == left || request_class == RequestClass::kLatency || holds_all == plan_rows.begin())) {
      index = static_cast<size_t>(holds_all - plan_rows.begin());
    } else {
      // The largest plan that is filled completely; `left` is at least the smallest plan here.
      index = static_cast<size_t>(holds_all - plan_rows.begin()) - 1;
    }
    const int64_t count = std::min(left, plan_rows[index]);
    result.push_back({.plan_index = index, .first_row = first_row, .row_count = count});
    first_row += count;
  }
  return result;
}

void CopyFromPieces(const std::vector<Bytes>& pieces, size_t offset, size_t count, std::byte* destination) {
  for (const Bytes& piece : pieces) {
    if (count == 0) return;
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    const size_t length = std::min(count, piece.size() - offset);
    std::memcpy(destination, piece.data() + offset, length);
    destination += length;
    count -= length;
    offset = 0;
  }
}

absl::Status CopyFromInput(const RequestInput& input, size_t offset, size_t count, std::byte* destination) {
  if (input.region) return input.region.region->Read(input.region.offset + offset, {destination, count});
  CopyFromPieces(input.pieces, offset, count, destination);
  return absl::OkStatus();
}

}  // namespace sluice::server
