// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_units.cuh"

namespace sluice::gpu::cuda {
namespace {

/// Whole units of the value repeated, then what is left of the elements.
template <class Bits>
__global__ void FillWith(Bits* out, int64_t count, Bits value, bool aligned) {
  WaitForPrevious();
  constexpr int kEach = static_cast<int>(kMaxUnitBytes / sizeof(Bits));
  int64_t done = 0;
  if (aligned) {
    struct alignas(kMaxUnitBytes) Unit {
      Bits values[kEach];
    } unit;
#pragma unroll
    for (int k = 0; k < kEach; ++k) unit.values[k] = value;
    const int64_t units = count / kEach;
    for (int64_t i = GridThread(); i < units; i += GridStep()) reinterpret_cast<Unit*>(out)[i] = unit;
    done = units * kEach;
  }
  for (int64_t i = done + GridThread(); i < count; i += GridStep()) out[i] = value;
}

/// Types matter only by their size.
template <class Bits>
class FillKernel final : public CudaKernel {
 public:
  FillKernel(std::string name, int64_t count, const std::vector<std::byte>& value)
      : CudaKernel(std::move(name), 0), count_(count) {
    std::memcpy(&value_, value.data(), sizeof(value_));
  }
  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_RETURN_IF_ERROR(CheckSpans(*this, args, {static_cast<size_t>(count_) * sizeof(Bits)}));
    if (count_ == 0) return absl::OkStatus();
    Bits* out = Elements<Bits>(args, 0);
    const bool aligned = IsAligned(out, kMaxUnitBytes);
    constexpr int64_t kEach = kMaxUnitBytes / sizeof(Bits);
    const unsigned blocks = BlocksFor(aligned ? (count_ + kEach - 1) / kEach : count_);
    LaunchAfterPrevious(FillWith<Bits>, blocks, kBlockThreads, stream, out, count_, value_, aligned);
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  }

 private:
  const int64_t count_;
  Bits value_ = 0;
};

template <class Bits>
absl::StatusOr<std::unique_ptr<Kernel>> MakeFill(int ordinal, const FillDescription& description, int64_t count) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FillWith<Bits>));
  return std::make_unique<FillKernel<Bits>>(absl::StrCat("Fill ", DimsToString(description.dims)), count,
                                            description.value);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareFill(const FillDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.dims));
  const size_t element_bytes = ElementBytes(description.type);
  if (element_bytes == 0 || description.value.size() != element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("fill: a value of type ", std::string(WireName(description.type)),
                                                   " has ", element_bytes, " bytes, not ", description.value.size()));
  }
  switch (element_bytes) {
    case 1:
      return MakeFill<uint8_t>(ordinal_, description, count);
    case 2:
      return MakeFill<uint16_t>(ordinal_, description, count);
    case 4:
      return MakeFill<uint32_t>(ordinal_, description, count);
    default:
      return MakeFill<uint64_t>(ordinal_, description, count);
  }
}

}  // namespace sluice::gpu::cuda
