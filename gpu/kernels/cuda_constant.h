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

namespace sluice::gpu::cuda {

/// Packed constant of a CUDA kernel: in the model's pool, or in device memory of its own when there is none. Load time
/// only. Errors: those of the pool and of cuda_status.h.
class CudaConstant {
 public:
  CudaConstant() = default;
  /// See PackedWeights::GetOrPack; `pool` may be null. `ordinal` is the device.
  static absl::StatusOr<CudaConstant> Make(int ordinal, PackedWeights* pool, const std::string& constant,
                                           const std::string& layout, size_t size_bytes,
                                           absl::FunctionRef<absl::Status(std::span<std::byte>)> pack);
  /// As it is in the file.
  static absl::StatusOr<CudaConstant> MakePlain(int ordinal, PackedWeights* pool, const Constant& constant);

  explicit operator bool() const { return data_ != nullptr; }
  const void* data() const { return data_; }
  const float* floats() const { return reinterpret_cast<const float*>(data_); }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> own_;
  const std::byte* data_ = nullptr;
};

}  // namespace sluice::gpu::cuda
