// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

/// What is known of a normalisation while its nodes are matched, from the variance on.
struct Norm {
  ValueIndex x = kNoValue;
  ValueIndex mean = kNoValue;
  ValueIndex difference = kNoValue;  ///< x - mean
  int64_t axis = 0;                  ///< The first of those normalised.
  float epsilon = 0;
  ValueIndex scale = kNoValue;  ///< kNoValue: ones. Likewise a bias of zeros.
  ValueIndex bias = kNoValue;
  std::set<int> parts = {};  ///< Positions of the nodes.
};

class LayerNormMatcher {
 public:
  explicit LayerNormMatcher(Graph& graph) : graph_(graph), index_(graph) {}

  /// A whole normalisation that ends with the node at `position`, and whose parts nobody else reads.
  std::optional<Norm> MatchEnd(int position) const {
    const Node& end = graph_.nodes[static_cast<size_t>(position)];
    const ValueIndex result = end.outputs[0];
    std::optional<Norm> norm = MatchShifted(result);
    if (!norm.has_value()) norm = MatchFactored(result);
    if (!norm.has_value()) norm = MatchScaled(result);
    if (!norm.has_value() || graph_.value(result).dims != graph_.value(norm->x).dims) return std::nullopt;
    return IsClosed(*norm, position) ? norm : std::nullopt;
  }

 private:
  using Match = std::optional<Norm>;

  /// `norm` with the node that makes `value` as one more part.
  Match With(Match norm, ValueIndex value) const {
    if (norm.has_value()) norm->parts.insert(index_.producer(value));
    return norm;
  }

  /// Calls match(a, b) with the operands of the `name` that makes `value`, then with b and a, until one matches.
  template <class Body>
  Match EitherWay(ValueIndex value, absl::string_view name, const Body& match) const {
    const Node* node = index_.Producer(value, name);
    if (node == nullptr) return std::nullopt;
    Match norm = match(node->inputs[0], node->inputs[1]);
    if (!norm.has_value()) norm = match(node->inputs[1], node->inputs[0]);
    return With(std::move(norm), value);
  }

  bool IsPower(const Node* node, double exponent) const {
    return node != nullptr && node->entry->name == "Pow" && ScalarOf(graph_, node->inputs[1]) == exponent;
  }

  /// The first of the dimensions that the ReduceMean which makes `value` folds, when those are the last ones and stay.
  std::optional<int64_t> TrailingAxis(ValueIndex value) const {
    if (index_.Producer(value, "ReduceMean") == nullptr) return std::nullopt;
    const NodeContext context(graph_, static_cast<size_t>(index_.producer(value)));
    absl::StatusOr<std::vector<int64_t>> axes = context.Ints("axes");
    if (axes.ok() && axes->empty() && context.has_input(1)) axes = context.ConstantInts(1);
    const absl::StatusOr<int64_t> keep = context.Int("keepdims", 1);
    if (!axes.ok() || axes->empty() || !keep.ok() || *keep == 0) return std::nullopt;
    const auto rank = static_cast<int64_t>(context.dims(0).size());
    for (int64_t& axis : *axes) axis += axis < 0 ? rank : 0;
    std::sort(axes->begin(), axes->end());
    const int64_t first = rank - static_cast<int64_t>(axes->size());
    for (size_t i = 0; i < axes->size(); ++i) {
      if ((*axes)[i] != first + static_cast<int64_t>(i)) return std::nullopt;
    }
    return first;
  }

  /// mean((x - mean(x))^2) + epsilon
  Match MatchVariance(ValueIndex value) const {
    return EitherWay(value, "Add", [&](ValueIndex variance, ValueIndex constant) -> Match {
      const std::optional<double> epsilon = ScalarOf(graph_, constant);
      const std::optional<int64_t> axis = TrailingAxis(variance);
      if (!epsilon.has_value() || !axis.has_value()) return std::nullopt;
      const ValueIndex square = graph_.nodes[static_cast<size_t>(index_.producer(variance))].inputs[0];
      const Node* power = index_.Producer(square, "Pow");
      const Node* product = index_.Producer(square, "Mul");
      if (!IsPower(power, 2) && (product == nullptr || product->inputs[0] != product->inputs[1])) return std::nullopt;
      Norm norm{.axis = *axis, .epsilon = static_cast<float>(*epsilon)};
      norm.difference = (product != nullptr ? product : power)->inputs[0];
      const Node* difference = index_.Producer(norm.difference, "Sub");
      if (difference == nullptr) return std::nullopt;
      norm.x = difference->inputs[0];
      norm.mean = difference->inputs[1];
      if (TrailingAxis(norm.mean) != axis || index_.Producer(norm.mean, "ReduceMean")->inputs[0] != norm.x) {
        return std::nullopt;
      }
      for (const ValueIndex part : {variance, square, norm.difference, norm.mean}) {
        norm.parts.insert(index_.producer(part));
      }
      return norm;
    });
  }

