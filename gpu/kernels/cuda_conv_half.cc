// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_conv_half.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_status.h"
#include "gpu/kernels/cuda_conv_half_kernels.h"
#include "gpu/kernels/cuda_conv_parts.h"
#include "gpu/kernels/cuda_conv_problem.h"
#include "gpu/kernels/cuda_trial.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr size_t kHalfBytes = 2;

struct HalfParts {
  ConvParts common;  ///< Its shape says whether the library applies a Relu.
  DataType type = DataType::kFp16;
  HalfActivation activation;    ///< All of it, for our own kernels.
  bool activate_after = false;  ///< The library's call leaves the activation.
  int64_t output_count = 0;
};

absl::Status ActivateAfter(cudaStream_t stream, const HalfParts& parts, void* out) {
  if (!parts.activate_after) return absl::OkStatus();
  return SubmitHalfActivation(stream, parts.type, parts.activation, parts.output_count, out);
}

class CudnnHalfConv final : public CudnnKernel {
 public:
  CudnnHalfConv(HalfParts parts, ConvProblem problem, const ConvWay& way)
      : CudnnKernel(absl::StrCat(parts.common.name, " (cuDNN algorithm ", static_cast<int>(way.algorithm), ")"),
                    way.workspace_bytes),
        parts_(std::move(parts)),
        problem_(std::move(problem)),
        way_(way) {}

  absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.common.Bind(*this, args));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(problem_.Convolve(target.handle, way_, operands)));
    return ActivateAfter(target.stream, parts_, operands.output);
  }

 private:
  const HalfParts parts_;
  const ConvProblem problem_;
  const ConvWay way_;
};

/// All pixels are rows of one product with the weights.
class PointwiseConv final : public CudaKernel {
 public:
  PointwiseConv(HalfParts parts, const MatMulWay& way)
      : CudaKernel(absl::StrCat(parts.common.name, " (", way.name(), ")"), way.workspace_bytes()),
        parts_(std::move(parts)),
        way_(way) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.common.Bind(*this, args));
    SLUICE_RETURN_IF_ERROR(way_.Submit(stream, operands.input, operands.weights, operands.bias, operands.residual,
                                       operands.output, args.workspace));
    return ActivateAfter(stream, parts_, operands.output);
  }

 private:
  const HalfParts parts_;
  const MatMulWay way_;
};

/// By our own kernels.
class OwnHalfConv final : public CudaKernel {
 public:
  OwnHalfConv(HalfParts parts, bool depthwise)
      : CudaKernel(absl::StrCat(parts.common.name, depthwise ? " (depthwise)" : " (direct)"), 0),
        parts_(std::move(parts)),
        submit_(depthwise ? SubmitDepthwise : SubmitDirectHalf) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.common.Bind(*this, args));
    return submit_(stream, parts_.type, parts_.common.shape, parts_.activation, operands.input, operands.weights,
                   operands.bias, operands.residual, operands.output);
  }

 private:
  const HalfParts parts_;
  decltype(&SubmitDepthwise) const submit_;
};

uint16_t ToBits(DataType type, float value) {
  return type == DataType::kFp16 ? Fp16FromFloat(value) : Bf16FromFloat(value);
}

/// [filters, channels, kernel] of FP32 as halves, in another order: the element at (f, c, k) goes to
/// f * steps[0] + c * steps[1] + k * steps[2].
absl::StatusOr<CudaConstant> PackWeights(int ordinal, const ConvDescription& d, const std::string& layout,
                                         const int64_t (&steps)[3]) {
  const Dims& dims = d.weights.dims;
  const int64_t filters = dims[0], channels = dims[1];
  const int64_t kernel = dims[2] * dims[3];
  const size_t size_bytes = static_cast<size_t>(filters * channels * kernel) * kHalfBytes;
  return CudaConstant::Make(ordinal, d.packed_weights, d.weights.name,
                            absl::StrCat(layout, " ", std::string(WireName(d.type))), size_bytes,
                            [&](std::span<std::byte> to) {
                              auto* bits = reinterpret_cast<uint16_t*>(to.data());
                              const std::byte* from = d.weights.data.data();
                              for (int64_t f = 0; f < filters; ++f) {
                                for (int64_t c = 0; c < channels; ++c) {
                                  for (int64_t k = 0; k < kernel; ++k, from += sizeof(float)) {
                                    float value;
                                    std::memcpy(&value, from, sizeof(value));
                                    bits[f * steps[0] + c * steps[1] + k * steps[2]] = ToBits(d.type, value);
                                  }
                                }
                              }
                              return absl::OkStatus();
                            });
}

