// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "gpu/cuda/cuda_kernel.h"

namespace sluice::gpu::cuda {

/// What one device's kernels share of cuBLASLt and cuDNN. Purpose: the libraries are started when the first kernel that
/// wants them is prepared. Bounds: one cuBLASLt handle, which any thread may use at once; one cuDNN handle for each
/// thread that prepared convolutions at the same time. Ownership: the kernel library's, and outlives every kernel.
/// Threads: any. Errors: math_status.h.
class MathLibraries {
 public:
  explicit MathLibraries(int ordinal) : ordinal_(ordinal) {}
  ~MathLibraries();

  absl::StatusOr<cublasLtHandle_t> CublasLt();
  /// A handle with a lowest-priority stream of its own, for trials while kernels are prepared. Given back after use.
  absl::StatusOr<CudnnTarget> TakeCudnn();
  void GiveCudnn(const CudnnTarget& target);
  /// True once TakeCudnn was called.
  bool uses_cudnn() const { return uses_cudnn_.load(std::memory_order_acquire); }
  /// Streaming multiprocessors of the device.
  absl::StatusOr<int> MultiprocessorCount();

 private:
  const int ordinal_;
  std::atomic<bool> uses_cudnn_ = false;
  Mutex mutex_;
  cublasLtHandle_t cublas_lt_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<CudnnTarget> idle_cudnn_ ABSL_GUARDED_BY(mutex_);
};

/// A cuDNN handle bound to `stream`. Load time only: takes milliseconds and device memory.
absl::StatusOr<cudnnContext*> MakeCudnn(cudaStream_t stream);
/// May wait for the device; nothing for null.
absl::Status DestroyCudnn(cudnnContext* handle);

}  // namespace sluice::gpu::cuda
