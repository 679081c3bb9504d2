// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Convolutions: by cuDNN (cuda_conv_problem.h) or as a matrix product by cuBLASLt (cuda_conv_columns.h), whichever
// takes less time, and by our own kernel for what neither does.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_libraries.h"
#include "gpu/cuda/math_status.h"
#include "gpu/kernels/cuda_constant.h"
#include "gpu/kernels/cuda_conv_columns.h"
#include "gpu/kernels/cuda_conv_half.h"
#include "gpu/kernels/cuda_conv_kernels.h"
#include "gpu/kernels/cuda_conv_parts.h"
#include "gpu/kernels/cuda_conv_problem.h"
#include "gpu/kernels/cuda_trial.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {

absl::StatusOr<ConvOperands> ConvParts::Bind(const Kernel& kernel, const KernelArgs& args) const {
  const size_t expected = residual ? 3 : 2;
  if (args.spans.size() != expected) {
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " takes ", expected, " spans and got ", args.spans.size()));
  }
  for (size_t i = 0; i < expected; ++i) {
    const size_t needed = i == 0 ? input_bytes : output_bytes;
    if (args.spans[i].size_bytes >= needed) continue;
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), ": span ", i, " needs ", needed,
                                            " bytes and has ", args.spans[i].size_bytes));
  }
  return ConvOperands{.input = args.spans[0].data,
                      .weights = weights.data(),
                      .bias = bias.data(),
                      .residual = residual ? args.spans[1].data : nullptr,
                      .output = args.spans[expected - 1].data,
                      .workspace = args.workspace.data};
}

namespace {

size_t FloatBytes(int64_t leading, const int64_t (&dims)[3]) {
  return static_cast<size_t>(leading * dims[0] * dims[1] * dims[2]) * sizeof(float);
}

/// Workspace: the padded input, if any, then the library's.
class CudnnConv final : public CudnnKernel {
 public:
  CudnnConv(ConvParts parts, ConvProblem problem, const ConvWay& way)
      : CudnnKernel(absl::StrCat(parts.name, " (cuDNN algorithm ", static_cast<int>(way.algorithm),
                                 way.fused ? ", fused)" : ")"),
                    AlignWorkspace(parts.padded_bytes) + way.workspace_bytes),
        parts_(std::move(parts)),
        problem_(std::move(problem)),
        way_(way) {}

  absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(ConvOperands operands, parts_.Bind(*this, args));
    operands.workspace =
        args.workspace.data == nullptr ? nullptr : args.workspace.data + AlignWorkspace(parts_.padded_bytes);
    if (parts_.pad) {
      auto* padded = reinterpret_cast<float*>(args.workspace.data);
      SLUICE_RETURN_IF_ERROR(SubmitPad(target.stream, parts_.shape, static_cast<const float*>(operands.input), padded));
      operands.input = padded;
    }
    if (!way_.fused && operands.residual != nullptr && operands.residual != operands.output) {
      SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaMemcpyAsync(operands.output, operands.residual, parts_.output_bytes,
                                                                cudaMemcpyDeviceToDevice, target.stream)));
    }
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(problem_.Convolve(target.handle, way_, operands)));
    if (way_.fused || (operands.bias == nullptr && !parts_.shape.relu)) return absl::OkStatus();
    return SubmitAddBias(target.stream, parts_.shape, static_cast<const float*>(operands.bias),
                         static_cast<float*>(operands.output));
  }

 private:
  const ConvParts parts_;
  const ConvProblem problem_;
  const ConvWay way_;
};

/// Several launches, so it is captured too: a request pays for one.
class ColumnsConv final : public CudnnKernel {
 public:
  ColumnsConv(ConvParts parts, const ColumnsWay& way)
      : CudnnKernel(absl::StrCat(parts.name, " (columns, cuBLASLt)"), way.workspace_bytes()),
        parts_(std::move(parts)),
        way_(way) {}

  absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.Bind(*this, args));
    return way_.Submit(target.stream, operands);
  }

 private:
  const ConvParts parts_;
  const ColumnsWay way_;
};