/// The libraries' fused calls insist on a bias: zeros where there is none.
absl::StatusOr<CudaConstant> PackBias(int ordinal, const ConvDescription& d, int64_t filters) {
  const std::string name = d.bias.has_value() ? d.bias->name : d.weights.name;
  const std::string layout = absl::StrCat(d.bias.has_value() ? "bias " : "no bias ", std::string(WireName(d.type)));
  const size_t size_bytes = static_cast<size_t>(filters) * kHalfBytes;
  return CudaConstant::Make(ordinal, d.packed_weights, name, layout, size_bytes, [&](std::span<std::byte> to) {
    std::memset(to.data(), 0, to.size());
    for (int64_t i = 0; d.bias.has_value() && i < filters; ++i) {
      float value;
      std::memcpy(&value, d.bias->data.data() + static_cast<size_t>(i) * sizeof(float), sizeof(value));
      reinterpret_cast<uint16_t*>(to.data())[i] = ToBits(d.type, value);
    }
    return absl::OkStatus();
  });
}

bool IsPointwise(const ConvShape& shape) {
  for (int i = 0; i < 3; ++i) {
    if (shape.kernel[i] != 1 || shape.strides[i] != 1 || shape.padded[i] != shape.input[i]) return false;
  }
  return shape.groups == 1;
}

MatMulOperands PointwiseProduct(const HalfParts& parts) {
  const ConvShape& shape = parts.common.shape;
  MatMulOperands product;
  product.type = product.out_type = parts.type;
  product.transpose_b = true;
  product.one_b = true;
  product.c_form = CForm::kRow;
  product.residual = parts.common.residual;
  MatMulShape& to = product.shape;
  to.rows = shape.batch * shape.output[1] * shape.output[2];
  to.depth = shape.channels;
  to.columns = shape.filters;
  to.a_row = to.depth;
  to.a_depth = 1;
  to.b_depth = 1;
  to.b_column = to.depth;
  to.has_c = true;
  to.c_column = 1;
  to.relu = shape.relu;
  return product;
}

/// Milliseconds of what `submit` enqueues, over operands of its own; none when it is not supported.
template <class Submit>
absl::StatusOr<std::optional<float>> Try(cudaStream_t stream, const HalfParts& parts, size_t workspace_bytes,
                                         TrialTimer& timer, const Submit& submit) {
  const ConvParts& common = parts.common;
  const size_t in = AlignWorkspace(common.input_bytes), out = AlignWorkspace(common.output_bytes);
  TrialMemory memory(stream);
  SLUICE_RETURN_IF_ERROR(memory.Allocate(in + out + workspace_bytes));
  ConvOperands operands = {.input = memory.data(),
                           .weights = common.weights.data(),
                           .bias = common.bias.data(),
                           .output = memory.data() + in,
                           .workspace = memory.data() + in + out};
  if (common.residual) operands.residual = operands.output;
  SLUICE_ASSIGN_OR_RETURN(const bool supported, submit(operands));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream)));
  if (!supported) return std::nullopt;
  return timer.Milliseconds([&] { return submit(operands).status(); });
}

