// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Attention (opset 23): softmax(scale * Q K' + mask) V, head by head. One kernel where the device has it, else written
// out, of kernels that every backend has.
#include "gpu/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "base/status_macros.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/features.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/softmax.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

constexpr size_t kMask = 3;

/// What the node asks for, with every number worked out.
struct Problem {
  bool packed = false;  ///< [batch, length, heads * size] instead of [batch, heads, length, size].
  bool merged = false;  ///< Packed, and Q, K and V are thirds of one value.
  int64_t batch = 0, q_heads = 0, kv_heads = 0, q_length = 0, kv_length = 0, size = 0, value_size = 0;
  float scale = 1;
  bool causal = false;
};

absl::Status Disagree(const NodeContext& context) {
  return absl::InvalidArgumentError(absl::StrCat("Q ", ShapeToString(context.dims(0)), ", K ",
                                                 ShapeToString(context.dims(1)), " and V ",
                                                 ShapeToString(context.dims(2)), " do not fit each other"));
}

/// Splits `packed` into `heads` of equal size; -1 when that is not possible.
int64_t HeadSize(int64_t packed, int64_t heads) { return heads > 0 && packed % heads == 0 ? packed / heads : -1; }

absl::StatusOr<Problem> ReadProblem(const NodeContext& context) {
  const Shape &q = context.dims(0), &k = context.dims(1), &v = context.dims(2);
  if (q.size() != k.size() || q.size() != v.size() || (q.size() != 3 && q.size() != 4)) return Disagree(context);
  for (size_t i = 4; i < context.input_count(); ++i) {
    if (context.has_input(i)) return absl::UnimplementedError("past keys and values, or lengths that vary");
  }
  SLUICE_ASSIGN_OR_RETURN(const float softcap, context.Float("softcap", 0));
  if (softcap != 0) return absl::UnimplementedError(absl::StrCat("softcap ", softcap));
  Problem p;
  p.packed = q.size() == 3;
  p.batch = q[0];
  if (p.packed) {
    SLUICE_ASSIGN_OR_RETURN(p.q_heads, context.Int("q_num_heads", 0));
    SLUICE_ASSIGN_OR_RETURN(p.kv_heads, context.Int("kv_num_heads", 0));
    p.q_length = q[1];
    p.kv_length = k[1];
    p.merged = context.has_attribute(kMergedAttribute);
    const int64_t shares = p.merged ? 3 : 1;
    p.size = HeadSize(q[2], shares * p.q_heads);
    p.value_size = HeadSize(v[2], shares * p.kv_heads);
    if (p.size < 0 || p.value_size < 0 || HeadSize(k[2], shares * p.kv_heads) != p.size || v[1] != p.kv_length ||
        (p.merged && p.q_heads != p.kv_heads)) {
      return Disagree(context);
    }
  } else {
    p.q_heads = q[1];
    p.kv_heads = k[1];
    p.q_length = q[2];
    p.kv_length = k[2];
    p.size = q[3];
    p.value_size = v[3];
    if (k[3] != p.size || v[1] != p.kv_heads || v[2] != p.kv_length) return Disagree(context);
  }
  if (k[0] != p.batch || v[0] != p.batch || p.kv_heads < 1 || p.q_heads % p.kv_heads != 0) return Disagree(context);
  SLUICE_ASSIGN_OR_RETURN(p.scale, context.Float("scale", 1.0f / std::sqrt(static_cast<float>(p.size))));
  SLUICE_ASSIGN_OR_RETURN(const int64_t causal, context.Int("is_causal", 0));
  p.causal = causal != 0;
  return p;
}

class Writer {
 public:
  Writer(LowerContext& context, const Problem& problem)
      : context_(context),
        p_(problem),
        type_(context.input(0).type),
        group_(problem.q_heads / problem.kv_heads),
        score_dims_({problem.batch, problem.q_heads, problem.q_length, problem.kv_length}) {}

