// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::gpu::cuda {

/// Device memory for a trial, allocated and freed in the order of its stream: neither waits for other work. Load time
/// only.
class TrialMemory {
 public:
  explicit TrialMemory(cudaStream_t stream) : stream_(stream) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory();
  /// Once. What lies in it is whatever was there.
  absl::Status Allocate(size_t size_bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const cudaStream_t stream_;
  void* data_ = nullptr;
};

/// A lowest-priority stream for trials. Load time only.
class TrialStream {
 public:
  TrialStream() = default;
  TrialStream(const TrialStream&) = delete;
  TrialStream& operator=(const TrialStream&) = delete;
  ~TrialStream();
  absl::Status Make(int ordinal);
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Times what a caller enqueues to a stream. In a graph, since enqueuing a library call may take the host longer than
/// the device takes to run it. Load time only; blocks.
class TrialTimer {
 public:
  explicit TrialTimer(cudaStream_t stream) : stream_(stream) {}
  TrialTimer(const TrialTimer&) = delete;
  TrialTimer& operator=(const TrialTimer&) = delete;
  ~TrialTimer();
  absl::Status Make();
  /// What one call of `enqueue` takes on the device: it is called several times in one capture, and the least of a few
  /// runs counts. Its code must have been loaded before.
  absl::StatusOr<float> Milliseconds(absl::FunctionRef<absl::Status()> enqueue);

 private:
  absl::StatusOr<float> Time(cudaGraphExec_t graph);

  const cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace sluice::gpu::cuda
