// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_conv_problem.h"

#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/math_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr size_t kMaxWorkspaceBytes = size_t{256} << 20;
constexpr int kMaxRank = 5;

using IntDims = std::array<int, kMaxRank>;

/// cuDNN counts elements in int.
absl::Status ToInts(std::initializer_list<int64_t> leading, const int64_t* spatial, int rank, IntDims& to) {
  int64_t count = 1;
  size_t next = 0;
  const auto add = [&](int64_t dim) {
    to[next++] = static_cast<int>(dim);
    count = count > std::numeric_limits<int>::max() ? count : count * dim;
  };
  for (int64_t dim : leading) add(dim);
  for (int i = 0; i < rank; ++i) add(spatial[i]);
  if (count <= std::numeric_limits<int>::max()) return absl::OkStatus();
  return absl::UnimplementedError("convolution: cuDNN takes tensors of at most 2^31 - 1 elements");
}

cudnnDataType_t LibraryType(DataType type) {
  return type == DataType::kFp16 ? CUDNN_DATA_HALF : type == DataType::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// `dims` are always [N, C, spatial...]; in memory they lie so too, or with C last.
absl::Status SetTensor(cudnnTensorDescriptor_t to, DataType type, int rank, const IntDims& dims) {
  IntDims strides = {};
  int stride = 1;
  const bool channels_last = type != DataType::kFp32;
  if (channels_last) {
    strides[1] = 1;
    stride = dims[1];
  }
  for (int i = rank - 1; i >= 0; --i) {
    if (i == 1 && channels_last) continue;
    strides[i] = stride;
    stride *= dims[i];
  }
  return SLUICE_CUDNN_STATUS(cudnnSetTensorNdDescriptor(to, LibraryType(type), rank, dims.data(), strides.data()));
}

/// FFT and the larger Winograd need much memory and lose more digits than FP32 asked for may lose; the small one does
/// not.
bool Accurate(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD;
}

template <class Owner, class Function>
absl::Status CreateInto(Owner& owner, Function* create) {
  typename Owner::pointer descriptor = nullptr;
  SLUICE_RETURN_IF_ERROR(CudnnStatus(create(&descriptor), "creating a descriptor", __FILE__, __LINE__));
  owner.reset(descriptor);
  return absl::OkStatus();
}

}  // namespace

absl::Status ConvProblem::Create() {
  SLUICE_RETURN_IF_ERROR(CreateInto(input_, cudnnCreateTensorDescriptor));
  SLUICE_RETURN_IF_ERROR(CreateInto(output_, cudnnCreateTensorDescriptor));
  SLUICE_RETURN_IF_ERROR(CreateInto(bias_, cudnnCreateTensorDescriptor));
  SLUICE_RETURN_IF_ERROR(CreateInto(weights_, cudnnCreateFilterDescriptor));
  SLUICE_RETURN_IF_ERROR(CreateInto(convolution_, cudnnCreateConvolutionDescriptor));
  return CreateInto(activation_, cudnnCreateActivationDescriptor);
}

bool ConvProblem::TakesPads(const Spatial& spatial) {
  for (size_t i = 0; i < spatial.input.size(); ++i) {
    const int64_t reach = (spatial.kernel[i] - 1) * spatial.dilations[i] + 1;
    const int64_t pad = spatial.pads_begin[i];
    if (pad != spatial.pads_end[i] || (pad > 0 && pad >= reach)) return false;
  }
  return true;
}