class DirectConv final : public CudaKernel {
 public:
  explicit DirectConv(ConvParts parts)
      : CudaKernel(absl::StrCat(parts.name, " (direct)"), 0), parts_(std::move(parts)) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.Bind(*this, args));
    return SubmitDirectConv(stream, parts_.shape, static_cast<const float*>(operands.input), parts_.weights.floats(),
                            parts_.bias.floats(), static_cast<const float*>(operands.residual),
                            static_cast<float*>(operands.output));
  }

 private:
  const ConvParts parts_;
};

/// What enqueues a convolution into memory of its own, for a trial.
struct TrialConv {
  TrialMemory memory;
  ConvOperands operands;
};

absl::Status MakeTrial(const ConvParts& parts, size_t input_bytes, size_t workspace_bytes, TrialConv& to) {
  const size_t in = AlignWorkspace(input_bytes), out = AlignWorkspace(parts.output_bytes);
  SLUICE_RETURN_IF_ERROR(to.memory.Allocate(in + out + workspace_bytes));
  to.operands = {.input = to.memory.data(),
                 .weights = parts.weights.data(),
                 .bias = parts.bias.data(),
                 .output = to.memory.data() + in,
                 .workspace = to.memory.data() + in + out};
  if (parts.residual) to.operands.residual = to.operands.output;
  return absl::OkStatus();
}

/// What one way of cuDNN takes, in milliseconds; none when it does not take the call. The first convolution loads its
/// code, so that no capture does.
absl::StatusOr<std::optional<float>> TryWay(const CudnnTarget& target, const ConvProblem& problem,
                                            const ConvParts& parts, const ConvWay& way, TrialTimer& timer) {
  TrialConv trial = {TrialMemory(target.stream), {}};
  const size_t input_bytes = parts.pad ? parts.padded_bytes : parts.input_bytes;
  SLUICE_RETURN_IF_ERROR(MakeTrial(parts, input_bytes, way.workspace_bytes, trial));
  const ConvOperands& operands = trial.operands;
  const cudnnStatus_t answer = problem.Convolve(target.handle, way, operands);
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(target.stream)));
  if (MeansNotSupported(answer)) return std::nullopt;
  SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "a trial convolution", __FILE__, __LINE__));
  return timer.Milliseconds([&]() -> absl::Status {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(problem.Convolve(target.handle, way, operands)));
    if (way.fused || (operands.bias == nullptr && !parts.shape.relu)) return absl::OkStatus();
    return SubmitAddBias(target.stream, parts.shape, static_cast<const float*>(operands.bias),
                         static_cast<float*>(operands.output));
  });
}

absl::StatusOr<float> TryColumns(cudaStream_t stream, const ConvParts& parts, const ColumnsWay& way,
                                 TrialTimer& timer) {
  TrialConv trial = {TrialMemory(stream), {}};
  SLUICE_RETURN_IF_ERROR(MakeTrial(parts, parts.input_bytes, way.workspace_bytes(), trial));
  SLUICE_RETURN_IF_ERROR(way.Submit(stream, trial.operands));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream)));
  return timer.Milliseconds([&] { return way.Submit(stream, trial.operands); });
}

/// The fastest way found; at most one of the two is set.
struct ChosenWay {
  std::optional<ConvWay> cudnn;
  std::optional<ColumnsWay> columns;
};

/// By convolving whatever lies in memory: which calls cuDNN takes is known only to itself, and its own ranking is poor
/// for small batches in fp32. `problem` is none when cuDNN cannot describe it.
absl::StatusOr<ChosenWay> TryWays(const CudnnTarget& target, cublasLtHandle_t cublas_lt, const ConvProblem* problem,
                                  const ConvParts& parts) {
  TrialTimer timer(target.stream);
  SLUICE_RETURN_IF_ERROR(timer.Make());
  ChosenWay chosen;
  float least = std::numeric_limits<float>::max();
  if (problem != nullptr) {
    const bool plain = !parts.bias && !parts.residual && !parts.shape.relu;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<ConvWay> ways, problem->Ways(target.handle, plain));
    for (const ConvWay& way : ways) {
      SLUICE_ASSIGN_OR_RETURN(const std::optional<float> milliseconds, TryWay(target, *problem, parts, way, timer));
      if (!milliseconds.has_value() || *milliseconds >= least) continue;
      chosen.cudnn = way;
      least = *milliseconds;
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ColumnsWay> ways,
                          ColumnsWay::Ways(cublas_lt, parts.shape, parts.residual, parts.tf32));
  for (const ColumnsWay& way : ways) {
    SLUICE_ASSIGN_OR_RETURN(const float milliseconds, TryColumns(target.stream, parts, way, timer));
    if (milliseconds >= least) continue;
    chosen = {.cudnn = std::nullopt, .columns = way};
    least = milliseconds;
  }
  return chosen;
}

