// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/constant_pool.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::model {

absl::StatusOr<ConstantPool::Entry> ConstantPool::Pack(size_t size_bytes,
                                                       absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  Entry entry;
  const size_t allocated_bytes = std::max<size_t>(size_bytes, 1);
  const bool unified = device_.info().unified_memory;
  SLUICE_ASSIGN_OR_RETURN(
      gpu::PinnedBuffer staging,
      device_.AllocatePinned(allocated_bytes, unified ? gpu::MemoryKind::kWeights : gpu::MemoryKind::kOther));
  SLUICE_RETURN_IF_ERROR(pack(std::span(staging.view().data, size_bytes)));
  if (unified) {
    entry.span = staging.view().device_span().subspan(0, size_bytes);
    entry.pinned = std::move(staging);
    return entry;
  }
  SLUICE_ASSIGN_OR_RETURN(entry.device, device_.AllocateDevice(allocated_bytes, gpu::MemoryKind::kWeights));
  entry.span = entry.device.view().subspan(0, size_bytes);
  if (size_bytes > 0) {
    SLUICE_ASSIGN_OR_RETURN(const gpu::Stream stream, device_.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_RETURN_IF_ERROR(device_.CopyToDevice(stream, staging.view().subspan(0, size_bytes), entry.span));
    SLUICE_RETURN_IF_ERROR(device_.Synchronize(stream));
  }
  return entry;
}

absl::StatusOr<gpu::DeviceSpan> ConstantPool::GetOrPack(const std::string& constant, const std::string& layout,
                                                        size_t size_bytes,
                                                        absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  const std::pair key(constant, layout);
  if (const auto known = entries_.find(key); known != entries_.end()) {
    if (known->second.span.size_bytes == size_bytes) return known->second.span;
    return absl::InternalError(absl::StrCat("constant '", constant, "' in layout '", layout, "' has ",
                                            known->second.span.size_bytes, " bytes, asked for are ", size_bytes));
  }
  SLUICE_ASSIGN_OR_RETURN(Entry entry, Pack(size_bytes, pack));
  const gpu::DeviceSpan span = entry.span;
  entries_.emplace(key, std::move(entry));
  total_bytes_ += std::max<size_t>(size_bytes, 1);
  return span;
}

absl::StatusOr<gpu::DeviceSpan> ConstantPool::Get(const Value& constant) {
  return GetOrPack(constant.constant_name, "", constant.bytes.size(), [&](std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), constant.bytes.data(), out.size());
    return absl::OkStatus();
  });
}

}  // namespace sluice::model