absl::StatusOr<ConvProblem> ConvProblem::Make(const ConvShape& shape, bool padded_beforehand,
                                              const ConvNumbers& numbers) {
  ConvProblem problem;
  problem.numbers_ = numbers;
  problem.relu_ = shape.relu;
  SLUICE_RETURN_IF_ERROR(problem.Create());
  // Two dimensions (one of them a unit, when only one is needed) have more algorithms than three.
  const bool flat = shape.padded[0] == 1 && shape.kernel[0] == 1 && shape.output[0] == 1;
  const int first = flat ? 1 : 0;
  const int spatial_rank = 3 - first;
  const int rank = 2 + spatial_rank;
  IntDims input, output, weights, bias;
  bias.fill(1);
  SLUICE_RETURN_IF_ERROR(ToInts({shape.batch, shape.channels}, (padded_beforehand ? shape.padded : shape.input) + first,
                                spatial_rank, input));
  SLUICE_RETURN_IF_ERROR(ToInts({shape.batch, shape.filters}, shape.output + first, spatial_rank, output));
  SLUICE_RETURN_IF_ERROR(
      ToInts({shape.filters, shape.channels / shape.groups}, shape.kernel + first, spatial_rank, weights));
  bias[1] = static_cast<int>(shape.filters);
  SLUICE_RETURN_IF_ERROR(SetTensor(problem.input_.get(), numbers.type, rank, input));
  SLUICE_RETURN_IF_ERROR(SetTensor(problem.output_.get(), numbers.type, rank, output));
  SLUICE_RETURN_IF_ERROR(SetTensor(problem.bias_.get(), numbers.type, rank, bias));
  const bool half = numbers.type != DataType::kFp32;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(
      cudnnSetFilterNdDescriptor(problem.weights_.get(), LibraryType(numbers.type),
                                 half ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, rank, weights.data())));
  std::array<int, 3> pads = {}, strides = {}, dilations = {};
  for (int i = 0; i < spatial_rank; ++i) {
    pads[i] = padded_beforehand ? 0 : static_cast<int>(shape.pads_begin[first + i]);
    strides[i] = static_cast<int>(shape.strides[first + i]);
    dilations[i] = static_cast<int>(shape.dilations[first + i]);
  }
  const cudnnConvolutionDescriptor_t convolution = problem.convolution_.get();
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(
      cudnnSetConvolutionNdDescriptor(convolution, spatial_rank, pads.data(), strides.data(), dilations.data(),
                                      CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)));
  SLUICE_RETURN_IF_ERROR(
      SLUICE_CUDNN_STATUS(cudnnSetConvolutionGroupCount(convolution, static_cast<int>(shape.groups))));
  SLUICE_RETURN_IF_ERROR(
      SLUICE_CUDNN_STATUS(cudnnSetConvolutionMathType(convolution, half           ? CUDNN_TENSOR_OP_MATH
                                                                   : numbers.tf32 ? CUDNN_DEFAULT_MATH
                                                                                  : CUDNN_FMA_MATH)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDNN_STATUS(cudnnSetActivationDescriptor(
      problem.activation_.get(), shape.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN,
      0.0)));
  return problem;
}

std::string ConvWay::LongName() const {
  return absl::StrCat("cuDNN algorithm ", static_cast<int>(algorithm), fused ? " fused" : "");
}

absl::StatusOr<std::vector<ConvWay>> ConvProblem::Ways(cudnnHandle_t handle, bool plain) const {
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> found;
  int count = 0;
  const cudnnStatus_t answer =
      cudnnGetConvolutionForwardAlgorithm_v7(handle, input_.get(), weights_.get(), convolution_.get(), output_.get(),
                                             CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, found.data());
  if (MeansNotSupported(answer)) {
    count = 0;
  } else {
    SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "cudnnGetConvolutionForwardAlgorithm_v7", __FILE__, __LINE__));
  }
  std::vector<cudnnConvolutionFwdAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const bool fma = found[i].mathType == CUDNN_FMA_MATH || found[i].mathType == CUDNN_DEFAULT_MATH;
    const bool allowed = fma || numbers_.type != DataType::kFp32 || numbers_.tf32;
    if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].determinism != CUDNN_DETERMINISTIC || !allowed) continue;
    if (Accurate(found[i].algo)) algorithms.push_back(found[i].algo);
  }
  algorithms.push_back(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
  algorithms.push_back(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
  std::vector<ConvWay> ways;
  for (const bool fused : {true, false}) {
    if (fused && plain) continue;
    for (const cudnnConvolutionFwdAlgo_t algorithm : algorithms) {
      // Without an activation the fused call has one algorithm only.
      if (fused && !relu_ && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) continue;
      ConvWay way{.algorithm = algorithm, .fused = fused};
      const cudnnStatus_t sized = cudnnGetConvolutionForwardWorkspaceSize(
          handle, input_.get(), weights_.get(), convolution_.get(), output_.get(), algorithm, &way.workspace_bytes);
      if (MeansNotSupported(sized)) continue;
      SLUICE_RETURN_IF_ERROR(CudnnStatus(sized, "cudnnGetConvolutionForwardWorkspaceSize", __FILE__, __LINE__));
      if (way.workspace_bytes <= kMaxWorkspaceBytes) ways.push_back(way);
    }
  }
  return ways;
}

cudnnStatus_t ConvProblem::Convolve(cudnnHandle_t handle, const ConvWay& way, const ConvOperands& operands) const {
  const float one = 1.0f;
  const float residual = operands.residual != nullptr ? 1.0f : 0.0f;
  if (!way.fused) {
    return cudnnConvolutionForward(handle, &one, input_.get(), operands.input, weights_.get(), operands.weights,
                                   convolution_.get(), way.algorithm, operands.workspace, way.workspace_bytes,
                                   &residual, output_.get(), operands.output);
  }
  // A factor of 0 still wants an address to multiply.
  const void* z = operands.residual != nullptr ? operands.residual : operands.output;
  return cudnnConvolutionBiasActivationForward(handle, &one, input_.get(), operands.input, weights_.get(),
                                               operands.weights, convolution_.get(), way.algorithm, operands.workspace,
                                               way.workspace_bytes, &residual, output_.get(), z, bias_.get(),
                                               operands.bias, activation_.get(), output_.get(), operands.output);
}

}  // namespace sluice::gpu::cuda
