// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/packed_weights.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu::host {

/// Packed constant of a host kernel: in the model's pool, or in memory of its own when there is none.
class HostConstant {
 public:
  HostConstant() = default;
  /// See PackedWeights::GetOrPack; `pool` may be null.
  static absl::StatusOr<HostConstant> Make(PackedWeights* pool, const std::string& constant, const std::string& layout,
                                           size_t size_bytes,
                                           absl::FunctionRef<absl::Status(std::span<std::byte>)> pack);
  /// As it is in the file.
  static absl::StatusOr<HostConstant> MakePlain(PackedWeights* pool, const Constant& constant);

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  const float* floats() const { return reinterpret_cast<const float*>(data_); }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> own_;
  std::byte* data_ = nullptr;
};

}  // namespace sluice::gpu::host
