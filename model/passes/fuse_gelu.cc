// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

// Exporters write the constants with six or more digits.
constexpr double kTolerance = 1e-5;
// A product that spells GELU has at most this many factors, nested at most this deep.
constexpr size_t kMaxFactors = 6;
constexpr int kMaxDepth = 6;

class GeluMatcher {
 public:
  explicit GeluMatcher(const Graph& graph) : graph_(graph), index_(graph) {}

  struct Match {
    ValueIndex input = kNoValue;
    bool tanh = false;
  };

  /// A product of 1/2, x and 1 + erf(x / sqrt 2) or 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)), in any order.
  std::optional<Match> MatchProduct(const Node& node) const {
    std::vector<ValueIndex> factors;
    double scale = 1;
    if (node.entry->name != "Mul" || !Flatten(node, 0, factors, scale)) return std::nullopt;
    if (factors.size() != 2 || !IsNear(scale, 0.5)) return std::nullopt;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueIndex x = factors[side];
      const std::optional<ValueIndex> curve = Other(factors[1 - side], "Add", 1.0);
      if (!curve.has_value()) continue;
      if (const Node* erf = index_.Producer(*curve, "Erf");
          erf != nullptr && IsScaled(erf->inputs[0], x, std::sqrt(0.5))) {
        return Match{x, false};
      }
      if (const Node* tanh = index_.Producer(*curve, "Tanh"); tanh != nullptr && IsTanhArgument(tanh->inputs[0], x)) {
        return Match{x, true};
      }
    }
    return std::nullopt;
  }

 private:
  static bool IsNear(double a, double b) { return std::fabs(a - b) <= kTolerance * std::fabs(b); }

  /// The operand of a commutative node beside a given constant.
  std::optional<ValueIndex> Other(ValueIndex value, absl::string_view name, double constant) const {
    const Node* node = index_.Producer(value, name);
    if (node == nullptr) return std::nullopt;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const std::optional<double> number = ScalarOf(graph_, node->inputs[side]);
      if (number.has_value() && IsNear(*number, constant)) return node->inputs[1 - side];
    }
    return std::nullopt;
  }

  /// Collects the factors of a tree of products; scalar constants, also as divisors, go into `scale`.
  bool Flatten(const Node& node, int depth, std::vector<ValueIndex>& factors, double& scale) const {
    for (const ValueIndex input : node.inputs) {
      if (const std::optional<double> number = ScalarOf(graph_, input)) {
        scale *= *number;
        continue;
      }
      const Node* inner = depth < kMaxDepth ? index_.Producer(input, "Mul") : nullptr;
      if (inner != nullptr) {
        if (!Flatten(*inner, depth + 1, factors, scale)) return false;
        continue;
      }
      const Node* quotient = depth < kMaxDepth ? index_.Producer(input, "Div") : nullptr;
      const std::optional<double> divisor = quotient == nullptr ? std::nullopt : ScalarOf(graph_, quotient->inputs[1]);
      if (divisor.has_value()) {
        scale /= *divisor;
        factors.push_back(quotient->inputs[0]);
      } else {
        factors.push_back(input);
      }
      if (factors.size() > kMaxFactors) return false;
    }
    return true;
  }

  /// True when `value` is x times `factor`.
  bool IsScaled(ValueIndex value, ValueIndex x, double factor) const {
    if (const std::optional<ValueIndex> other = Other(value, "Mul", factor)) return *other == x;
    const Node* quotient = index_.Producer(value, "Div");
    if (quotient == nullptr || quotient->inputs[0] != x) return false;
    const std::optional<double> divisor = ScalarOf(graph_, quotient->inputs[1]);
    return divisor.has_value() && IsNear(*divisor, 1 / factor);
  }

  bool IsTanhArgument(ValueIndex value, ValueIndex x) const {
    const std::optional<ValueIndex> sum = Other(value, "Mul", std::sqrt(2 / 3.14159265358979323846));
    if (!sum.has_value()) return false;
    const Node* add = index_.Producer(*sum, "Add");
    if (add == nullptr) return false;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const Node* product = index_.Producer(add->inputs[1 - side], "Mul");
      if (add->inputs[side] != x || product == nullptr) continue;
      std::vector<ValueIndex> factors;
      double scale = 1;
      if (!Flatten(*product, 0, factors, scale) || !IsNear(scale, 0.044715)) continue;
      if (factors == std::vector<ValueIndex>{x, x, x}) return true;
      if (factors.size() == 1 && IsCube(factors[0], x)) return true;
    }
    return false;
  }

  bool IsCube(ValueIndex value, ValueIndex x) const {
    const Node* power = index_.Producer(value, "Pow");
    if (power == nullptr || power->inputs[0] != x) return false;
    const std::optional<double> exponent = ScalarOf(graph_, power->inputs[1]);
    return exponent.has_value() && *exponent == 3;
  }

  const Graph& graph_;
  const GraphIndex index_;
};

}  // namespace

void FuseGelu(Graph& graph) {
  const GeluMatcher matcher(graph);
  for (Node& node : graph.nodes) {
    const auto match = matcher.MatchProduct(node);
    if (!match.has_value() || graph.value(node.outputs[0]).dims != graph.value(match->input).dims) continue;
    Node gelu{.name = node.name,
              .entry = FindOperator("Gelu", kMaxOpset),
              .inputs = {match->input},
              .outputs = node.outputs,
              .attributes = {{"approximate", std::string(match->tanh ? "tanh" : "none")}}};
    node = std::move(gelu);
  }
  RemoveDeadCode(graph);
}

}  // namespace sluice::model
