// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "gpu/device.h"

namespace sluice::gpu {

/// What one launch works on: the kernel's inputs, then its outputs, in the order its Prepare function documents. The
/// array itself must outlive the launch (a slot owns it).
struct KernelArgs {
  std::span<const DeviceSpan> spans;
  DeviceSpan workspace;  ///< At least Kernel::workspace_bytes(); may be empty when that is 0.
};

/// One operator prepared for one device and fixed shapes. Purpose: launch with nothing left to decide. Immutable after
/// Prepare, so any number of slots may launch it at once. Launched through Device::Launch; backends downcast to their
/// own kind (gpu/host/host_kernel.h, gpu/cuda/cuda_kernel.h).
class Kernel {
 public:
  virtual ~Kernel() = default;
  Backend backend() const { return backend_; }
  /// For people: operator and shapes.
  const std::string& name() const { return name_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  /// True when launching it outside a capture is slow or may allocate: that is for load time, and refused on per-thread
  /// streams (FAILED_PRECONDITION). Plans capture it, however short the unit, so that requests only launch the graph.
  bool capture_only() const { return capture_only_; }

 protected:
  Kernel(Backend backend, std::string name, size_t workspace_bytes, bool capture_only = false)
      : backend_(backend), name_(std::move(name)), workspace_bytes_(workspace_bytes), capture_only_(capture_only) {}

 private:
  const Backend backend_;
  const std::string name_;
  const size_t workspace_bytes_;
  const bool capture_only_;
};

}  // namespace sluice::gpu