/// The faster of the two libraries; null when neither takes it.
absl::StatusOr<std::unique_ptr<Kernel>> FastestOf(const CudnnTarget& target, MathLibraries& math,
                                                  MatMulChoices& choices, HalfParts& parts) {
  const ConvShape& shape = parts.common.shape;
  TrialTimer timer(target.stream);
  SLUICE_RETURN_IF_ERROR(timer.Make());
  float least = std::numeric_limits<float>::max();
  std::optional<MatMulWay> product;
  if (IsPointwise(shape)) {
    SLUICE_ASSIGN_OR_RETURN(const cublasLtHandle_t handle, math.CublasLt());
    SLUICE_ASSIGN_OR_RETURN(product, choices.Choose(handle, PointwiseProduct(parts)));
  }
  if (product.has_value()) {
    const DeviceSpan none;
    SLUICE_ASSIGN_OR_RETURN(
        const std::optional<float> took,
        Try(target.stream, parts, product->workspace_bytes(), timer,
            [&](const ConvOperands& o) -> absl::StatusOr<bool> {
              const DeviceSpan workspace = {static_cast<std::byte*>(o.workspace), product->workspace_bytes()};
              SLUICE_RETURN_IF_ERROR(product->Submit(target.stream, o.input, o.weights, o.bias, o.residual, o.output,
                                                     product->workspace_bytes() > 0 ? workspace : none));
              return true;
            }));
    least = *took;
  }
  absl::StatusOr<ConvProblem> problem = ConvProblem::Make(shape, /*padded_beforehand=*/false, {.type = parts.type});
  if (!problem.ok() && !absl::IsUnimplemented(problem.status())) return problem.status();
  std::optional<ConvWay> chosen;
  if (problem.ok()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<ConvWay> ways, problem->Ways(target.handle, /*plain=*/false));
    for (const ConvWay& way : ways) {
      if (!way.fused) continue;
      SLUICE_ASSIGN_OR_RETURN(
          const std::optional<float> took,
          Try(target.stream, parts, way.workspace_bytes, timer, [&](const ConvOperands& o) -> absl::StatusOr<bool> {
            const cudnnStatus_t answer = problem->Convolve(target.handle, way, o);
            if (MeansNotSupported(answer)) return false;
            SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "a trial convolution", __FILE__, __LINE__));
            return true;
          }));
      if (!took.has_value() || *took >= least) continue;
      chosen = way;
      least = *took;
    }
  }
  if (chosen.has_value()) return std::make_unique<CudnnHalfConv>(std::move(parts), *std::move(problem), *chosen);
  if (product.has_value()) return std::make_unique<PointwiseConv>(std::move(parts), *product);
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PrepareHalfConv(int ordinal, MathLibraries& math, MatMulChoices& choices,
                                                        const ConvDescription& d) {
  if (!d.channels_last || d.input.size() != 4) {
    return absl::UnimplementedError(absl::StrCat("the CUDA backend convolves ", std::string(WireName(d.type)),
                                                 " in two spatial dimensions with the channels last only, not ",
                                                 DimsToString(d.input)));
  }
  if (d.activation == Activation::kGelu) return absl::UnimplementedError("a convolution with Gelu");
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(d));
  HalfParts parts;
  parts.type = d.type;
  parts.activation = {d.activation, d.low, d.high};
  ConvParts& common = parts.common;
  common.name = absl::StrCat("conv ", DimsToString(d.input), " by ", DimsToString(d.weights.dims));
  common.shape = MakeConvShape(geometry, d.activation == Activation::kRelu);
  common.residual = d.residual;
  const ConvShape& shape = common.shape;
  parts.activate_after = d.activation != Activation::kNone && !shape.relu;
  const int64_t input_count = shape.batch * shape.channels * shape.input[1] * shape.input[2];
  parts.output_count = shape.batch * shape.filters * shape.output[1] * shape.output[2];
  common.input_bytes = static_cast<size_t>(input_count) * kHalfBytes;
  common.output_bytes = static_cast<size_t>(parts.output_count) * kHalfBytes;
  SLUICE_ASSIGN_OR_RETURN(common.bias, PackBias(ordinal, d, shape.filters));
  const int64_t channels = shape.channels / shape.groups, kernel = shape.kernel[1] * shape.kernel[2];
  if (channels == 1 && shape.filters == shape.channels) {
    SLUICE_ASSIGN_OR_RETURN(common.weights, PackWeights(ordinal, d, "kernel first", {1, 0, shape.filters}));
    SLUICE_RETURN_IF_ERROR(LoadDepthwise(ordinal, d.type));
    return std::make_unique<OwnHalfConv>(std::move(parts), /*depthwise=*/true);
  }
  SLUICE_ASSIGN_OR_RETURN(common.weights, PackWeights(ordinal, d, "channels last", {kernel * channels, 1, channels}));
  if (parts.activate_after) SLUICE_RETURN_IF_ERROR(LoadHalfActivation(ordinal, d.type));
  if (ConvProblem::TakesPads(geometry.spatial)) {
    SLUICE_ASSIGN_OR_RETURN(const CudnnTarget target, math.TakeCudnn());
    absl::StatusOr<std::unique_ptr<Kernel>> kernel_found = FastestOf(target, math, choices, parts);
    math.GiveCudnn(target);
    SLUICE_RETURN_IF_ERROR(kernel_found.status());
    if (*kernel_found != nullptr) return kernel_found;
  }
  SLUICE_RETURN_IF_ERROR(LoadDirectHalf(ordinal, d.type));
  return std::make_unique<OwnHalfConv>(std::move(parts), /*depthwise=*/false);
}

}  // namespace sluice::gpu::cuda
