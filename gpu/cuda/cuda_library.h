// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu::cuda {

class MathLibraries;

/// Kernels of one CUDA device: stamps, delays, fills and elementwise arithmetic. Every other family is UNIMPLEMENTED as
/// inherited. Preparing loads the device code, which CUDA otherwise does at the first launch: not on a request's path,
/// and not inside a capture.
class CudaKernelLibrary final : public KernelLibrary {
 public:
  explicit CudaKernelLibrary(int ordinal);
  ~CudaKernelLibrary() override;

  /// FP32 without rounding of inputs (no TF32): cuBLASLt, and own kernels for up to four rows. FP64, INT32 and INT64 by
  /// own kernels, with alpha and beta 1 and no activation.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const MatMulDescription& description) override;
  /// FP32 without rounding of inputs: cuDNN, whose algorithms are tried here on a stream of their own, once each.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const ConvDescription& description) override;
  /// True once a kernel that calls cuDNN was prepared: streams then need a handle.
  bool uses_cudnn() const;

  /// Add, Sub, Mul, Max and Min of FP32, FP64, INT32 and INT64, and Div of the floating types.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareBinary(const BinaryDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareFill(const FillDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareDelay(const DelayDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareStamp() override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareTransfer(const TransferDescription& description) override;

 private:
  const int ordinal_;
  const std::unique_ptr<MathLibraries> math_;
};

/// Enqueues one write of the device's clock to `out`; for the device's own use.
absl::Status SubmitStamp(cudaStream_t stream, std::byte* out);

}  // namespace sluice::gpu::cuda
