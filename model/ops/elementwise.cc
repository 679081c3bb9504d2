// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/elementwise.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/tensor.h"
#include "model/onnx_tensor.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/elementwise_chain.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

using gpu::BinaryKind;
using gpu::UnaryKind;

struct UnaryName {
  absl::string_view name;
  UnaryKind kind;
};
constexpr UnaryName kUnaryNames[] = {
    {"Abs", UnaryKind::kAbs},
    {"Ceil", UnaryKind::kCeil},
    {"Cos", UnaryKind::kCos},
    {"Erf", UnaryKind::kErf},
    {"Exp", UnaryKind::kExp},
    {"Floor", UnaryKind::kFloor},
    {"Gelu", UnaryKind::kGelu},
    {"HardSigmoid", UnaryKind::kHardSigmoid},
    {"HardSwish", UnaryKind::kHardSwish},
    {"LeakyRelu", UnaryKind::kLeakyRelu},
    {"Log", UnaryKind::kLog},
    {"Neg", UnaryKind::kNeg},
    {"Not", UnaryKind::kNot},
    {"Reciprocal", UnaryKind::kReciprocal},
    {"Relu", UnaryKind::kRelu},
    {"Sigmoid", UnaryKind::kSigmoid},
    {"Sign", UnaryKind::kSign},
    {"Sin", UnaryKind::kSin},
    {"Sqrt", UnaryKind::kSqrt},
    {"Tanh", UnaryKind::kTanh},
};

struct BinaryName {
  absl::string_view name;
  BinaryKind kind;
};
constexpr BinaryName kBinaryNames[] = {
    {"Add", BinaryKind::kAdd},         {"And", BinaryKind::kAnd},
    {"Div", BinaryKind::kDiv},         {"Equal", BinaryKind::kEqual},
    {"Greater", BinaryKind::kGreater}, {"GreaterOrEqual", BinaryKind::kGreaterOrEqual},
    {"Less", BinaryKind::kLess},       {"LessOrEqual", BinaryKind::kLessOrEqual},
    {"Max", BinaryKind::kMax},         {"Min", BinaryKind::kMin},
    {"Mod", BinaryKind::kMod},         {"Mul", BinaryKind::kMul},
    {"Or", BinaryKind::kOr},           {"Pow", BinaryKind::kPow},
    {"Sub", BinaryKind::kSub},         {"Sum", BinaryKind::kAdd},
    {"Xor", BinaryKind::kXor},
};