  /// The root of that.
  Match MatchDeviation(ValueIndex value) const {
    const Node* root = index_.Producer(value, "Sqrt");
    if (root == nullptr && IsPower(index_.Producer(value, "Pow"), 0.5)) root = index_.Producer(value, "Pow");
    return root == nullptr ? std::nullopt : With(MatchVariance(root->inputs[0]), value);
  }

  /// 1 / deviation
  Match MatchInverse(ValueIndex value) const {
    if (const Node* reciprocal = index_.Producer(value, "Reciprocal")) {
      return With(MatchDeviation(reciprocal->inputs[0]), value);
    }
    if (const Node* quotient = index_.Producer(value, "Div")) {
      return ScalarOf(graph_, quotient->inputs[0]) == 1 ? With(MatchDeviation(quotient->inputs[1]), value)
                                                        : std::nullopt;
    }
    const Node* power = index_.Producer(value, "Pow");
    return IsPower(power, -0.5) ? With(MatchVariance(power->inputs[0]), value) : std::nullopt;
  }

  /// That, scaled or not.
  Match MatchFactor(ValueIndex value) const {
    Match norm = MatchScale(value, &LayerNormMatcher::MatchInverse);
    return norm.has_value() ? norm : MatchInverse(value);
  }

  /// (x - mean) / deviation, or (x - mean) * factor.
  Match MatchNormal(ValueIndex value) const {
    if (const Node* quotient = index_.Producer(value, "Div")) {
      const Match norm = MatchDeviation(quotient->inputs[1]);
      return norm.has_value() && norm->difference == quotient->inputs[0] ? With(norm, value) : std::nullopt;
    }
    return EitherWay(value, "Mul", [&](ValueIndex difference, ValueIndex factor) -> Match {
      const Match norm = MatchFactor(factor);
      return norm.has_value() && norm->difference == difference ? norm : std::nullopt;
    });
  }

  /// What `inner` matches, times a scale.
  Match MatchScale(ValueIndex value, Match (LayerNormMatcher::*inner)(ValueIndex) const) const {
    return EitherWay(value, "Mul", [&](ValueIndex unscaled, ValueIndex scale) -> Match {
      Match norm = (this->*inner)(unscaled);
      if (!norm.has_value() || norm->scale != kNoValue || !IsParameter(scale, *norm)) return std::nullopt;
      norm->scale = scale;
      return norm;
    });
  }

  /// What is normal, scaled or not.
  Match MatchScaled(ValueIndex value) const {
    Match norm = MatchScale(value, &LayerNormMatcher::MatchNormal);
    return norm.has_value() ? norm : MatchNormal(value);
  }

  /// That plus a bias.
  Match MatchShifted(ValueIndex value) const {
    return EitherWay(value, "Add", [&](ValueIndex scaled, ValueIndex bias) -> Match {
      Match norm = MatchScaled(scaled);
      if (!norm.has_value() || !IsParameter(bias, *norm)) return std::nullopt;
      norm->bias = bias;
      return norm;
    });
  }

  /// x * factor + (bias - mean * factor), or x * factor - mean * factor.
  Match MatchFactored(ValueIndex value) const {
    if (const Node* difference = index_.Producer(value, "Sub")) {
      return With(MatchProducts(difference->inputs[0], difference->inputs[1]), value);
    }
    return EitherWay(value, "Add", [&](ValueIndex product, ValueIndex rest) -> Match {
      const Node* shift = index_.Producer(rest, "Sub");
      if (shift == nullptr) return std::nullopt;
      Match norm = MatchProducts(product, shift->inputs[1]);
      if (!norm.has_value() || !IsParameter(shift->inputs[0], *norm)) return std::nullopt;
      norm->bias = shift->inputs[0];
      return With(std::move(norm), rest);
    });
  }