  absl::Status Write() {
    SLUICE_ASSIGN_OR_RETURN(const ValueIndex q, Heads(0, p_.q_length, p_.q_heads, p_.size));
    SLUICE_ASSIGN_OR_RETURN(const ValueIndex k, Heads(1, p_.kv_length, p_.kv_heads, p_.size));
    SLUICE_ASSIGN_OR_RETURN(const ValueIndex v, Heads(2, p_.kv_length, p_.kv_heads, p_.value_size));
    // Query heads that share keys are one more dimension, over which those are broadcast.
    gpu::MatMulDescription product{.type = type_,
                                   .a = {p_.batch, p_.kv_heads, group_, p_.q_length, p_.size},
                                   .b = {p_.batch, p_.kv_heads, 1, p_.kv_length, p_.size},
                                   .transpose_b = true,
                                   .alpha = p_.scale};
    SLUICE_ASSIGN_OR_RETURN(ValueIndex scores, Multiply(product, q, k, context_.AddTemporary(type_, score_dims_)));
    SLUICE_ASSIGN_OR_RETURN(scores, Masked(scores));
    SLUICE_ASSIGN_OR_RETURN(auto softmax, gpu::PrepareSoftmax(context_.device(), {.type = type_, .dims = score_dims_}));
    const ValueIndex weights = context_.AddTemporary(type_, score_dims_);
    context_.AddLaunch(std::move(softmax), {scores}, {weights});
    product = {.type = type_,
               .a = {p_.batch, p_.kv_heads, group_, p_.q_length, p_.kv_length},
               .b = {p_.batch, p_.kv_heads, 1, p_.kv_length, p_.value_size}};
    const Shape by_heads = {p_.batch, p_.q_heads, p_.q_length, p_.value_size};
    const ValueIndex sums = p_.packed ? context_.AddTemporary(type_, by_heads) : context_.output_index(0);
    SLUICE_RETURN_IF_ERROR(Multiply(product, weights, v, sums).status());
    return p_.packed ? Swap(sums, by_heads, context_.output_index(0)) : absl::OkStatus();
  }

 private:
  /// [b, x, y, z] as [b, y, x, z].
  absl::Status Swap(ValueIndex from, const Shape& dims, ValueIndex to) {
    SLUICE_ASSIGN_OR_RETURN(
        auto kernel,
        gpu::PrepareTranspose(context_.device(), {.type = type_, .input = dims, .permutation = {0, 2, 1, 3}}));
    context_.AddLaunch(std::move(kernel), {from}, {to});
    return absl::OkStatus();
  }

  /// Input `i` as [batch, heads, length, size].
  absl::StatusOr<ValueIndex> Heads(size_t i, int64_t length, int64_t heads, int64_t size) {
    if (!p_.packed) return context_.input_index(i);
    ValueIndex tokens = context_.input_index(i);
    if (p_.merged) {
      SLUICE_ASSIGN_OR_RETURN(tokens, Third(i, {p_.batch, length, heads * size}));
    }
    const ValueIndex turned = context_.AddTemporary(type_, {p_.batch, heads, length, size});
    SLUICE_RETURN_IF_ERROR(Swap(tokens, {p_.batch, length, heads, size}, turned));
    return turned;
  }

  /// A third of the value that is Q, K and V.
  absl::StatusOr<ValueIndex> Third(size_t i, const Shape& dims) {
    const gpu::SliceDescription third{.type = type_,
                                      .input = context_.dims(i),
                                      .starts = {0, 0, static_cast<int64_t>(i) * dims[2]},
                                      .steps = {1, 1, 1},
                                      .output = dims};
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareSlice(context_.device(), third));
    const ValueIndex result = context_.AddTemporary(type_, dims);
    context_.AddLaunch(std::move(kernel), {context_.input_index(i)}, {result});
    return result;
  }

  absl::StatusOr<ValueIndex> Multiply(const gpu::MatMulDescription& product, ValueIndex a, ValueIndex b,
                                      ValueIndex result) {
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareMatMul(context_.device(), product));
    context_.AddLaunch(std::move(kernel), {a, b}, {result});
    return result;
  }

  absl::StatusOr<ValueIndex> Add(ValueIndex scores, ValueIndex other, const Shape& dims) {
    const gpu::BinaryDescription sum{.kind = gpu::BinaryKind::kAdd, .type = type_, .a = score_dims_, .b = dims};
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBinary(context_.device(), sum));
    const ValueIndex result = context_.AddTemporary(type_, score_dims_);
    context_.AddLaunch(std::move(kernel), {scores, other}, {result}, {0});
    return result;
  }

  /// A constant of the scores' type.
  ValueIndex AddNumbers(absl::string_view what, const Shape& dims, const std::vector<float>& numbers) {
    if (type_ == DataType::kFp32) return context_.AddConstant(what, type_, dims, numbers);
    std::vector<uint16_t> bits;
    for (const float number : numbers) {
      bits.push_back(HalfFromFloat(type_, number));
    }
    return context_.AddConstant(what, type_, dims, bits);
  }

  absl::StatusOr<ValueIndex> Masked(ValueIndex scores) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    if (p_.causal) {
      std::vector<float> later(static_cast<size_t>(p_.q_length * p_.kv_length), 0.0f);
      for (int64_t i = 0; i < p_.q_length; ++i) {
        for (int64_t k = i + 1; k < p_.kv_length; ++k) later[static_cast<size_t>(i * p_.kv_length + k)] = kNever;
      }
      SLUICE_ASSIGN_OR_RETURN(
          scores, Add(scores, AddNumbers("causal", {p_.q_length, p_.kv_length}, later), {p_.q_length, p_.kv_length}));
    }
    if (!context_.has_input(kMask)) return scores;
    const Shape mask_dims = context_.dims(kMask);
    const ValueIndex mask = context_.input_index(kMask);
    if (context_.input(kMask).type != DataType::kBool) return Add(scores, mask, mask_dims);
    const gpu::WhereDescription keep{.type = type_, .condition = mask_dims, .x = score_dims_, .y = {}};
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareWhere(context_.device(), keep));
    const ValueIndex never = AddNumbers("never", {}, {kNever});
    const ValueIndex result = context_.AddTemporary(type_, score_dims_);
    context_.AddLaunch(std::move(kernel), {mask, scores, never}, {result});
    return result;
  }

  LowerContext& context_;
  const Problem p_;
  const DataType type_;
  const int64_t group_;
  const Shape score_dims_;
};

