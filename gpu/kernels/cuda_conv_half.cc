// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_conv_half.h"

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
#include "base/half.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_status.h"
#include "gpu/kernels/cuda_conv_half_kernels.h"
#include "gpu/kernels/cuda_conv_parts.h"
#include "gpu/kernels/cuda_conv_problem.h"
#include "gpu/kernels/cuda_few_rows.h"
#include "gpu/kernels/cuda_trial.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr size_t kHalfBytes = 2;

struct HalfParts {
  ConvParts common;  ///< Its shape says whether the library applies a Relu, and has the channels that are stored.
  DataType type = DataType::kFp16;
  SumActivation activation;     ///< All of it, for our own kernels.
  bool activate_after = false;  ///< The library's call leaves the activation.
  int64_t output_count = 0;
  bool takes_pads = false;  ///< The libraries do.
  /// The input is FP32 with the channels first.
  bool fp32_input = false;
  /// [filters, kernel, channels] filled up with zeros to `image_depth` numbers a filter; for fp32_input.
  CudaConstant image_weights;
  int64_t image_depth = 0;
};

/// One way of convolving halves. Immutable, so that any number of threads may submit it.
class HalfWay {
 public:
  virtual ~HalfWay() = default;
  virtual std::string name() const = 0;
  /// Tells it from other ways of its convolution, for a tuning. Products are tuned on their own.
  virtual std::string LongName() const { return name(); }
  virtual size_t workspace_bytes() const = 0;
  /// Allocates nothing, and is capturable. False when the library does not take the call after all.
  virtual absl::StatusOr<bool> Submit(const CudnnTarget& target, const ConvOperands& operands) const = 0;
};

class CudnnWay final : public HalfWay {
 public:
  CudnnWay(std::shared_ptr<const ConvProblem> problem, const ConvWay& way) : problem_(std::move(problem)), way_(way) {}
  std::string name() const override { return absl::StrCat("cuDNN algorithm ", static_cast<int>(way_.algorithm)); }
  std::string LongName() const override { return way_.LongName(); }
  size_t workspace_bytes() const override { return way_.workspace_bytes; }
  absl::StatusOr<bool> Submit(const CudnnTarget& target, const ConvOperands& operands) const override {
    const cudnnStatus_t answer = problem_->Convolve(target.handle, way_, operands);
    if (MeansNotSupported(answer)) return false;
    SLUICE_RETURN_IF_ERROR(CudnnStatus(answer, "a convolution", __FILE__, __LINE__));
    return true;
  }

 private:
  const std::shared_ptr<const ConvProblem> problem_;
  const ConvWay way_;
};

/// All places are rows of one product with the weights: as they lie where the kernel is one place, or with all that
/// the kernel covers brought together in the workspace first. Few places of deep layers leave cuDNN's kernels a handful
/// of blocks, while the product's depth can be shared among blocks.
class ProductWay final : public HalfWay {
 public:
  ProductWay(const ConvShape& shape, const MatMulWay& way, size_t columns_bytes)
      : shape_(shape), way_(way), columns_bytes_(AlignWorkspace(columns_bytes)) {}
  std::string name() const override { return absl::StrCat(columns_bytes_ > 0 ? "columns, " : "", way_.name()); }
  std::string LongName() const override { return columns_bytes_ > 0 ? "columns" : "product"; }
  size_t workspace_bytes() const override { return columns_bytes_ + way_.workspace_bytes(); }
  absl::StatusOr<bool> Submit(const CudnnTarget& target, const ConvOperands& operands) const override {
    const void* rows = operands.input;
    auto* const workspace = static_cast<std::byte*>(operands.workspace);
    if (columns_bytes_ > 0) {
      SLUICE_RETURN_IF_ERROR(SubmitUnfoldHalf(target.stream, shape_, operands.input, workspace));
      rows = workspace;
    }
    const DeviceSpan rest =
        way_.workspace_bytes() > 0 ? DeviceSpan{workspace + columns_bytes_, way_.workspace_bytes()} : DeviceSpan{};
    SLUICE_RETURN_IF_ERROR(
        way_.Submit(target.stream, rows, operands.weights, operands.bias, operands.residual, operands.output, rest));
    return true;
  }

 private:
  const ConvShape shape_;
  const MatMulWay way_;
  const size_t columns_bytes_;
};

