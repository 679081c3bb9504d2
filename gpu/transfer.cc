// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/transfer.h"

#include <algorithm>

#include "base/status_macros.h"

namespace sluice::gpu {
namespace {
// Below it the fixed cost of a copy decides (4 KiB take 14 us on a busy H200).
constexpr absl::Duration kLeastCopyTime = absl::Microseconds(10);
constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kLeastMeasuredBytes = kMebibyte / 4;
}  // namespace

Chunk ChunkCursor::Next() {
  const SlotTensor& tensor = tensors_.front();
  const size_t size_bytes = std::min(tensor.pinned.size_bytes - offset_bytes_, chunk_bytes_);
  const Chunk chunk = {tensor.pinned.subspan(offset_bytes_, size_bytes),
                       tensor.device.subspan(offset_bytes_, size_bytes)};
  offset_bytes_ += size_bytes;
  SkipEmpty();
  return chunk;
}

void ChunkCursor::SkipEmpty() {
  while (!tensors_.empty() && offset_bytes_ >= tensors_.front().pinned.size_bytes) {
    tensors_ = tensors_.subspan(1);
    offset_bytes_ = 0;
  }
}

absl::Duration CopyTimes::Predicted(Engine engine, size_t size_bytes) const {
  const double part = static_cast<double>(size_bytes) / static_cast<double>(kMebibyte);
  return std::max(kLeastCopyTime, mebibyte_[static_cast<size_t>(engine)].value() * part);
}

void CopyTimes::Add(Engine engine, size_t size_bytes, absl::Duration measured) {
  if (size_bytes < kLeastMeasuredBytes) return;
  const double part = static_cast<double>(size_bytes) / static_cast<double>(kMebibyte);
  mebibyte_[static_cast<size_t>(engine)].Add(measured / part);
}

absl::Status CopyInputs(Device& device, StreamRef stream, const Slot& slot) {
  if (device.info().unified_memory) return absl::OkStatus();
  for (const SlotTensor& tensor : slot.inputs) {
    SLUICE_RETURN_IF_ERROR(device.CopyToDevice(stream, tensor.pinned, tensor.device));
  }
  return absl::OkStatus();
}

absl::Status CopyOutputs(Device& device, StreamRef stream, const Slot& slot) {
  if (device.info().unified_memory) return absl::OkStatus();
  for (const SlotTensor& tensor : slot.outputs) {
    SLUICE_RETURN_IF_ERROR(device.CopyToHost(stream, tensor.device, tensor.pinned));
  }
  return absl::OkStatus();
}

}  // namespace sluice::gpu
