// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN (cuda_conv_problem.h), with our own kernel for what it does not do.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_libraries.h"
#include "gpu/cuda/math_status.h"
#include "gpu/kernels/cuda_constant.h"
#include "gpu/kernels/cuda_conv_kernels.h"
#include "gpu/kernels/cuda_conv_problem.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t AlignUp(size_t size_bytes) { return (size_bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t FloatBytes(int64_t leading, const int64_t (&dims)[3]) {
  return static_cast<size_t>(leading * dims[0] * dims[1] * dims[2]) * sizeof(float);
}

/// What every convolution has, whoever computes it.
struct ConvParts {
  std::string name;
  ConvShape shape;
  bool residual = false;
  bool pad = false;  ///< The input is padded into the workspace first.
  size_t input_bytes = 0, padded_bytes = 0, output_bytes = 0;
  CudaConstant weights, bias;
};

/// The spans in order: input, [residual], output. Checked.
absl::StatusOr<ConvOperands> Bind(const Kernel& kernel, const ConvParts& parts, const KernelArgs& args) {
  const size_t expected = parts.residual ? 3 : 2;
  if (args.spans.size() != expected) {
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " takes ", expected, " spans and got ", args.spans.size()));
  }
  for (size_t i = 0; i < expected; ++i) {
    const size_t needed = i == 0 ? parts.input_bytes : parts.output_bytes;
    if (args.spans[i].size_bytes >= needed) continue;
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), ": span ", i, " needs ", needed,
                                            " bytes and has ", args.spans[i].size_bytes));
  }
  return ConvOperands{.input = reinterpret_cast<const float*>(args.spans[0].data),
                      .weights = parts.weights.floats(),
                      .bias = parts.bias.floats(),
                      .residual = parts.residual ? reinterpret_cast<const float*>(args.spans[1].data) : nullptr,
                      .output = reinterpret_cast<float*>(args.spans[expected - 1].data)};
}

/// Workspace: the padded input, if any, then the library's.
class CudnnConv final : public CudnnKernel {
 public:
  CudnnConv(ConvParts parts, ConvProblem problem, const ConvWay& way)
      : CudnnKernel(absl::StrCat(parts.name, " (cuDNN algorithm ", static_cast<int>(way.algorithm),
                                 way.fused ? ", fused)" : ")"),
                    AlignUp(parts.padded_bytes) + way.workspace_bytes),
        parts_(std::move(parts)),
        problem_(std::move(problem)),
        way_(way) {}

  absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(ConvOperands operands, Bind(*this, parts_, args));
    operands.workspace = args.workspace.data == nullptr ? nullptr : args.workspace.data + AlignUp(parts_.padded_bytes);
    if (parts_.pad) {
      auto* padded = reinterpret_cast<float*>(args.workspace.data);
      SLUICE_RETURN_IF_ERROR(SubmitPad(target.stream, parts_.shape, operands.input, padded));
      operands.input = padded;
    }
    if (!way_.fused && operands.residual != nullptr && operands.residual != operands.output) {
      SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaMemcpyAsync(operands.output, operands.residual, parts_.output_bytes,
                                                                cudaMemcpyDeviceToDevice, target.stream)));
    }
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(problem_.Convolve(target.handle, way_, operands)));
    if (way_.fused || (operands.bias == nullptr && !parts_.shape.relu)) return absl::OkStatus();
    return SubmitAddBias(target.stream, parts_.shape, operands.bias, operands.output);
  }

 private:
  const ConvParts parts_;
  const ConvProblem problem_;
  const ConvWay way_;
};

class DirectConv final : public CudaKernel {
 public:
  explicit DirectConv(ConvParts parts)
      : CudaKernel(absl::StrCat(parts.name, " (direct)"), 0), parts_(std::move(parts)) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, Bind(*this, parts_, args));
    return SubmitDirectConv(stream, parts_.shape, operands.input, operands.weights, operands.bias, operands.residual,
                            operands.output);
  }

 private:
  const ConvParts parts_;
};

/// Device memory for a trial, allocated and freed in the order of its stream: neither waits for other work.
class TrialMemory {
 public:
  explicit TrialMemory(cudaStream_t stream) : stream_(stream) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory() {
    if (data_ != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaFreeAsync(data_, stream_)));
  }
  absl::Status Allocate(size_t size_bytes) {
    return SLUICE_CUDA_STATUS(cudaMallocAsync(&data_, std::max<size_t>(size_bytes, 1), stream_));
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const cudaStream_t stream_;
  void* data_ = nullptr;
};

/// Times what a caller enqueues. In a graph, since enqueuing a convolution takes the host longer than the device takes
/// to run it.
class TrialTimer {
 public:
  explicit TrialTimer(cudaStream_t stream) : stream_(stream) {}
  TrialTimer(const TrialTimer&) = delete;
  TrialTimer& operator=(const TrialTimer&) = delete;
  ~TrialTimer() {
    for (cudaEvent_t event : {start_, end_}) {
      if (event != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaEventDestroy(event)));
    }
  }
  absl::Status Make() {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventCreate(&start_)));
    return SLUICE_CUDA_STATUS(cudaEventCreate(&end_));
  }

  absl::StatusOr<float> Milliseconds(absl::FunctionRef<absl::Status()> enqueue) {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed)));
    const absl::Status enqueued = enqueue();
    cudaGraph_t captured = nullptr;
    absl::Status status = SLUICE_CUDA_STATUS(cudaStreamEndCapture(stream_, &captured));
    SLUICE_RETURN_IF_ERROR(enqueued);
    SLUICE_RETURN_IF_ERROR(status);
    cudaGraphExec_t graph = nullptr;
    status = SLUICE_CUDA_STATUS(cudaGraphInstantiate(&graph, captured, 0));
    status.Update(SLUICE_CUDA_STATUS(cudaGraphDestroy(captured)));
    SLUICE_RETURN_IF_ERROR(status);
    const absl::StatusOr<float> milliseconds = Time(graph);
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphExecDestroy(graph)));
    return milliseconds;
  }

 private:
  absl::StatusOr<float> Time(cudaGraphExec_t graph) {
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphLaunch(graph, stream_)));  // Pays for what is made once.
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(start_, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphLaunch(graph, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(end_, stream_)));
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream_)));
    float milliseconds = 0;
    SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventElapsedTime(&milliseconds, start_, end_)));
    return milliseconds;
  }

  const cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// What one way takes, in milliseconds; none when cuDNN does not take the call. The first convolution loads its code,
