// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kSamples = 8;
constexpr absl::Duration kPeriod = absl::Seconds(1);

void LogIfFailed(const absl::Status& status) {
  if (!status.ok()) Log(Severity::kWarning, "CUDA clock", {{"error", status.ToString()}});
}

}  // namespace

CudaClock::CudaClock(int ordinal, const Clock& clock, ErrorHandler on_error)
    : ordinal_(ordinal), clock_(clock), on_error_(std::move(on_error)) {}

CudaClock::~CudaClock() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.Join();
  if (stream_ == nullptr && stamp_ == nullptr) return;
  LogIfFailed(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  if (stream_ != nullptr) LogIfFailed(SLUICE_CUDA_STATUS(cudaStreamDestroy(stream_)));
  if (stamp_ != nullptr) LogIfFailed(SLUICE_CUDA_STATUS(cudaFreeHost(stamp_)));
}

absl::Status CudaClock::Start() {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  int least = 0;
  int greatest = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  // High priority: a stamp that waits for batch work calibrates nothing.
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest)));
  void* memory = nullptr;
  SLUICE_RETURN_IF_ERROR(
      SLUICE_CUDA_STATUS(cudaHostAlloc(&memory, sizeof(uint64_t), cudaHostAllocMapped | cudaHostAllocPortable)));
  stamp_ = static_cast<uint64_t*>(memory);
  void* on_device = nullptr;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaHostGetDevicePointer(&on_device, memory, 0)));
  stamp_on_device_ = static_cast<std::byte*>(on_device);
  SLUICE_RETURN_IF_ERROR(Calibrate());  // Loads the kernel; the first sample of it is slow, so measure again.
  SLUICE_RETURN_IF_ERROR(Calibrate());
  thread_ = Thread(absl::StrCat("cuda", ordinal_, "-clock"), [this] { Run(); });
  return absl::OkStatus();
}

absl::Status CudaClock::Calibrate() {
  int64_t lower = std::numeric_limits<int64_t>::min();
  int64_t upper = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kSamples; ++i) {
    const int64_t before = clock_.Now().nanoseconds();
    SLUICE_RETURN_IF_ERROR(SubmitStamp(stream_, stamp_on_device_));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream_)));
    const int64_t after = clock_.Now().nanoseconds();
    const auto stamp = static_cast<int64_t>(*stamp_);
    lower = std::max(lower, before - stamp);
    upper = std::min(upper, after - stamp);
  }
  offset_ns_.store(lower + (upper - lower) / 2, std::memory_order_relaxed);
  return absl::OkStatus();
}

void CudaClock::Run() {
  absl::Status status = SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_));
  while (status.ok()) {
    {
      MutexLock lock(mutex_);
      const Time next = clock_.Now() + kPeriod;
      while (!stopping_ && clock_.Now() < next) stop_.WaitUntil(mutex_, next);
      if (stopping_) return;
    }
    status = Calibrate();
  }
  on_error_(status);
}

}  // namespace sluice::gpu::cuda
