// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/constant_pool.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "gpu/load_turns.h"

namespace sluice::model {

namespace {

// Of one copy while latency requests come: some 20 us on PCIe 5, as long as a unit.
constexpr size_t kSharedCopyBytes = size_t{1} << 20;

}  // namespace

absl::Status ConstantPool::Upload(size_t size_bytes, gpu::DeviceSpan to,
                                  absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  if (size_bytes == 0) return pack({});
  if (!stream_) {
    SLUICE_ASSIGN_OR_RETURN(stream_, device_.CreateStream(gpu::StreamPriority::kLow));
  }
  if (staging_.view().size_bytes < size_bytes) {
    staging_ = {};
    SLUICE_ASSIGN_OR_RETURN(staging_, device_.AllocatePinned(size_bytes));
  }
  SLUICE_RETURN_IF_ERROR(pack(std::span(staging_.view().data, size_bytes)));
  gpu::LoadTurns* const turns = device_.kernels().load_turns();
  for (size_t done = 0; done < size_bytes;) {
    const bool shared = gpu::LongestTurn(turns) < absl::InfiniteDuration();
    const size_t count = shared ? std::min(size_bytes - done, kSharedCopyBytes) : size_bytes - done;
    const auto copy = [&]() -> absl::Status {
      SLUICE_RETURN_IF_ERROR(
          device_.CopyToDevice(stream_, staging_.view().subspan(done, count), to.subspan(done, count)));
      return device_.Synchronize(stream_);
    };
    SLUICE_RETURN_IF_ERROR(gpu::RunInTurn(turns, absl::ZeroDuration(), copy).status());
    done += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<ConstantPool::Entry> ConstantPool::Pack(size_t size_bytes,
                                                       absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  Entry entry;
  const size_t allocated_bytes = std::max<size_t>(size_bytes, 1);
  if (device_.info().unified_memory) {
    SLUICE_ASSIGN_OR_RETURN(entry.pinned, device_.AllocatePinned(allocated_bytes, gpu::MemoryKind::kWeights));
    entry.span = entry.pinned.view().device_span().subspan(0, size_bytes);
    SLUICE_RETURN_IF_ERROR(pack(std::span(entry.pinned.view().data, size_bytes)));
    return entry;
  }
  SLUICE_ASSIGN_OR_RETURN(entry.device, device_.AllocateDevice(allocated_bytes, gpu::MemoryKind::kWeights));
  entry.span = entry.device.view().subspan(0, size_bytes);
  SLUICE_RETURN_IF_ERROR(Upload(size_bytes, entry.span, pack));
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
