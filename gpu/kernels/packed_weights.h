// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.h"

namespace sluice::gpu {

/// Constants of one model on one device, in the layouts its kernels ask for. Purpose: a weight exists once per layout,
/// however many buckets' kernels use it. Bounds: one entry per (constant, layout) pair. Ownership: the pool owns the
/// memory and outlives every kernel prepared with it. Threads: load time only, one thread at a time; may block and
/// allocate. Errors: RESOURCE_EXHAUSTED when memory is out; whatever `pack` returns; INTERNAL when the same pair is
/// asked for with another size.
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  /// The packed form of `constant`, made on first use: `pack` fills a host-visible buffer of `size_bytes` (64-byte
  /// aligned, contents undefined), which is then placed in the device's memory. An empty `layout` means row-major as in
  /// the file, so that the pool may hand out a span it already has. Calls with equal names must pack equal bytes.
  virtual absl::StatusOr<DeviceSpan> GetOrPack(const std::string& constant, const std::string& layout,
                                               size_t size_bytes,
                                               absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) = 0;
};

}  // namespace sluice::gpu
