// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gpu/kernel.h"

namespace sluice::gpu::host {

/// A kernel of the host device: Run is called on the device's compute thread, with the thread team already set up
/// (OpenMP's thread count is --host-threads there). It must not block, allocate device memory, or touch memory other
/// than `args`. Shapes were checked by Prepare, so an error means that the library below is broken: the device is lost,
/// since an output that was not written must never be answered as if it were.
class HostKernel : public Kernel {
 public:
  virtual absl::Status Run(const KernelArgs& args) const = 0;

 protected:
  HostKernel(std::string name, size_t workspace_bytes) : Kernel(Backend::kHost, std::move(name), workspace_bytes) {}
};

}  // namespace sluice::gpu::host
