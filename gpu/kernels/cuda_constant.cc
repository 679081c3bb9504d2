// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_constant.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr std::align_val_t kPackAlignment{64};
constexpr uintptr_t kLoadBytes = 16;  // Kernels load constants in fours of floats.

struct FreeHost {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPackAlignment); }
};

}  // namespace

void CudaConstant::Free::operator()(std::byte* memory) const {
  const absl::Status status = SLUICE_CUDA_STATUS(cudaFree(memory));
  if (!status.ok()) Log(Severity::kWarning, "a constant was not freed", {{"error", status.ToString()}});
}

absl::StatusOr<CudaConstant> CudaConstant::Make(int ordinal, PackedWeights* pool, const std::string& constant,
                                                const std::string& layout, size_t size_bytes,
                                                absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) {
  CudaConstant result;
  if (pool != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceSpan span, pool->GetOrPack(constant, layout, size_bytes, pack));
    if (span.data == nullptr || span.size_bytes < size_bytes ||
        reinterpret_cast<uintptr_t>(span.data) % kLoadBytes != 0) {
      return absl::InternalError(absl::StrCat("the pool holds ", span.size_bytes, " bytes of '", constant, "', not ",
                                              size_bytes, " on a multiple of ", kLoadBytes));
    }
    result.data_ = span.data;
    return result;
  }
  const size_t allocated = std::max<size_t>(size_bytes, 1);
  std::unique_ptr<std::byte, FreeHost> packed(
      static_cast<std::byte*>(::operator new(allocated, kPackAlignment, std::nothrow)));
  if (packed == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size_bytes, " bytes of '", constant, "'"));
  }
  SLUICE_RETURN_IF_ERROR(pack(std::span(packed.get(), size_bytes)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
  void* memory = nullptr;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaMalloc(&memory, allocated)));
  result.own_.reset(static_cast<std::byte*>(memory));
  result.data_ = result.own_.get();
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(
      cudaMemcpyAsync(memory, packed.get(), size_bytes, cudaMemcpyHostToDevice, cudaStreamPerThread)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(cudaStreamPerThread)));
  return result;
}

absl::StatusOr<CudaConstant> CudaConstant::MakePlain(int ordinal, PackedWeights* pool, const Constant& constant) {
  return Make(ordinal, pool, constant.name, "", constant.data.size(), [&](std::span<std::byte> destination) {
    std::copy(constant.data.begin(), constant.data.end(), destination.begin());
    return absl::OkStatus();
  });
}

}  // namespace sluice::gpu::cuda
