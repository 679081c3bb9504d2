// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/math_libraries.h"

#include <cudnn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_status.h"
#include "gpu/kernels/cuda_matmul_ways.h"

namespace sluice::gpu::cuda {

absl::StatusOr<cudnnContext*> MakeCudnn(cudaStream_t stream) {
  cudnnHandle_t handle = nullptr;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(cudnnCreate(&handle)));
  if (absl::Status status = SLUICE_CUDNN_STATUS(cudnnSetStream(handle, stream)); !status.ok()) {
    status.Update(DestroyCudnn(handle));
    return status;
  }
  return handle;
}

absl::Status DestroyCudnn(cudnnContext* handle) {
  if (handle == nullptr) return absl::OkStatus();
  return SLUICE_CUDNN_STATUS(cudnnDestroy(handle));
}

MathLibraries::~MathLibraries() {
  MutexLock lock(mutex_);
  absl::Status status = SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_));
  for (const CudnnTarget& target : idle_cudnn_) {
    status.Update(DestroyCudnn(target.handle));
    status.Update(SLUICE_CUDA_STATUS(cudaStreamDestroy(target.stream)));
  }
  if (cublas_lt_ != nullptr) status.Update(SLUICE_CUBLAS_STATUS(cublasLtDestroy(cublas_lt_)));
  if (!status.ok()) Log(Severity::kWarning, "a CUDA library did not end well", {{"error", status.ToString()}});
}

absl::StatusOr<cublasLtHandle_t> MathLibraries::CublasLt() {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  {
    MutexLock lock(mutex_);
    if (cublas_lt_ != nullptr) return cublas_lt_;
  }
  cublasLtHandle_t mine = nullptr;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(cublasLtCreate(&mine)));
  cublasLtHandle_t kept = nullptr;
  {
    MutexLock lock(mutex_);
    if (cublas_lt_ == nullptr) cublas_lt_ = mine;
    kept = cublas_lt_;
  }
  // Another thread was first.
  if (kept != mine) SLUICE_RETURN_IF_ERROR(SLUICE_CUBLAS_STATUS(cublasLtDestroy(mine)));
  return kept;
}

absl::StatusOr<CudnnTarget> MathLibraries::TakeCudnn() {
  uses_cudnn_.store(true, std::memory_order_release);
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  {
    MutexLock lock(mutex_);
    if (!idle_cudnn_.empty()) {
      const CudnnTarget target = idle_cudnn_.back();
      idle_cudnn_.pop_back();
      return target;
    }
  }
  int lowest = 0;
  int highest = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&lowest, &highest)));
  CudnnTarget target;
  SLUICE_RETURN_IF_ERROR(
      SLUICE_CUDA_STATUS(cudaStreamCreateWithPriority(&target.stream, cudaStreamNonBlocking, lowest)));
  absl::StatusOr<cudnnContext*> handle = MakeCudnn(target.stream);
  if (!handle.ok()) {
    absl::Status status = handle.status();
    status.Update(SLUICE_CUDA_STATUS(cudaStreamDestroy(target.stream)));
    return status;
  }
  target.handle = *handle;
  return target;
}

void MathLibraries::GiveCudnn(const CudnnTarget& target) {
  MutexLock lock(mutex_);
  idle_cudnn_.push_back(target);
}

absl::StatusOr<int> MathLibraries::MultiprocessorCount() {
  int count = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal_)));
  return count;
}

CudaKernelLibrary::CudaKernelLibrary(int ordinal, std::unique_ptr<TuningTable> tuning)
    : KernelLibrary(Backend::kCuda),
      ordinal_(ordinal),
      tuning_(std::move(tuning)),
      trial_rules_{*tuning_},
      math_(std::make_unique<MathLibraries>(ordinal)),
      matmul_choices_(std::make_unique<MatMulChoices>(ordinal, trial_rules_)) {}
CudaKernelLibrary::~CudaKernelLibrary() = default;

void CudaKernelLibrary::SetLoadTurns(LoadTurns* turns) {
  KernelLibrary::SetLoadTurns(turns);
  trial_rules_.turns = turns;
}

bool CudaKernelLibrary::uses_cudnn() const { return math_->uses_cudnn(); }

absl::StatusOr<std::string> TuningEnvironment(int ordinal) {
  cudaDeviceProp properties;
  int driver = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGetDeviceProperties(&properties, ordinal)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDriverGetVersion(&driver)));
  return absl::StrCat(properties.name, ", ", properties.multiProcessorCount, " multiprocessors, driver for CUDA ",
                      driver / 1000, ".", driver % 1000 / 10, ", cuBLASLt ", cublasLtGetVersion(), ", cuDNN ",
                      cudnnGetVersion());
}

}  // namespace sluice::gpu::cuda
