// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Kernels about time: both read %globaltimer, which counts nanoseconds (its step is up to about 1 us).
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_global_timer.cuh"
#include "gpu/kernels/cuda_wait.cuh"

namespace sluice::gpu::cuda {
namespace {

constexpr absl::Duration kMaxDelay = absl::Seconds(10);

__global__ void WriteStamp(uint64_t* out) {
  WaitForPrevious();
  *out = GlobalTimer();
}

__global__ void SpinFor(uint64_t nanoseconds) {
  WaitForPrevious();
  const uint64_t start = GlobalTimer();
  while (GlobalTimer() - start < nanoseconds) {
  }
}

class StampKernel final : public CudaKernel {
 public:
  StampKernel() : CudaKernel("Stamp", 0) {}
  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_RETURN_IF_ERROR(CheckSpans(*this, args, {sizeof(uint64_t)}));
    return SubmitStamp(stream, args.spans[0].data);
  }
};

class DelayKernel final : public CudaKernel {
 public:
  explicit DelayKernel(absl::Duration duration)
      : CudaKernel(absl::StrCat("Delay ", absl::FormatDuration(duration)), 0),
        nanoseconds_(static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration))) {}
  absl::Status Submit(cudaStream_t stream, const KernelArgs&) const override {
    LaunchAfterPrevious(SpinFor, 1, 1, stream, nanoseconds_);
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  }

 private:
  const uint64_t nanoseconds_;
};

}  // namespace

absl::Status SubmitStamp(cudaStream_t stream, std::byte* out) {
  LaunchAfterPrevious(WriteStamp, 1, 1, stream, reinterpret_cast<uint64_t*>(out));
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareStamp() {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, WriteStamp));
  return std::make_unique<StampKernel>();
}

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareDelay(const DelayDescription& description) {
  if (description.duration < absl::ZeroDuration() || description.duration > kMaxDelay) {
    return absl::InvalidArgumentError(absl::StrCat("a delay of ", absl::FormatDuration(description.duration),
                                                   " is not between 0 and ", absl::FormatDuration(kMaxDelay)));
  }
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, SpinFor));
  return std::make_unique<DelayKernel>(description.duration);
}

}  // namespace sluice::gpu::cuda
