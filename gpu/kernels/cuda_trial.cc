// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_trial.h"

#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kCallsInGraph = 4;
constexpr int kTimedRuns = 2;

}  // namespace

TrialMemory::~TrialMemory() {
  if (data_ != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaFreeAsync(data_, stream_)));
}

absl::Status TrialMemory::Allocate(size_t size_bytes) {
  return SLUICE_CUDA_STATUS(cudaMallocAsync(&data_, std::max<size_t>(size_bytes, 1), stream_));
}

TrialStream::~TrialStream() {
  if (stream_ != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaStreamDestroy(stream_)));
}

absl::Status TrialStream::Make(int ordinal) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
  int lowest = 0;
  int highest = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&lowest, &highest)));
  return SLUICE_CUDA_STATUS(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, lowest));
}

TrialTimer::~TrialTimer() {
  for (cudaEvent_t event : {start_, end_}) {
    if (event != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaEventDestroy(event)));
  }
}

absl::Status TrialTimer::Make() {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventCreate(&start_)));
  return SLUICE_CUDA_STATUS(cudaEventCreate(&end_));
}

absl::StatusOr<float> TrialTimer::Milliseconds(absl::FunctionRef<absl::Status()> enqueue) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed)));
  absl::Status enqueued;
  for (int i = 0; i < kCallsInGraph && enqueued.ok(); ++i) enqueued = enqueue();
  cudaGraph_t captured = nullptr;
  absl::Status status = SLUICE_CUDA_STATUS(cudaStreamEndCapture(stream_, &captured));
  SLUICE_RETURN_IF_ERROR(enqueued);
  SLUICE_RETURN_IF_ERROR(status);
  cudaGraphExec_t graph = nullptr;
  status = SLUICE_CUDA_STATUS(cudaGraphInstantiate(&graph, captured, 0));
  status.Update(SLUICE_CUDA_STATUS(cudaGraphDestroy(captured)));
  SLUICE_RETURN_IF_ERROR(status);
  const absl::StatusOr<float> milliseconds = Time(graph);
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphExecDestroy(graph)));
  SLUICE_RETURN_IF_ERROR(milliseconds.status());
  return *milliseconds / kCallsInGraph;
}

absl::StatusOr<float> TrialTimer::Time(cudaGraphExec_t graph) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphLaunch(graph, stream_)));  // Pays for what is made once.
  float least = std::numeric_limits<float>::max();
  for (int run = 0; run < kTimedRuns; ++run) {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(start_, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphLaunch(graph, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(end_, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream_)));
    float milliseconds = 0;
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventElapsedTime(&milliseconds, start_, end_)));
    least = std::min(least, milliseconds);
  }
  return least;
}

}  // namespace sluice::gpu::cuda