absl::StatusOr<ConvParts> MakeParts(int ordinal, const ConvDescription& d, const ConvGeometry& geometry) {
  ConvParts parts;
  parts.name = absl::StrCat("conv ", DimsToString(d.input), " by ", DimsToString(d.weights.dims));
  parts.shape = MakeConvShape(geometry, d.activation == Activation::kRelu);
  const ConvShape& shape = parts.shape;
  parts.residual = d.residual;
  parts.tf32 = d.tf32;
  parts.pad = !ConvProblem::TakesPads(geometry.spatial);
  parts.input_bytes = FloatBytes(shape.batch * shape.channels, shape.input);
  parts.output_bytes = FloatBytes(shape.batch * shape.filters, shape.output);
  if (parts.pad) {
    Dims padded = {shape.batch, shape.channels};
    padded.insert(padded.end(), shape.padded, shape.padded + 3);
    SLUICE_RETURN_IF_ERROR(ElementCount(padded).status());
    parts.padded_bytes = FloatBytes(shape.batch * shape.channels, shape.padded);
  }
  SLUICE_ASSIGN_OR_RETURN(parts.weights, CudaConstant::MakePlain(ordinal, d.packed_weights, d.weights));
  if (d.bias.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(parts.bias, CudaConstant::MakePlain(ordinal, d.packed_weights, *d.bias));
  } else if (d.residual || shape.relu) {  // The fused call insists on a bias.
    SLUICE_ASSIGN_OR_RETURN(
        parts.bias, CudaConstant::Make(ordinal, d.packed_weights, d.weights.name, "no bias",
                                       static_cast<size_t>(shape.filters) * sizeof(float), [](std::span<std::byte> to) {
                                         std::memset(to.data(), 0, to.size());
                                         return absl::OkStatus();
                                       }));
  }
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareConv(const ConvDescription& description) {
  if (description.type != DataType::kFp32) {
    return PrepareHalfConv(ordinal_, *math_, *matmul_choices_, description);
  }
  if (description.channels_last ||
      (description.activation != Activation::kNone && description.activation != Activation::kRelu)) {
    return absl::UnimplementedError("the CUDA backend convolves FP32 channels first, with Relu as the only activation");
  }
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  SLUICE_ASSIGN_OR_RETURN(ConvParts parts, MakeParts(ordinal_, description, geometry));
  absl::StatusOr<ConvProblem> problem = ConvProblem::Make(parts.shape, parts.pad, {.tf32 = description.tf32});
  if (!problem.ok() && !absl::IsUnimplemented(problem.status())) return problem.status();
  SLUICE_RETURN_IF_ERROR(ColumnsWay::Load(ordinal_));
  SLUICE_RETURN_IF_ERROR(LoadPad(ordinal_));
  SLUICE_ASSIGN_OR_RETURN(const cublasLtHandle_t cublas_lt, math_->CublasLt());
  SLUICE_ASSIGN_OR_RETURN(const CudnnTarget target, math_->TakeCudnn());
  const absl::StatusOr<ChosenWay> way = TryWays(target, cublas_lt, problem.ok() ? &*problem : nullptr, parts);
  math_->GiveCudnn(target);
  SLUICE_RETURN_IF_ERROR(way.status());
  if (way->columns.has_value()) return std::make_unique<ColumnsConv>(std::move(parts), *way->columns);
  if (way->cudnn.has_value()) {
    return std::make_unique<CudnnConv>(std::move(parts), *std::move(problem), *way->cudnn);
  }
  SLUICE_RETURN_IF_ERROR(LoadDirectConv(ordinal_));
  return std::make_unique<DirectConv>(std::move(parts));
}

}  // namespace sluice::gpu::cuda
