// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu {

/// Host memory of one span, with a guard behind it that a kernel must not touch. `shift_bytes` moves the span away from
/// the 64-byte boundary that it otherwise begins at.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size_bytes, size_t shift_bytes = 0)
      : size_bytes_(size_bytes), shift_bytes_(shift_bytes), memory_(Allocate(shift_bytes + size_bytes + kGuard)) {
    std::memset(memory_.get(), 0xA5, shift_bytes + size_bytes + kGuard);
  }
  template <class T>
  static GuardedBuffer Of(const std::vector<T>& values, size_t shift_bytes = 0) {
    GuardedBuffer buffer(values.size() * sizeof(T), shift_bytes);
    if (!values.empty()) std::memcpy(buffer.span().data, values.data(), values.size() * sizeof(T));
    return buffer;
  }
  DeviceSpan span() const { return {memory_.get() + shift_bytes_, size_bytes_}; }
  /// Everything, from the boundary to the end of the guard.
  std::span<std::byte> memory() const { return {memory_.get(), shift_bytes_ + size_bytes_ + kGuard}; }
  size_t shift_bytes() const { return shift_bytes_; }
  template <class T>
  std::vector<T> Values() const {
    std::vector<T> values(size_bytes_ / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), span().data, values.size() * sizeof(T));
    return values;
  }
  /// True while nothing before or behind the span was written.
  bool GuardIntact() const {
    const std::span<std::byte> all = memory();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool inside = i >= shift_bytes_ && i < shift_bytes_ + size_bytes_;
      if (!inside && all[i] != std::byte{0xA5}) return false;
      if (inside) i = shift_bytes_ + size_bytes_ - 1;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  static std::unique_ptr<std::byte, Free> Allocate(size_t size) {
    return std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(::operator new (size, std::align_val_t{64})));
  }
  size_t size_bytes_;
  size_t shift_bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// Where the kernels under test run. The suite is compiled once; each executable links one backend.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;
  /// The libraries under test by name, the reference (if any) first and the default last.
  virtual std::vector<std::pair<std::string, KernelLibrary*>> libraries() = 0;
  /// Runs the kernel to its end; afterwards the buffers hold what it left. A buffer that is named twice is one memory.
  virtual absl::Status Run(const Kernel& kernel, std::span<const GuardedBuffer* const> spans,
                           const GuardedBuffer& workspace) = 0;
  /// Memory of the device with these bytes; lives as long as the backend.
  virtual absl::StatusOr<DeviceSpan> Place(std::span<const std::byte> bytes) = 0;
};

/// The one that this executable is linked with.
KernelBackend& BackendUnderTest();

/// Path of the module that the CUDA backend is made of. CUDA tests only.
std::string CudaModuleUnderTest();

}  // namespace sluice::gpu