/// An FP32 image, turned into halves with the channels last in the workspace, then convolved.
class ImageWay final : public HalfWay {
 public:
  ImageWay(DataType type, const ConvShape& shape, std::unique_ptr<HalfWay> way)
      : type_(type),
        shape_(shape),
        way_(std::move(way)),
        image_bytes_(AlignWorkspace(
            static_cast<size_t>(shape.batch * shape.input[1] * shape.input[2] * shape.channels) * kHalfBytes)) {}
  std::string name() const override { return way_->name(); }
  std::string LongName() const override { return way_->LongName(); }
  size_t workspace_bytes() const override { return image_bytes_ + way_->workspace_bytes(); }
  absl::StatusOr<bool> Submit(const CudnnTarget& target, const ConvOperands& operands) const override {
    ConvOperands inner = operands;
    inner.input = operands.workspace;
    inner.workspace = static_cast<std::byte*>(operands.workspace) + image_bytes_;
    SLUICE_RETURN_IF_ERROR(
        SubmitImage(target.stream, type_, shape_, static_cast<const float*>(operands.input), operands.workspace));
    return way_->Submit(target, inner);
  }

 private:
  const DataType type_;
  const ConvShape shape_;
  const std::unique_ptr<HalfWay> way_;
  const size_t image_bytes_;
};

/// An FP32 image whose columns are made straight from it.
class ImageColumnsWay final : public HalfWay {
 public:
  ImageColumnsWay(const HalfParts& parts, const MatMulWay& way, size_t columns_bytes)
      : type_(parts.type),
        shape_(parts.common.shape),
        depth_(parts.image_depth),
        weights_(parts.image_weights.data()),
        way_(way),
        columns_bytes_(AlignWorkspace(columns_bytes)) {}
  std::string name() const override { return absl::StrCat("columns of an image, ", way_.name()); }
  std::string LongName() const override { return "columns of an image"; }
  size_t workspace_bytes() const override { return columns_bytes_ + way_.workspace_bytes(); }
  absl::StatusOr<bool> Submit(const CudnnTarget& target, const ConvOperands& operands) const override {
    auto* const columns = static_cast<std::byte*>(operands.workspace);
    SLUICE_RETURN_IF_ERROR(
        SubmitImageColumns(target.stream, type_, shape_, depth_, static_cast<const float*>(operands.input), columns));
    const DeviceSpan rest =
        way_.workspace_bytes() > 0 ? DeviceSpan{columns + columns_bytes_, way_.workspace_bytes()} : DeviceSpan{};
    SLUICE_RETURN_IF_ERROR(
        way_.Submit(target.stream, columns, weights_, operands.bias, operands.residual, operands.output, rest));
    return true;
  }

 private:
  const DataType type_;
  const ConvShape shape_;
  const int64_t depth_;
  const void* const weights_;  // Lives with the parts, which live as long as this.
  const MatMulWay way_;
  const size_t columns_bytes_;
};

/// The way, then the activation.
absl::StatusOr<bool> SubmitWhole(const CudnnTarget& target, const HalfParts& parts, const HalfWay& way,
                                 const ConvOperands& operands) {
  SLUICE_ASSIGN_OR_RETURN(const bool supported, way.Submit(target, operands));
  if (!supported || !parts.activate_after) return supported;
  SLUICE_RETURN_IF_ERROR(
      SubmitHalfActivation(target.stream, parts.type, parts.activation, parts.output_count, operands.output));
  return true;
}

/// By the libraries. Several launches, so it is captured: a request pays for one.
class LibraryHalfConv final : public CudnnKernel {
 public:
  LibraryHalfConv(HalfParts parts, std::unique_ptr<HalfWay> way)
      : CudnnKernel(absl::StrCat(parts.common.name, " (", way->name(), ")"), way->workspace_bytes()),
        parts_(std::move(parts)),
        way_(std::move(way)) {}

  absl::Status SubmitTo(const CudnnTarget& target, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.common.Bind(*this, args));
    SLUICE_ASSIGN_OR_RETURN(const bool supported, SubmitWhole(target, parts_, *way_, operands));
    return supported ? absl::OkStatus() : absl::InternalError(absl::StrCat(name(), ": no longer supported"));
  }

 private:
  const HalfParts parts_;
  const std::unique_ptr<HalfWay> way_;
};

