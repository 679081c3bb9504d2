// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/cuda_conv_parts.h"

namespace sluice::gpu::cuda {

/// One way of doing a convolution with cuDNN.
struct ConvWay {
  cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  bool fused = false;  ///< Bias, residual and activation in one call; otherwise only the residual is added.
  size_t workspace_bytes = 0;
  /// Tells it from other ways of its problem, for a tuning.
  std::string LongName() const;
};

/// How the numbers of a convolution are stored, and how they may be multiplied.
struct ConvNumbers {
  /// FP32: channels first, by fused multiply-add unless `tf32`. FP16 and BF16: channels last, by tensor cores, summed
  /// in FP32; weights [filters, kernel, channels], bias of the same type.
  DataType type = DataType::kFp32;
  bool tf32 = false;
};

/// A convolution as cuDNN's descriptors. Immutable once made, so that any number of threads may convolve at once, each
/// with its own handle.
class ConvProblem {
 public:
  /// True when cuDNN can be given the pads: the same on both sides, and no window wholly inside them.
  static bool TakesPads(const Spatial& spatial);
  /// Pads are `shape.pads_begin` on both sides, or none when the input was padded beforehand: `shape.padded` is then
  /// the input. UNIMPLEMENTED for tensors that cuDNN cannot count.
  static absl::StatusOr<ConvProblem> Make(const ConvShape& shape, bool padded_beforehand, const ConvNumbers& numbers);

  /// Ways worth trying, best first: deterministic, with a bounded workspace. `plain`: nothing comes after the sum.
  absl::StatusOr<std::vector<ConvWay>> Ways(cudnnHandle_t handle, bool plain) const;
  /// Enqueues to the handle's stream. When not fused, the output must hold the residual, if there is one.
  cudnnStatus_t Convolve(cudnnHandle_t handle, const ConvWay& way, const ConvOperands& operands) const;

 private:
  template <class Descriptor, cudnnStatus_t (*destroy)(Descriptor)>
  struct Destroy {
    void operator()(Descriptor descriptor) const { static_cast<void>(destroy(descriptor)); }
  };
  template <class Descriptor, cudnnStatus_t (*destroy)(Descriptor)>
  using Owner = std::unique_ptr<std::remove_pointer_t<Descriptor>, Destroy<Descriptor, destroy>>;

  ConvProblem() = default;
  absl::Status Create();

  Owner<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> input_, output_, bias_;
  Owner<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> weights_;
  Owner<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> convolution_;
  Owner<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor> activation_;
  ConvNumbers numbers_;
  bool relu_ = false;
};

}  // namespace sluice::gpu::cuda
