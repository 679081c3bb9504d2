// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/host_constant.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu::host {
namespace {
constexpr std::align_val_t kAlignment{64};
}  // namespace

void HostConstant::Free::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

absl::StatusOr<HostConstant> HostConstant::Make(PackedWeights* pool, const std::string& constant,
                                                const std::string& layout, size_t size_bytes,
                                                absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  HostConstant result;
  if (pool != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceSpan span, pool->GetOrPack(constant, layout, size_bytes, pack));
    if (span.data == nullptr || span.size_bytes < size_bytes) {
      return absl::InternalError(
          absl::StrCat("the pool holds ", span.size_bytes, " bytes of '", constant, "', not ", size_bytes));
    }
    result.data_ = span.data;
    return result;
  }
  auto* memory = static_cast<std::byte*>(::operator new(std::max<size_t>(size_bytes, 1), kAlignment, std::nothrow));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size_bytes, " bytes of '", constant, "'"));
  }
  result.own_.reset(memory);
  result.data_ = memory;
  SLUICE_RETURN_IF_ERROR(pack(std::span(memory, size_bytes)));
  return result;
}

absl::StatusOr<HostConstant> HostConstant::MakePlain(PackedWeights* pool, const Constant& constant) {
  return Make(pool, constant.name, "", constant.data.size(), [&](std::span<std::byte> destination) {
    std::copy(constant.data.begin(), constant.data.end(), destination.begin());
    return absl::OkStatus();
  });
}

}  // namespace sluice::gpu::host