/// so that no capture does.
absl::StatusOr<std::optional<float>> TryWay(const CudnnTarget& target, const ConvProblem& problem,
                                            const ConvParts& parts, const ConvWay& way, TrialTimer& timer) {
  constexpr int kTimed = 4;
  const size_t input_bytes = AlignUp(parts.pad ? parts.padded_bytes : parts.input_bytes);
  TrialMemory memory(target.stream);
  SLUICE_RETURN_IF_ERROR(memory.Allocate(input_bytes + AlignUp(parts.output_bytes) + way.workspace_bytes));
  ConvOperands operands{.input = reinterpret_cast<const float*>(memory.data()),
                        .weights = parts.weights.floats(),
                        .bias = parts.bias.floats(),
                        .output = reinterpret_cast<float*>(memory.data() + input_bytes),
                        .workspace = memory.data() + input_bytes + AlignUp(parts.output_bytes)};
  if (parts.residual) operands.residual = operands.output;
  const cudnnStatus_t answer = problem.Convolve(target.handle, way, operands);
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(target.stream)));
  if (MeansNotSupported(answer)) return std::nullopt;
  SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "a trial convolution", __FILE__, __LINE__));
  SLUICE_ASSIGN_OR_RETURN(const float milliseconds, timer.Milliseconds([&] {
    absl::Status status;
    for (int i = 0; i < kTimed && status.ok(); ++i) {
      status = SLUICE_CUDNN_STATUS(problem.Convolve(target.handle, way, operands));
      if (!status.ok() || way.fused || (operands.bias == nullptr && !parts.shape.relu)) continue;
      status = SubmitAddBias(target.stream, parts.shape, operands.bias, operands.output);
    }
    return status;
  }));
  return milliseconds / kTimed;
}

/// The fastest way, by convolving whatever lies in memory: which calls cuDNN takes is known only to itself, and its own
/// ranking is poor for small batches in fp32 (a kernel of 107 us in a ResNet-50 of two rows). None when there is no
/// way.
absl::StatusOr<std::optional<ConvWay>> TryWays(const CudnnTarget& target, const ConvProblem& problem,
                                               const ConvParts& parts, bool plain) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ConvWay> ways, problem.Ways(target.handle, plain));
  TrialTimer timer(target.stream);
  SLUICE_RETURN_IF_ERROR(timer.Make());
  std::optional<ConvWay> best;
  float least = 0;
  for (const ConvWay& way : ways) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<float> milliseconds, TryWay(target, problem, parts, way, timer));
    if (!milliseconds.has_value() || (best.has_value() && *milliseconds >= least)) continue;
    best = way;
    least = *milliseconds;
  }
  return best;
}

/// True when cuDNN can be given the pads: the same on both sides, and no window wholly inside them.
bool PadsFit(const Spatial& spatial) {
  for (size_t i = 0; i < spatial.input.size(); ++i) {
    const int64_t reach = (spatial.kernel[i] - 1) * spatial.dilations[i] + 1;
    const int64_t pad = spatial.pads_begin[i];
    if (pad != spatial.pads_end[i] || (pad > 0 && pad >= reach)) return false;
  }
  return true;
}

absl::StatusOr<ConvParts> MakeParts(int ordinal, const ConvDescription& d, const ConvGeometry& geometry) {
  ConvParts parts;
  parts.name = absl::StrCat("conv ", DimsToString(d.input), " by ", DimsToString(d.weights.dims));
  parts.shape = MakeConvShape(geometry, d.activation == Activation::kRelu);
  const ConvShape& shape = parts.shape;
  parts.residual = d.residual;
  parts.pad = !PadsFit(geometry.spatial);
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
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  SLUICE_ASSIGN_OR_RETURN(ConvParts parts, MakeParts(ordinal_, description, geometry));
  absl::StatusOr<ConvProblem> problem = ConvProblem::Make(parts.shape, parts.pad);
  if (!problem.ok() && !absl::IsUnimplemented(problem.status())) return problem.status();
  if (problem.ok()) {
    SLUICE_RETURN_IF_ERROR(LoadAddBias(ordinal_));
    const bool plain = !parts.bias && !parts.residual && !parts.shape.relu;
    SLUICE_ASSIGN_OR_RETURN(const CudnnTarget target, math_->TakeCudnn());
    const absl::StatusOr<std::optional<ConvWay>> way = TryWays(target, *problem, parts, plain);
    math_->GiveCudnn(target);
    SLUICE_RETURN_IF_ERROR(way.status());
    if (way->has_value()) {
      SLUICE_RETURN_IF_ERROR(LoadPad(ordinal_));
      return std::make_unique<CudnnConv>(std::move(parts), *std::move(problem), **way);
    }
  }
  SLUICE_RETURN_IF_ERROR(LoadDirectConv(ordinal_));
  return std::make_unique<DirectConv>(std::move(parts));
}

}  // namespace sluice::gpu::cuda