  /// x * factor and mean * factor
  Match MatchProducts(ValueIndex of_x, ValueIndex of_mean) const {
    return EitherWay(of_x, "Mul", [&](ValueIndex x, ValueIndex factor) -> Match {
      const Match norm = MatchFactor(factor);
      if (!norm.has_value() || norm->x != x) return std::nullopt;
      return EitherWay(of_mean, "Mul", [&](ValueIndex mean, ValueIndex same) -> Match {
        return mean == norm->mean && same == factor ? norm : std::nullopt;
      });
    });
  }

  /// True for what has the shape of the normalised dimensions, a constant perhaps with ones in front.
  bool IsParameter(ValueIndex value, const Norm& norm) const {
    const Shape normalized = NormalizedDims(norm);
    const Shape& dims = *graph_.value(value).dims;
    if (dims.size() < normalized.size()) return false;
    const auto leading = dims.end() - static_cast<std::ptrdiff_t>(normalized.size());
    return std::equal(leading, dims.end(), normalized.begin()) &&
           (leading == dims.begin() || graph_.value(value).is_constant) &&
           std::all_of(dims.begin(), leading, [](int64_t dim) { return dim == 1; });
  }

  Shape NormalizedDims(const Norm& norm) const {
    const Shape& dims = *graph_.value(norm.x).dims;
    return {dims.begin() + static_cast<std::ptrdiff_t>(norm.axis), dims.end()};
  }

  /// True when everything but the end is read by the parts alone.
  bool IsClosed(const Norm& norm, int end) const {
    std::map<ValueIndex, int> reads;
    for (const int part : norm.parts) {
      for (const ValueIndex input : graph_.nodes[static_cast<size_t>(part)].inputs) ++reads[input];
    }
    return std::all_of(norm.parts.begin(), norm.parts.end(), [&](int part) {
      const ValueIndex output = graph_.nodes[static_cast<size_t>(part)].outputs[0];
      return part == end || index_.uses(output) == reads[output];
    });
  }

  Graph& graph_;
  const GraphIndex index_;
};

/// `parameter` with the dimensions `dims`; ones when there is none.
ValueIndex Parameter(Graph& graph, ValueIndex parameter, const Shape& dims, const std::string& name) {
  if (parameter == kNoValue) {
    const std::vector<float> ones(static_cast<size_t>(*gpu::ElementCount(dims)), 1.0f);
    const auto* bytes = reinterpret_cast<const std::byte*>(ones.data());
    return graph.AddConstant(absl::StrCat(name, "/ones"), DataType::kFp32, dims,
                             {bytes, bytes + ones.size() * sizeof(float)});
  }
  const Value& value = graph.value(parameter);
  if (*value.dims == dims) return parameter;
  return graph.AddConstant(value.name, value.type, dims, {value.bytes.begin(), value.bytes.end()});
}

}  // namespace

void FuseLayerNorm(Graph& graph) {
  const LayerNormMatcher matcher(graph);
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {  // Ends come before what is a whole normalisation without them.
    if (merged[i]) continue;
    const std::optional<Norm> norm = matcher.MatchEnd(static_cast<int>(i));
    if (!norm.has_value()) continue;
    const std::string name = graph.nodes[i].name;
    const Shape& x = *graph.value(norm->x).dims;
    const Shape dims(x.begin() + static_cast<std::ptrdiff_t>(norm->axis), x.end());
    Node fused{.name = name,
               .entry = FindOperator("LayerNormalization", kMaxOpset),
               .inputs = {norm->x, Parameter(graph, norm->scale, dims, name)},
               .outputs = graph.nodes[i].outputs,
               .attributes = {{"axis", norm->axis}, {"epsilon", norm->epsilon}}};
    if (norm->bias != kNoValue) fused.inputs.push_back(Parameter(graph, norm->bias, dims, name));
    for (const int part : norm->parts) merged[static_cast<size_t>(part)] = static_cast<size_t>(part) != i;
    graph.nodes[i] = std::move(fused);
  }
  graph.EraseNodes(merged);
}

}  // namespace sluice::model
