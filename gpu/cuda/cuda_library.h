// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/cuda_trial.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu::cuda {

class MathLibraries;
class MatMulChoices;

/// Kernels of one CUDA device; a family that is not named here is UNIMPLEMENTED as inherited. Preparing loads the
/// device code, which CUDA otherwise does at the first launch: not on a request's path, and not inside a capture. Walks
/// over broadcast or permuted tensors have at most 8 dimensions after neighbours are merged, else UNIMPLEMENTED.
class CudaKernelLibrary final : public KernelLibrary {
 public:
  CudaKernelLibrary(int ordinal, std::unique_ptr<TuningTable> tuning);
  ~CudaKernelLibrary() override;

  KernelFeatures features() const override { return {.low_precision = true}; }
  TuningTable* tuning() override { return tuning_.get(); }
  void SetLoadTurns(LoadTurns* turns) override;
  /// FP32, without rounding of inputs unless TF32 is asked for, FP16 and BF16: cuBLASLt, whose algorithms are tried
  /// here unless a tuning says which, and an own kernel for up to four rows. FP64, INT32 and INT64 by own kernels, with
  /// alpha and beta 1 and no activation.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const MatMulDescription& description) override;
  /// FP32 likewise; FP16 and BF16 as cuda_conv_half.h says: cuDNN, whose algorithms are tried here on a stream of their
  /// own, once each.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const ConvDescription& description) override;
  /// True once a kernel that calls cuDNN was prepared: streams then need a handle.
  bool uses_cudnn() const;

  /// FP16 and BF16 (cuda_attention.cu).
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttention(const AttentionDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PreparePool(const PoolDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalPool(const GlobalPoolDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareUnary(const UnaryDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareCast(const CastDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareBinary(const BinaryDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareWhere(const WhereDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareElementwiseChain(
      const ElementwiseChainDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareReduce(const ReduceDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareArgReduce(const ArgReduceDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareSoftmax(const SoftmaxDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNorm(const BatchNormDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNorm(const LayerNormDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(const TransposeDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const ConcatDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const SliceDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareGather(const GatherDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareExpand(const ExpandDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareCopy(const CopyDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareFill(const FillDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareDelay(const DelayDescription& description) override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareStamp() override;
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareTransfer(const TransferDescription& description) override;

 private:
  const int ordinal_;
  const std::unique_ptr<TuningTable> tuning_;  ///< Never null.
  TrialRules trial_rules_;
  const std::unique_ptr<MathLibraries> math_;
  const std::unique_ptr<MatMulChoices> matmul_choices_;
};

/// What a tuning of this device holds for: the device, the driver and the libraries whose ways are chosen from.
absl::StatusOr<std::string> TuningEnvironment(int ordinal);

/// Enqueues one write of the device's clock to `out`; for the device's own use.
absl::Status SubmitStamp(cudaStream_t stream, std::byte* out);

}  // namespace sluice::gpu::cuda