/// The problem as one kernel takes it; nothing where it is of another kind.
std::optional<gpu::AttentionDescription> DescribeKernel(const NodeContext& context, const Problem& p) {
  const bool alike = p.packed && p.q_heads == p.kv_heads && p.value_size == p.size;
  if (!alike || std::min({p.batch, p.q_heads, p.q_length, p.kv_length, p.size}) < 1) return std::nullopt;
  const int64_t token = p.q_heads * p.size, row = p.merged ? 3 * token : token;
  gpu::AttentionDescription description{.type = context.input(0).type,
                                        .batch = p.batch,
                                        .heads = p.q_heads,
                                        .queries = p.q_length,
                                        .keys = p.kv_length,
                                        .head_size = p.size,
                                        .scale = p.scale,
                                        .causal = p.causal,
                                        .q_row = row,
                                        .k_row = row,
                                        .v_row = row,
                                        .k_offset = p.merged ? token : 0,
                                        .v_offset = p.merged ? 2 * token : 0};
  if (context.has_input(kMask)) {
    description.mask = context.dims(kMask);
    description.mask_type = context.input(kMask).type;
  }
  return description;
}

/// Lowers to one kernel; false where the device has none for it.
absl::StatusOr<bool> LowerToOne(LowerContext& context, const Problem& problem) {
  const DataType type = context.input(0).type;
  // Where it is not a feature it may be there, but slower. Halves have no other kernel as fast.
  if (type == DataType::kFp32 && !gpu::KernelFeaturesOf(context.device()).attention) return false;
  const std::optional<gpu::AttentionDescription> description = DescribeKernel(context, problem);
  if (!description.has_value()) return false;
  absl::StatusOr<std::unique_ptr<gpu::Kernel>> kernel = gpu::PrepareAttention(context.device(), *description);
  if (absl::IsUnimplemented(kernel.status())) return false;
  SLUICE_RETURN_IF_ERROR(kernel.status());
  std::vector<ValueIndex> inputs = {context.input_index(0), context.input_index(1), context.input_index(2)};
  if (context.has_input(kMask)) inputs.push_back(context.input_index(kMask));
  context.AddLaunch(*std::move(kernel), std::move(inputs), {context.output_index(0)});
  return true;
}

}  // namespace

absl::Status InferAttention(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const Problem p, ReadProblem(context));
  for (size_t i = 0; i < 3; ++i) {
    if (context.input(i).type != DataType::kFp32)
      return absl::UnimplementedError("attention of other types than FLOAT");
  }
  if (context.has_input(kMask)) {
    const DataType type = context.input(kMask).type;
    if (type != DataType::kFp32 && type != DataType::kBool) return absl::UnimplementedError("a mask of that type");
    const Shape scores = {p.batch, p.q_heads, p.q_length, p.kv_length};
    const absl::StatusOr<Shape> both = gpu::BroadcastDims(context.dims(kMask), scores);
    if (!both.ok() || *both != scores) {
      return absl::InvalidArgumentError(absl::StrCat("the mask ", ShapeToString(context.dims(kMask)),
                                                     " does not broadcast to ", ShapeToString(scores)));
    }
  }
  return context.SetOutput(0, DataType::kFp32,
                           p.packed ? Shape{p.batch, p.q_length, p.q_heads * p.value_size}
                                    : Shape{p.batch, p.q_heads, p.q_length, p.value_size});
}

absl::Status LowerAttention(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const Problem problem, ReadProblem(context));
  SLUICE_ASSIGN_OR_RETURN(const bool lowered, LowerToOne(context, problem));
  return lowered ? absl::OkStatus() : Writer(context, problem).Write();
}

}  // namespace sluice::model
