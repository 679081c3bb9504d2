// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "gpu/kernel.h"

namespace sluice::gpu::host {

/// A kernel of the host device: Run is called on the device's compute thread, with the thread team already set up
/// (OpenMP's thread count is --host-threads there). It must not block, allocate, or touch memory other than `args`.
class HostKernel : public Kernel {
 public:
  virtual void Run(const KernelArgs& args) const = 0;

 protected:
  HostKernel(std::string name, size_t workspace_bytes) : Kernel(Backend::kHost, std::move(name), workspace_bytes) {}
};

}  // namespace sluice::gpu::host
