// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Convolutions: by cuDNN (cuda_conv_problem.h) or as a matrix product by cuBLASLt (cuda_conv_columns.h), whichever
// takes less time, and by our own kernel for what neither does.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

std::string ConvParts::ProblemName(DataType type) const {
  const auto dims = [](const int64_t(&values)[3]) { return absl::StrJoin(values, "x"); };
  return absl::StrCat("conv ", std::string(WireName(type)), tf32 ? " tf32 " : " ", shape.batch, "x", shape.channels,
                      "x", dims(shape.input), " by ", shape.filters, "x", dims(shape.kernel), " groups ", shape.groups,
                      " strides ", dims(shape.strides), " dilations ", dims(shape.dilations), " pads ",
                      dims(shape.pads_begin), " of ", dims(shape.padded), bias ? " bias" : "",
                      residual ? " residual" : "", shape.relu ? " relu" : "");
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

/// Up to so many of cuBLASLt's algorithms for each number of parts of the depth; more where a tuning is made or read.
constexpr int kMostColumnsWays = 2;
constexpr int kMostTunedColumnsWays = 24;

/// A way of convolving FP32: one of the two is set.
struct FloatWay {
  std::optional<ConvWay> cudnn;
  std::optional<ColumnsWay> columns;

  absl::StatusOr<std::string> LongName() const { return cudnn.has_value() ? cudnn->LongName() : columns->LongName(); }
  size_t workspace_bytes() const { return cudnn.has_value() ? cudnn->workspace_bytes : columns->workspace_bytes(); }
};

/// False when cuDNN does not take the call. A trial leaves out what cuDNN needs beforehand: pads, a copied residual.
absl::StatusOr<bool> SubmitTrial(const CudnnTarget& target, const ConvProblem* problem, const ConvParts& parts,
                                 const FloatWay& way, const ConvOperands& operands) {
  if (way.columns.has_value()) {
    SLUICE_RETURN_IF_ERROR(way.columns->Submit(target.stream, operands));
    return true;
  }
  const cudnnStatus_t answer = problem->Convolve(target.handle, *way.cudnn, operands);
  if (MeansNotSupported(answer)) return false;
  SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "a trial convolution", __FILE__, __LINE__));
  if (way.cudnn->fused || (operands.bias == nullptr && !parts.shape.relu)) return true;
  SLUICE_RETURN_IF_ERROR(SubmitAddBias(target.stream, parts.shape, static_cast<const float*>(operands.bias),
                                       static_cast<float*>(operands.output)));
  return true;
}

/// The fastest way, by convolving whatever lies in memory: which calls cuDNN takes is known only to itself, and its own
/// ranking is poor for small batches in FP32. None when nothing convolves. `problem` is none when cuDNN cannot describe
/// it.
absl::StatusOr<std::optional<FloatWay>> FastestFloatWay(const CudnnTarget& target, cublasLtHandle_t cublas_lt,
                                                        const TrialRules& rules, const ConvProblem* problem,
                                                        const ConvParts& parts) {
  TrialProblem trial = {.rules = rules, .name = parts.ProblemName(DataType::kFp32), .ways = {}};
  const bool tuned = rules.tuning.tunes() || rules.tuning.Find(trial.name).has_value();
  std::vector<FloatWay> ways;
  if (problem != nullptr) {
    const bool plain = !parts.bias && !parts.residual && !parts.shape.relu;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<ConvWay> found, problem->Ways(target.handle, plain));
    for (const ConvWay& way : found) ways.push_back({.cudnn = way, .columns = std::nullopt});
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ColumnsWay> found,
                          ColumnsWay::Ways(cublas_lt, parts.shape, parts.residual, parts.tf32,
                                           tuned ? kMostTunedColumnsWays : kMostColumnsWays));
  for (const ColumnsWay& way : found) ways.push_back({.cudnn = std::nullopt, .columns = way});
  size_t workspace_bytes = 0;
  for (const FloatWay& way : ways) {
    SLUICE_ASSIGN_OR_RETURN(trial.ways.emplace_back(), way.LongName());
    workspace_bytes = std::max(workspace_bytes, way.workspace_bytes());
  }
  TrialMemory memory(target.stream);
  const size_t in = AlignWorkspace(parts.pad ? parts.padded_bytes : parts.input_bytes);
  const size_t out = AlignWorkspace(parts.output_bytes);
  SLUICE_RETURN_IF_ERROR(memory.Allocate(in + out + workspace_bytes));
  ConvOperands operands = {.input = memory.data(),
                           .weights = parts.weights.data(),
                           .bias = parts.bias.data(),
                           .output = memory.data() + in,
                           .workspace = memory.data() + in + out};
  if (parts.residual) operands.residual = operands.output;
  SLUICE_ASSIGN_OR_RETURN(const std::optional<size_t> fastest, FastestWay(target.stream, trial, [&](size_t way, int) {
                            return SubmitTrial(target, problem, parts, ways[way], operands);
                          }));
  if (!fastest.has_value()) return std::nullopt;
  return ways[*fastest];
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
    return PrepareHalfConv(ordinal_, *math_, *matmul_choices_, trial_rules_, description);
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
  const absl::StatusOr<std::optional<FloatWay>> found =
      FastestFloatWay(target, cublas_lt, trial_rules_, problem.ok() ? &*problem : nullptr, parts);
  math_->GiveCudnn(target);
  SLUICE_RETURN_IF_ERROR(found.status());
  if (const std::optional<FloatWay>& way = *found; way.has_value()) {
    if (way->columns.has_value()) return std::make_unique<ColumnsConv>(std::move(parts), *way->columns);
    return std::make_unique<CudnnConv>(std::move(parts), *std::move(problem), *way->cudnn);
  }
  SLUICE_RETURN_IF_ERROR(LoadDirectConv(ordinal_));
  return std::make_unique<DirectConv>(std::move(parts));
}

}  // namespace sluice::gpu::cuda