template <class Table>
auto FindKind(const Table& table, absl::string_view name) -> std::optional<decltype(table[0].kind)> {
  for (const auto& row : table) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

absl::Status RequireSameTypes(const InferContext& context) {
  for (size_t i = 1; i < context.input_count(); ++i) {
    if (context.input(i).type != context.input(0).type) {
      return absl::UnimplementedError(
          absl::StrCat("inputs of types ", WireName(context.input(0).type), " and ", WireName(context.input(i).type)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> BroadcastInputs(const InferContext& context) {
  Shape dims = context.dims(0);
  for (size_t i = 1; i < context.input_count(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(dims, gpu::BroadcastDims(dims, context.dims(i)));
  }
  return dims;
}

absl::StatusOr<gpu::UnaryDescription> DescribeUnary(const NodeContext& context) {
  const absl::string_view name = context.node().entry->name;
  gpu::UnaryDescription description{.type = context.input(0).type, .dims = context.dims(0)};
  if (name == "Clip") {
    SLUICE_ASSIGN_OR_RETURN(const auto bounds, ClipBounds(context));
    description.kind = UnaryKind::kClip;
    description.low = bounds.first;
    description.high = bounds.second;
    return description;
  }
  const auto kind = FindKind(kUnaryNames, name);
  if (!kind.has_value()) return absl::InternalError("not a unary operator");
  description.kind = *kind;
  if (name == "LeakyRelu") {
    SLUICE_ASSIGN_OR_RETURN(description.alpha, context.Float("alpha", 0.01f));
  } else if (name == "HardSigmoid") {
    SLUICE_ASSIGN_OR_RETURN(description.alpha, context.Float("alpha", 0.2f));
    SLUICE_ASSIGN_OR_RETURN(description.beta, context.Float("beta", 0.5f));
  } else if (name == "Gelu") {
    SLUICE_ASSIGN_OR_RETURN(const absl::string_view approximate, context.String("approximate", "none"));
    if (approximate == "tanh") description.kind = UnaryKind::kGeluTanh;
  }
  return description;
}

absl::Status AddBinary(LowerContext& context, BinaryKind kind, gpu::Activation activation) {
  gpu::BinaryDescription description{.kind = kind,
                                     .type = context.input(0).type,
                                     .a = StoredOperand(context, 0),
                                     .b = StoredOperand(context, 1),
                                     .activation = activation};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBinary(context.device(), description));
  std::vector<size_t> in_place;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const bool same = context.dims(side) == context.output_dims(0) && context.output(0).type == description.type;
    if (same) in_place.push_back(side);
  }
  context.AddLaunch(std::move(kernel), {context.input_index(0), context.input_index(1)}, {context.output_index(0)},
                    std::move(in_place));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::pair<double, double>> ClipBounds(const NodeContext& context) {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  if (context.opset() < 11) {
    if (context.has_attribute("min")) {
      SLUICE_ASSIGN_OR_RETURN(low, context.Float("min", 0));
    }
    if (context.has_attribute("max")) {
      SLUICE_ASSIGN_OR_RETURN(high, context.Float("max", 0));
    }
  } else {
    if (context.has_input(1)) {
      SLUICE_ASSIGN_OR_RETURN(low, context.ConstantNumber(1));
    }
    if (context.has_input(2)) {
      SLUICE_ASSIGN_OR_RETURN(high, context.ConstantNumber(2));
    }
  }
  return std::pair(low, high);
}

absl::StatusOr<gpu::Activation> FusedActivation(const NodeContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view activation, context.String(kActivationAttribute, ""));
  if (activation.empty()) return gpu::Activation::kNone;
  if (activation == "Relu") return gpu::Activation::kRelu;
  if (activation == "Clip") return gpu::Activation::kClip;
  if (activation == "Swish") return gpu::Activation::kSwish;
  if (activation == "Gelu") return gpu::Activation::kGelu;
  return absl::InternalError(absl::StrCat("unknown fused activation ", activation));
}

absl::StatusOr<DataType> CastTarget(const NodeContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t number, context.Int("to", 0));
  return ElementTypeFromOnnx(number, 0, "to");
}

Shape StoredOperand(const NodeContext& context, size_t i) {
  if (!context.output(0).channels_last) return context.dims(i);
  Shape dims = context.dims(i);
  const size_t rank = context.output_dims(0).size();
  dims.insert(dims.begin(), rank - dims.size(), 1);
  std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return dims;
}

std::vector<gpu::ElementwiseStep> ElementwiseStepsOf(const NodeContext& context) {
  const absl::string_view name = context.node().entry->name;
  if (IsUnaryOperator(name)) {
    const auto d = DescribeUnary(context);
    if (!d.ok()) return {};
    const bool clip = d->kind == UnaryKind::kClip;
    return {{.kind = d->kind,
             .alpha = clip ? static_cast<float>(d->low) : d->alpha,
             .beta = clip ? static_cast<float>(d->high) : d->beta}};
  }
  const auto kind = FindKind(kBinaryNames, name);
  if (!kind.has_value() || context.input_count() != 2) return {};
  if (*kind == BinaryKind::kMod) {
    const auto fmod = context.Int("fmod", 0);
    if (!fmod.ok() || *fmod == 0) return {};
  }
  const auto activation = FusedActivation(context);
  if (!activation.ok() || (*activation != gpu::Activation::kNone && *activation != gpu::Activation::kRelu)) return {};
  std::vector<gpu::ElementwiseStep> steps = {{.kind = *kind, .a = 0, .b = 1}};
  if (*activation == gpu::Activation::kRelu) steps.push_back({.kind = UnaryKind::kRelu, .a = 2});
  return steps;
}

bool IsUnaryOperator(absl::string_view name) { return FindKind(kUnaryNames, name).has_value() || name == "Clip"; }

absl::Status InferUnary(InferContext& context) { return context.SetOutput(0, context.input(0).type, context.dims(0)); }

absl::Status LowerUnary(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const gpu::UnaryDescription description, DescribeUnary(context));
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareUnary(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)}, {0});
  return absl::OkStatus();
}

absl::Status InferClip(InferContext& context) {
  SLUICE_RETURN_IF_ERROR(ClipBounds(context).status());
  return context.SetOutput(0, context.input(0).type, context.dims(0));
}

absl::Status InferBinary(InferContext& context) {
  SLUICE_RETURN_IF_ERROR(RequireSameTypes(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, BroadcastInputs(context));
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status InferComparison(InferContext& context) {
  SLUICE_RETURN_IF_ERROR(RequireSameTypes(context));
  SLUICE_ASSIGN_OR_RETURN(Shape dims, BroadcastInputs(context));
  return context.SetOutput(0, DataType::kBool, std::move(dims));
}

absl::Status LowerBinary(LowerContext& context) {
  const auto kind = FindKind(kBinaryNames, context.node().entry->name);
  if (!kind.has_value()) return absl::InternalError("not a binary operator");
  SLUICE_ASSIGN_OR_RETURN(const gpu::Activation activation, FusedActivation(context));
  return AddBinary(context, *kind, activation);
}

absl::Status LowerMod(LowerContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t fmod, context.Int("fmod", 0));
  const DataType type = context.input(0).type;
  const bool floating = type == DataType::kFp32 || type == DataType::kFp64;
  // The kernel takes the divisor's sign for integers and the dividend's for floating types, as ONNX's two modes do.
  if (floating != (fmod != 0)) {
    return absl::UnimplementedError(absl::StrCat("fmod = ", fmod, " with elements of type ", WireName(type)));
  }
  return AddBinary(context, BinaryKind::kMod, gpu::Activation::kNone);
}

absl::Status InferIsNan(InferContext& context) { return context.SetOutput(0, DataType::kBool, context.dims(0)); }

absl::Status LowerIsNan(LowerContext& context) {
  // Only a NaN differs from itself.
  const Shape dims = context.dims(0);
  const gpu::BinaryDescription equal{.kind = BinaryKind::kEqual, .type = context.input(0).type, .a = dims, .b = dims};
  SLUICE_ASSIGN_OR_RETURN(auto compare, gpu::PrepareBinary(context.device(), equal));
  const gpu::UnaryDescription invert{.kind = UnaryKind::kNot, .type = DataType::kBool, .dims = dims};
  SLUICE_ASSIGN_OR_RETURN(auto turn, gpu::PrepareUnary(context.device(), invert));
  const ValueIndex same = context.AddTemporary(DataType::kBool, dims);
  context.AddLaunch(std::move(compare), {context.input_index(0), context.input_index(0)}, {same});
  context.AddLaunch(std::move(turn), {same}, {context.output_index(0)}, {0});
  return absl::OkStatus();
}

absl::Status InferVariadic(InferContext& context) { return InferBinary(context); }

absl::Status LowerVariadic(LowerContext& context) {
  if (context.input_count() == 1) {
    context.AddView();
    return absl::OkStatus();
  }
  const auto kind = FindKind(kBinaryNames, context.node().entry->name);
  if (!kind.has_value()) return absl::InternalError("not a variadic operator");
  const DataType type = context.input(0).type;
  ValueIndex accumulated = context.input_index(0);
  Shape dims = context.dims(0);
  const size_t last = context.input_count() - 1;
  // Indices and shapes are copied first: adding a temporary moves the graph's values.
  for (size_t i = 1; i <= last; ++i) {
    const gpu::BinaryDescription description{.kind = *kind, .type = type, .a = dims, .b = context.dims(i)};
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareBinary(context.device(), description));
    SLUICE_ASSIGN_OR_RETURN(dims, gpu::BroadcastDims(description.a, description.b));
    const ValueIndex result = i == last ? context.output_index(0) : context.AddTemporary(type, dims);
    context.AddLaunch(std::move(kernel), {accumulated, context.input_index(i)}, {result});
    accumulated = result;
  }
  return absl::OkStatus();
}

absl::Status InferCast(InferContext& context) {
  SLUICE_ASSIGN_OR_RETURN(const DataType type, CastTarget(context));
  return context.SetOutput(0, type, context.dims(0));
}

absl::Status LowerCast(LowerContext& context) {
  const gpu::CastDescription description{
      .from = context.input(0).type, .to = context.output(0).type, .dims = context.dims(0)};
  if (description.from == description.to) {
    context.AddView();
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareCast(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0)}, {context.output_index(0)});
  return absl::OkStatus();
}

absl::Status InferWhere(InferContext& context) {
  if (context.input(0).type != DataType::kBool) return absl::InvalidArgumentError("the condition is not BOOL");
  if (context.input(1).type != context.input(2).type) return absl::InvalidArgumentError("branches of two types");
  SLUICE_ASSIGN_OR_RETURN(Shape dims, BroadcastInputs(context));
  return context.SetOutput(0, context.input(1).type, std::move(dims));
}

absl::Status LowerWhere(LowerContext& context) {
  const gpu::WhereDescription description{
      .type = context.input(1).type, .condition = context.dims(0), .x = context.dims(1), .y = context.dims(2)};
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareWhere(context.device(), description));
  context.AddLaunch(std::move(kernel), {context.input_index(0), context.input_index(1), context.input_index(2)},
                    {context.output_index(0)});
  return absl::OkStatus();
}

}  // namespace sluice::model
