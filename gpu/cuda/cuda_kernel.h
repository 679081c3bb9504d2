// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gpu/kernel.h"

namespace sluice::gpu::cuda {

/// A kernel of a CUDA device. Submit is called by Device::Launch, with the device current on the thread: it enqueues to
/// `stream`, and to nothing else, allocates nothing, synchronises nothing, and is capturable. The stream may be under
/// capture. Returns the error of the enqueuing.
class CudaKernel : public Kernel {
 public:
  virtual absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const = 0;

 protected:
  CudaKernel(std::string name, size_t workspace_bytes) : Kernel(Backend::kCuda, std::move(name), workspace_bytes) {}
};

}  // namespace sluice::gpu::cuda
