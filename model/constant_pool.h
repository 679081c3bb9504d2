// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/kernels/packed_weights.h"
#include "model/graph.h"

namespace sluice::model {

/// The constants of one model on one device, in every layout that a kernel asked for. Purpose: weights exist once per
/// device, shared by all plans and slots. Bounds: one buffer per (constant, layout). Ownership: owns its buffers; the
/// device must outlive it, and it every plan of the model. Threads: one at a time, load time only; blocks for copies.
/// Errors: as gpu::PackedWeights.
class ConstantPool final : public gpu::PackedWeights {
 public:
  explicit ConstantPool(gpu::Device& device) : device_(device) {}
  absl::StatusOr<gpu::DeviceSpan> GetOrPack(const std::string& constant, const std::string& layout, size_t size_bytes,
                                            absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) override;
  /// The constant as it is, row-major.
  absl::StatusOr<gpu::DeviceSpan> Get(const Value& constant);
  size_t total_bytes() const { return total_bytes_; }
  /// Gives back what uploads needed; they take it again. When a plan's constants are there.
  void ReleaseStaging() { staging_ = {}; }

 private:
  struct Entry {
    gpu::PinnedBuffer pinned;  ///< With unified memory.
    gpu::DeviceBuffer device;  ///< Otherwise.
    gpu::DeviceSpan span;
  };
  absl::StatusOr<Entry> Pack(size_t size_bytes, absl::FunctionRef<absl::Status(std::span<std::byte>)> pack);
  /// Through pinned memory, which is kept for the next one and only made anew for a larger one: making it holds up
  /// whoever launches meanwhile.
  absl::Status Upload(size_t size_bytes, gpu::DeviceSpan to,
                      absl::FunctionRef<absl::Status(std::span<std::byte>)> pack);

  gpu::Device& device_;
  gpu::PinnedBuffer staging_;
  gpu::Stream stream_;  ///< After the memory that its copies read: it ends first.
  std::map<std::pair<std::string, std::string>, Entry> entries_;
  size_t total_bytes_ = 0;
};

}  // namespace sluice::model
