// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gpu/kernel.h"

struct cudnnContext;  // What cudnnHandle_t points to. Only callers of cuDNN include its header.

namespace sluice::gpu::cuda {

/// The multiple that pieces of a workspace begin on, so that libraries find theirs aligned.
inline constexpr size_t kWorkspaceAlignment = 256;
inline size_t AlignWorkspace(size_t size_bytes) {
  return (size_bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

/// A kernel of a CUDA device. Submit is called by Device::Launch, with the device current on the thread: it enqueues to
/// `stream`, and to nothing else, allocates nothing, synchronises nothing, and is capturable. The stream may be under
/// capture. Returns the error of the enqueuing.
class CudaKernel : public Kernel {
 public:
  virtual absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const = 0;

 protected:
  CudaKernel(std::string name, size_t workspace_bytes, bool capture_only = false)
      : Kernel(Backend::kCuda, std::move(name), workspace_bytes, capture_only) {}
};

/// Where a cuDNN kernel goes: a stream, and the handle that belongs to it and is bound to it.
struct CudnnTarget {
  cudaStream_t stream = nullptr;
  cudnnContext* handle = nullptr;
};

/// A kernel that calls cuDNN; every capture_only kernel of this backend is one. A cuDNN handle serves one stream and
/// one thread at a time, so each stream owns one (cuda_device.cc), made before its capture begins. SubmitTo is called
/// like Submit, with the thread's capture mode relaxed: outside a capture cuDNN may allocate and load code.
class CudnnKernel : public CudaKernel {
 public:
  virtual absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const = 0;
  absl::Status Submit(cudaStream_t, const KernelArgs&) const final {
    return absl::InternalError("a cuDNN kernel needs its stream's handle");
  }

 protected:
  CudnnKernel(std::string name, size_t workspace_bytes)
      : CudaKernel(std::move(name), workspace_bytes, /*capture_only=*/true) {}
};

}  // namespace sluice::gpu::cuda