/// A pointwise convolution of a few places in all, as squeeze-and-excitation has them: a product of few rows.
class FewPlacesConv final : public CudaKernel {
 public:
  FewPlacesConv(HalfParts parts, const FewRowsProduct& product)
      : CudaKernel(absl::StrCat(parts.common.name, " (few rows)"), 0), parts_(std::move(parts)), product_(product) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_ASSIGN_OR_RETURN(const ConvOperands operands, parts_.common.Bind(*this, args));
    return SubmitFewRows(stream, product_, operands.input, operands.weights, operands.bias, operands.residual,
                         operands.output);
  }

 private:
  const HalfParts parts_;
  const FewRowsProduct product_;
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

/// [filters, channels, kernel] of FP32 as halves, in another order: the element at (f, c, k) goes to
/// f * steps[0] + c * steps[1] + k * steps[2] of `count` elements, which are 0 elsewhere.
absl::StatusOr<CudaConstant> PackWeights(int ordinal, const ConvDescription& d, const std::string& layout,
                                         int64_t count, const int64_t (&steps)[3]) {
  const Dims& dims = d.weights.dims;
  const int64_t filters = dims[0], channels = dims[1];
  const int64_t kernel = dims[2] * dims[3];
  const size_t size_bytes = static_cast<size_t>(count) * kHalfBytes;
  return CudaConstant::Make(ordinal, d.packed_weights, d.weights.name,
                            absl::StrCat(layout, " ", std::string(WireName(d.type))), size_bytes,
                            [&](std::span<std::byte> to) {
                              std::memset(to.data(), 0, to.size());
                              auto* bits = reinterpret_cast<uint16_t*>(to.data());
                              const std::byte* from = d.weights.data.data();
                              for (int64_t f = 0; f < filters; ++f) {
                                for (int64_t c = 0; c < channels; ++c) {
                                  for (int64_t k = 0; k < kernel; ++k, from += sizeof(float)) {
                                    float value;
                                    std::memcpy(&value, from, sizeof(value));
                                    bits[f * steps[0] + c * steps[1] + k * steps[2]] = HalfFromFloat(d.type, value);
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
      reinterpret_cast<uint16_t*>(to.data())[i] = HalfFromFloat(d.type, value);
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

/// Rows of `depth` numbers, one for each place of the result, by the weights [filters, depth].
MatMulOperands PlacesProduct(const HalfParts& parts, int64_t depth) {
  const ConvShape& shape = parts.common.shape;
  MatMulOperands product;
  product.type = product.out_type = parts.type;
  product.transpose_b = true;
  product.one_b = true;
  product.c_form = CForm::kRow;
  product.residual = parts.common.residual;
  MatMulShape& to = product.shape;
  to.rows = shape.batch * shape.output[1] * shape.output[2];
  to.depth = depth;
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

// Columns that take more memory have places enough for cuDNN, which convolves images of few channels poorly.
constexpr int64_t kMaxColumnsBytes = int64_t{16} << 20;
constexpr int64_t kMaxImageColumnsBytes = int64_t{128} << 20;

/// The product of all places, unless its columns take more than `most_bytes`.
absl::StatusOr<std::optional<MatMulWay>> ProductOf(MathLibraries& math, MatMulChoices& choices, const HalfParts& parts,
                                                   int64_t depth, int64_t most_bytes, size_t& columns_bytes) {
  const MatMulOperands product = PlacesProduct(parts, depth);
  columns_bytes = static_cast<size_t>(product.shape.rows * depth) * kHalfBytes;
  if (columns_bytes > static_cast<size_t>(most_bytes)) return std::nullopt;
  SLUICE_ASSIGN_OR_RETURN(const cublasLtHandle_t handle, math.CublasLt());
  return choices.Choose(handle, product);
}

/// Numbers of one filter.
int64_t Depth(const ConvShape& shape) { return shape.channels / shape.groups * shape.kernel[1] * shape.kernel[2]; }

/// Ways worth trying; none when neither library takes it.
absl::StatusOr<std::vector<std::unique_ptr<HalfWay>>> Ways(const CudnnTarget& target, MathLibraries& math,
                                                           MatMulChoices& choices, const HalfParts& parts) {
  const ConvShape& shape = parts.common.shape;
  std::vector<std::unique_ptr<HalfWay>> ways;
  size_t columns_bytes = 0;
  const int64_t depth = Depth(shape);  // Where it is used there is one group.
  if (parts.fp32_input) {
    SLUICE_ASSIGN_OR_RETURN(
        const std::optional<MatMulWay> product,
        ProductOf(math, choices, parts, parts.image_depth,
                  parts.takes_pads ? kMaxImageColumnsBytes : std::numeric_limits<int64_t>::max(), columns_bytes));
    if (product.has_value()) ways.push_back(std::make_unique<ImageColumnsWay>(parts, *product, columns_bytes));
  } else if (IsPointwise(shape)) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<MatMulWay> product,
                            ProductOf(math, choices, parts, depth, std::numeric_limits<int64_t>::max(), columns_bytes));
    if (product.has_value()) ways.push_back(std::make_unique<ProductWay>(shape, *product, 0));
  } else if (shape.groups == 1 && shape.channels % kUnfoldChannels == 0) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<MatMulWay> product,
                            ProductOf(math, choices, parts, depth, kMaxColumnsBytes, columns_bytes));
    if (product.has_value()) ways.push_back(std::make_unique<ProductWay>(shape, *product, columns_bytes));
  }
  if (!parts.takes_pads) return ways;
  absl::StatusOr<ConvProblem> problem = ConvProblem::Make(shape, /*padded_beforehand=*/false, {.type = parts.type});
  if (absl::IsUnimplemented(problem.status())) return ways;
  SLUICE_RETURN_IF_ERROR(problem.status());
  const auto shared = std::make_shared<const ConvProblem>(*std::move(problem));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ConvWay> library_ways, shared->Ways(target.handle, /*plain=*/false));
  for (const ConvWay& way : library_ways) {
    if (!way.fused) continue;
    std::unique_ptr<HalfWay> made = std::make_unique<CudnnWay>(shared, way);
    if (parts.fp32_input) made = std::make_unique<ImageWay>(parts.type, shape, std::move(made));
    ways.push_back(std::move(made));
  }
  return ways;
}

/// The fastest way; null when there is none.
absl::StatusOr<std::unique_ptr<HalfWay>> FastestHalfWay(int ordinal, const CudnnTarget& target, MathLibraries& math,
                                                        MatMulChoices& choices, const TrialRules& rules,
                                                        const HalfParts& parts) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<HalfWay>> ways, Ways(target, math, choices, parts));
  if (ways.empty()) return nullptr;
  const ConvParts& common = parts.common;
  TrialProblem problem = {.rules = rules, .name = common.ProblemName(parts.type), .ways = {}};
  if (parts.fp32_input) absl::StrAppend(&problem.name, " of an FP32 image");
  if (parts.activate_after)
    absl::StrAppend(&problem.name, " then activation ", static_cast<int>(parts.activation.kind));
  size_t workspace_bytes = 0;
  for (const std::unique_ptr<HalfWay>& way : ways) {
    problem.ways.push_back(way->LongName());
    workspace_bytes = std::max(workspace_bytes, way->workspace_bytes());
  }
  const size_t in = AlignWorkspace(common.input_bytes), out = AlignWorkspace(common.output_bytes);
  const size_t weights = AlignWorkspace(static_cast<size_t>(common.shape.filters * Depth(common.shape)) * kHalfBytes);
  SLUICE_ASSIGN_OR_RETURN(const int copies, TrialCopies(rules.tuning, ordinal, weights));
  problem.copies = copies;
  const size_t copies_bytes = copies > 1 ? weights * static_cast<size_t>(copies) : 0;
  TrialMemory memory(target.stream);
  SLUICE_RETURN_IF_ERROR(memory.Allocate(in + out + copies_bytes + workspace_bytes));
  ConvOperands operands = {.input = memory.data(),
                           .weights = common.weights.data(),
                           .bias = common.bias.data(),
                           .output = memory.data() + in,
                           .workspace = memory.data() + in + out + copies_bytes};
  if (common.residual) operands.residual = operands.output;
  const auto submit = [&](size_t way, int call) {
    ConvOperands own = operands;
    if (copies > 1) own.weights = memory.data() + in + out + weights * static_cast<size_t>(call % copies);
    return SubmitWhole(target, parts, *ways[way], own);
  };
  SLUICE_ASSIGN_OR_RETURN(const std::optional<size_t> fastest, FastestWay(target.stream, problem, submit));
  return fastest.has_value() ? std::move(ways[*fastest]) : nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PrepareHalfConv(int ordinal, MathLibraries& math, MatMulChoices& choices,
                                                        const TrialRules& rules, const ConvDescription& d) {
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
  parts.fp32_input = d.fp32_input;
  parts.activate_after = d.activation != Activation::kNone && !shape.relu;
  const int64_t places = shape.batch * shape.input[1] * shape.input[2];
  parts.output_count = shape.batch * shape.filters * shape.output[1] * shape.output[2];
  common.input_bytes = static_cast<size_t>(places * shape.channels) * (d.fp32_input ? sizeof(float) : kHalfBytes);
  common.output_bytes = static_cast<size_t>(parts.output_count) * kHalfBytes;
  SLUICE_ASSIGN_OR_RETURN(common.bias, PackBias(ordinal, d, shape.filters));
  const int64_t channels = shape.channels / shape.groups, kernel = shape.kernel[1] * shape.kernel[2];
  if (d.fp32_input && shape.groups != 1) {
    return absl::UnimplementedError("an FP32 image that is convolved in groups");
  }
  if (channels == 1 && shape.filters == shape.channels && shape.groups > 1) {
    SLUICE_ASSIGN_OR_RETURN(common.weights,
                            PackWeights(ordinal, d, "kernel first", kernel * shape.filters, {1, 0, shape.filters}));
    SLUICE_RETURN_IF_ERROR(LoadDepthwise(ordinal, d.type));
    return std::make_unique<OwnHalfConv>(std::move(parts), /*depthwise=*/true);
  }
  SLUICE_ASSIGN_OR_RETURN(common.weights, PackWeights(ordinal, d, "channels last", shape.filters * kernel * channels,
                                                      {kernel * channels, 1, channels}));
  if (d.fp32_input) {
    constexpr int64_t kPiece = 8;  // 16 bytes.
    parts.image_depth = (kernel * channels + kPiece - 1) / kPiece * kPiece;
    SLUICE_ASSIGN_OR_RETURN(parts.image_weights, PackWeights(ordinal, d, "columns", shape.filters * parts.image_depth,
                                                             {parts.image_depth, 1, channels}));
    SLUICE_RETURN_IF_ERROR(LoadImage(ordinal, d.type));
  }
  if (!d.fp32_input && IsPointwise(shape) && parts.output_count > 0) {
    const MatMulOperands product = PlacesProduct(parts, shape.channels);
    if (TakesFewRows(product)) {
      SLUICE_ASSIGN_OR_RETURN(const int multiprocessors, math.MultiprocessorCount());
      SLUICE_RETURN_IF_ERROR(LoadFewRows(ordinal, d.type));
      FewRowsProduct few_rows = MakeFewRows(product, multiprocessors);
      few_rows.activation = parts.activation;
      return std::make_unique<FewPlacesConv>(std::move(parts), few_rows);
    }
  }
  if (parts.activate_after) SLUICE_RETURN_IF_ERROR(LoadHalfActivation(ordinal, d.type));
  parts.takes_pads = ConvProblem::TakesPads(geometry.spatial);
  if (parts.takes_pads || d.fp32_input) {
    SLUICE_RETURN_IF_ERROR(LoadUnfoldHalf(ordinal));
    SLUICE_ASSIGN_OR_RETURN(const CudnnTarget target, math.TakeCudnn());
    absl::StatusOr<std::unique_ptr<HalfWay>> way = FastestHalfWay(ordinal, target, math, choices, rules, parts);
    math.GiveCudnn(target);
    SLUICE_RETURN_IF_ERROR(way.status());
    if (*way != nullptr) return std::make_unique<LibraryHalfConv>(std::move(parts), *std::move(way));
  }
  if (d.fp32_input) return absl::UnimplementedError(absl::StrCat(common.name, ": no library convolves it"));
  SLUICE_RETURN_IF_ERROR(LoadDirectHalf(ordinal, d.type));
  return std::make_unique<OwnHalfConv>(std::move(parts), /*depthwise=*/false);
}

}  // namespace sluice::gpu::cuda
