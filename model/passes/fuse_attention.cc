// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Exporters spell attention in many ways that differ in how Q, K and V are moved about and in where the scale stands.
// So only the arithmetic is matched node by node; movements are followed as strides (strided_view.h), back to a tensor
// in which tokens lie one behind the other.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/kernels/tensor.h"
#include "model/ops/activation.h"
#include "model/ops/context.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/graph_index.h"
#include "model/passes/passes.h"
#include "model/passes/strided_view.h"

namespace sluice::model {
namespace {

constexpr size_t kMask = 3;         // Input of Attention.
constexpr size_t kMaxSteps = 16;    // Movements and scales before an operand; no exporter writes half as many.
constexpr size_t kProductBias = 2;  // Of MatMul, as FuseBias leaves it.

/// [batch, heads, length, size] of an operand.
struct HeadDims {
  int64_t batch, heads, length, size;
  int64_t token() const { return heads * size; }
};

/// A tensor that an operand is a part of: token t of batch element b is at offset + (b * length + t) * row, or with
/// batch and length the other way round.
struct Source {
  ValueIndex base = kNoValue;
  int64_t offset = 0;
  int64_t row = 0;
  bool swapped = false;
  double scale = 1;  ///< What the operand was multiplied with on the way.
};

/// One attention found.
struct Match {
  HeadDims q, k;
  std::array<Source, 3> sources;  ///< Of Q, K and V.
  ValueIndex mask = kNoValue;
  double scale = 1;
  std::vector<Attribute> attributes;  ///< Of an Attention node that is there already.
  std::string name;
  // What takes its place: the result as [batch, length, heads * size], swapped and reshaped as said, as `output`.
  size_t last = 0;  ///< Position of the node that makes `output` now.
  ValueIndex output = kNoValue;
  bool swapped = false;
};

class Matcher {
 public:
  explicit Matcher(Graph& graph) : graph_(graph), index_(graph) {}

  /// The attention whose last arithmetic is node `i`, if it is one.
  std::optional<Match> At(size_t i) {
    const Node& node = graph_.nodes[i];
    Match match;
    match.name = node.name;
    if (node.entry->name == "MatMul") {
      if (!WrittenOut(node, match)) return std::nullopt;
    } else if (node.entry->name != "Attention" || !ByHeads(i, match)) {
      return std::nullopt;
    }
    if (!std::isfinite(static_cast<float>(match.scale)) || !FindOutput(node.outputs[0], match)) return std::nullopt;
    return match;
  }

 private:
  const Shape& dims(ValueIndex value) const { return *graph_.value(value).dims; }

  bool IsFloat(ValueIndex value) const { return graph_.value(value).type == DataType::kFp32; }

  /// softmax(...) V, spelt with MatMul, Softmax and what may stand around them.
  bool WrittenOut(const Node& product, Match& match) {
    if (product.inputs.size() != 2 || product.FindAttribute(kActivationAttribute) != nullptr) return false;
    const ValueIndex weights = product.inputs[0];
    const Node* softmax = index_.uses(weights) == 1 ? UnguardedSoftmax(weights) : nullptr;
    if (softmax == nullptr || dims(weights).size() != 4 || !IsFloat(weights)) return false;
    ValueIndex q = kNoValue, k = kNoValue;
    if (!MaskedScores(softmax->inputs[0], match, q, k)) return false;
    return Operands(q, k, /*k_turned=*/true, product.inputs[1], match) && MaskFits(match);
  }

  /// The Softmax over keys behind a value; torch puts zeros where it gives NaN.
  const Node* UnguardedSoftmax(ValueIndex weights) {
    if (const Node* guard = index_.Producer(weights, "Where")) {
      const ValueIndex kept = guard->inputs[2];
      const Node* is_nan = index_.Producer(guard->inputs[0], "IsNaN");
      if (is_nan == nullptr || is_nan->inputs[0] != kept || index_.uses(guard->inputs[0]) != 1 ||
          ScalarOf(graph_, guard->inputs[1]) != 0.0 || index_.uses(kept) != 2 || dims(kept) != dims(weights)) {
        return nullptr;
      }
      weights = kept;
    }
    if (index_.Producer(weights, "Softmax") == nullptr) return nullptr;
    const NodeContext softmax(graph_, static_cast<size_t>(index_.producer(weights)));
    const auto axis = softmax.Int("axis", softmax.opset() < 13 ? 1 : -1);
    if (!axis.ok() || (*axis != -1 && *axis + 1 != static_cast<int64_t>(dims(weights).size()))) return nullptr;
    return index_.uses(softmax.input_index(0)) == 1 ? &softmax.node() : nullptr;
  }

  /// scale * Q K' + mask.
  bool MaskedScores(ValueIndex value, Match& match, ValueIndex& q, ValueIndex& k) {
    if (const Node* add = index_.Producer(value, "Add")) {
      if (add->FindAttribute(kActivationAttribute) != nullptr) return false;
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const ValueIndex scores = add->inputs[side];
        match.scale = 1;
        match.mask = add->inputs[1 - side];
        if (dims(scores) == dims(value) && index_.uses(scores) == 1 && Scores(scores, match, q, k)) return true;
      }
      return false;
    }
    return Scores(value, match, q, k);
  }

  /// scale * Q K', which only the caller reads.
  bool Scores(ValueIndex value, Match& match, ValueIndex& q, ValueIndex& k) {
    for (size_t step = 0; step < kMaxSteps; ++step) {
      const std::optional<std::pair<ValueIndex, double>> scaled = Scaled(value);
      if (!scaled.has_value()) break;
      value = scaled->first;
      match.scale *= scaled->second;
      if (index_.uses(value) != 1) return false;
    }
    const Node* product = index_.Producer(value, "MatMul");
    if (product == nullptr || product->FindAttribute(kActivationAttribute) != nullptr) return false;
    if (product->inputs.size() > kProductBias) {  // A constant mask, which FuseBias has put here.
      if (match.mask != kNoValue || match.scale != 1) return false;
      match.mask = product->inputs[kProductBias];
    }
    q = product->inputs[0];
    k = product->inputs[1];
    return true;
  }

  /// The value and the number of which `value` is the product.
  std::optional<std::pair<ValueIndex, double>> Scaled(ValueIndex value) const {
    const Node* mul = index_.Producer(value, "Mul");
    const Node* node = mul != nullptr ? mul : index_.Producer(value, "Div");
    if (node == nullptr || node->FindAttribute(kActivationAttribute) != nullptr) return std::nullopt;
    for (const size_t side : {size_t{1}, size_t{0}}) {
      const std::optional<double> number = ScalarOf(graph_, node->inputs[side]);
      const ValueIndex other = node->inputs[1 - side];
      if (!number.has_value() || !IsFloat(other) || dims(other) != dims(value)) continue;
      if (mul != nullptr) return std::pair(other, *number);
      if (side == 1 && *number != 0) return std::pair(other, 1 / *number);
    }
    return std::nullopt;
  }

  /// An Attention node on [batch, heads, length, size].
  bool ByHeads(size_t i, Match& match) {
    const NodeContext node(graph_, i);
    for (size_t input = kMask + 1; input < node.input_count(); ++input) {
      if (node.has_input(input)) return false;
    }
    const auto softcap = node.Float("softcap", 0);
    if (!softcap.ok() || *softcap != 0 || node.dims(0).size() != 4) return false;
    const auto scale = node.Float("scale", 1.0f / std::sqrt(static_cast<float>(node.dims(0)[3])));
    if (!scale.ok()) return false;
    match.scale = static_cast<double>(*scale);
    match.mask = node.has_input(kMask) ? node.input_index(kMask) : kNoValue;
    match.attributes = node.node().attributes;
    return Operands(node.input_index(0), node.input_index(1), /*k_turned=*/false, node.input_index(2), match);
  }

  /// Checks the operands' shapes against each other and finds the tensors they are parts of.
  bool Operands(ValueIndex q, ValueIndex k, bool k_turned, ValueIndex v, Match& match) {
    for (const ValueIndex value : {q, k, v}) {
      if (!IsFloat(value) || dims(value).size() != 4) return false;
      if (std::any_of(dims(value).begin(), dims(value).end(), [](int64_t dim) { return dim < 1; })) return false;
    }
    Shape k_dims = dims(k);
    if (k_turned) std::swap(k_dims[2], k_dims[3]);
    match.q = {dims(q)[0], dims(q)[1], dims(q)[2], dims(q)[3]};
    match.k = {k_dims[0], k_dims[1], k_dims[2], k_dims[3]};
    if (k_dims != dims(v) || match.k.batch != match.q.batch || match.k.heads != match.q.heads ||
        match.k.size != match.q.size) {
      return false;
    }
    const std::array<std::vector<Source>, 3> sources = {
        Sources(q, match.q, false, true), Sources(k, match.k, k_turned, true), Sources(v, match.k, false, false)};
    if (!Merged(sources, match) && !Apart(sources, match)) return false;
    match.scale *= match.sources[0].scale * match.sources[1].scale;
    return true;
  }

  /// Every tensor that `operand` is a part of as Source says, the one furthest back first.
  std::vector<Source> Sources(ValueIndex operand, const HeadDims& heads, bool turned, bool may_scale) {
    struct Step {
      int node;  ///< -1 for a scale.
      ValueIndex output;
    };
    std::vector<Step> steps;
    std::vector<Source> found;
    Source source{.base = operand};
    while (true) {
      StridedView view(dims(source.base));
      bool follows = true;
      for (auto step = steps.rbegin(); follows && step != steps.rend(); ++step) {
        follows = step->node < 0 || ApplyMovement(graph_, static_cast<size_t>(step->node), step->output, view);
      }
      if (follows && turned) follows = view.Transpose({0, 1, 3, 2});
      if (follows && Fits(view, heads, source)) found.push_back(source);
      if (steps.size() == kMaxSteps) break;
      const auto scaled = may_scale ? Scaled(source.base) : std::nullopt;
      const int producer = index_.producer(source.base);
      if (scaled.has_value()) {
        steps.push_back({-1, source.base});
        source.base = scaled->first;
        source.scale *= scaled->second;
      } else if (producer >= 0 && IsMovement(graph_.nodes[static_cast<size_t>(producer)])) {
        steps.push_back({producer, source.base});
        source.base = graph_.nodes[static_cast<size_t>(producer)].inputs[0];
      } else {
        break;
      }
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  /// Fills in what is left of `source` if `view`, a part of it, has heads side by side and tokens evenly spaced.
  bool Fits(const StridedView& view, const HeadDims& heads, Source& source) const {
    int64_t count = 1;
    for (const int64_t dim : dims(source.base)) count *= dim;
    if (count % (heads.batch * heads.length) != 0) return false;
    source.offset = view.offset();
    source.row = count / (heads.batch * heads.length);
    source.swapped = false;
    if (view.HasStrides({heads.length * source.row, heads.size, source.row, 1})) return true;
    source.swapped = true;
    return view.HasStrides({source.row, heads.size, heads.batch * source.row, 1});
  }

  /// Q, K and V as the three parts of one tensor.
  static bool Merged(const std::array<std::vector<Source>, 3>& sources, Match& match) {
    if (match.q.length != match.k.length) return false;
    const int64_t token = match.q.token();
    const auto find = [&](size_t part, ValueIndex base, bool swapped) -> const Source* {
      for (const Source& source : sources[part]) {
        if ((base == kNoValue || (source.base == base && source.swapped == swapped)) && source.row == 3 * token &&
            source.offset == static_cast<int64_t>(part) * token) {
          return &source;
        }
      }
      return nullptr;
    };
    const Source* q = find(0, kNoValue, false);
    if (q == nullptr) return false;
    const Source *k = find(1, q->base, q->swapped), *v = find(2, q->base, q->swapped);
    if (k == nullptr || v == nullptr) return false;
    match.sources = {*q, *k, *v};
    return true;
  }

  /// Each of them as a tensor of its own.
  static bool Apart(const std::array<std::vector<Source>, 3>& sources, Match& match) {
    for (size_t part = 0; part < 3; ++part) {
      const auto whole = std::find_if(sources[part].begin(), sources[part].end(), [&](const Source& source) {
        return source.offset == 0 && source.row == match.q.token();
      });
      if (whole == sources[part].end()) return false;
      match.sources[part] = *whole;
    }
    return true;
  }

  bool MaskFits(const Match& match) const {
    if (match.mask == kNoValue) return true;
    const Shape scores = {match.q.batch, match.q.heads, match.q.length, match.k.length};
    const auto broadcast = gpu::BroadcastDims(dims(match.mask), scores);
    return IsFloat(match.mask) && broadcast.ok() && *broadcast == scores;
  }

  /// The result must be turned back to tokens one behind the other; a Reshape after that is taken in.
  bool FindOutput(ValueIndex result, Match& match) {
    const int reader = index_.only_reader(result);
    if (reader < 0 || graph_.nodes[static_cast<size_t>(reader)].entry->name != "Transpose") return false;
    match.last = static_cast<size_t>(reader);
    match.output = graph_.nodes[match.last].outputs[0];
    // The result as if it lay as [batch, length, heads, size]; is what the Transpose makes of it in order?
    const auto in_order = [&](bool swapped) {
      StridedView view(swapped ? Shape{match.q.length, match.q.batch, match.q.heads, match.q.size}
                               : Shape{match.q.batch, match.q.length, match.q.heads, match.q.size});
      if (!view.Transpose(swapped ? std::vector<int64_t>{1, 2, 0, 3} : std::vector<int64_t>{0, 2, 1, 3})) return false;
      if (!ApplyMovement(graph_, match.last, match.output, view)) return false;
      Shape strides(4, 1);
      const Shape& output = dims(match.output);
      for (size_t i = 3; i-- > 0;) strides[i] = strides[i + 1] * output[i + 1];
      return view.HasStrides(strides);
    };
    if (!in_order(false)) {
      if (!in_order(true)) return false;
      match.swapped = true;
    }
    const int next = index_.only_reader(match.output);
    if (next >= 0 && graph_.nodes[static_cast<size_t>(next)].entry->name == "Reshape") {
      match.last = static_cast<size_t>(next);
      match.output = graph_.nodes[match.last].outputs[0];
    }
    return true;
  }

  Graph& graph_;
  const GraphIndex index_;
};

/// Writes the nodes that take the match's place.
class Writer {
 public:
  Writer(Graph& graph, std::vector<Node>& nodes) : graph_(graph), nodes_(nodes) {}

  void Write(Match match) {
    Node attention{
        .name = match.name, .entry = FindOperator("Attention", kMaxOpset), .attributes = std::move(match.attributes)};
    const bool merged = match.sources[0].row != match.q.token();
    const ValueIndex q = Tokens(match.sources[0], match.q);
    attention.inputs = {q, merged ? q : Tokens(match.sources[1], match.k),
                        merged ? q : Tokens(match.sources[2], match.k)};
    if (match.mask != kNoValue) attention.inputs.push_back(match.mask);
    attention.SetAttribute("q_num_heads", match.q.heads);
    attention.SetAttribute("kv_num_heads", match.q.heads);
    attention.SetAttribute("scale", static_cast<float>(match.scale));
    if (merged) attention.SetAttribute(kMergedAttribute, int64_t{1});
    const Shape result = {match.q.batch, match.q.length, match.q.token()};
    const Shape turned = {match.q.length, match.q.batch, match.q.token()};
    const Shape output = *graph_.value(match.output).dims;
    const bool direct = !match.swapped && output == result;
    ValueIndex value = match.output;
    if (!direct) {
      Value tokens{.name = match.name + "/tokens", .type = DataType::kFp32};
      tokens.dims = result;
      value = graph_.AddValue(std::move(tokens));
    }
    attention.outputs = {value};
    nodes_.push_back(std::move(attention));
    if (match.swapped) value = Add(MakeSwap(graph_, value, output == turned ? match.output : kNoValue));
    if (value != match.output) nodes_.push_back(MakeReshape(graph_, value, output, match.output));
  }

 private:
  ValueIndex Add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.back().outputs[0];
  }

  /// The source as [batch, length, row].
  ValueIndex Tokens(const Source& source, const HeadDims& heads) {
    const Shape wanted =
        source.swapped ? Shape{heads.length, heads.batch, source.row} : Shape{heads.batch, heads.length, source.row};
    ValueIndex value = source.base;
    if (*graph_.value(value).dims != wanted) value = Add(MakeReshape(graph_, value, wanted));
    return source.swapped ? Add(MakeSwap(graph_, value)) : value;
  }

  Graph& graph_;
  std::vector<Node>& nodes_;
};

}  // namespace

void FuseAttention(Graph& graph) {
  std::vector<std::optional<Match>> ending(graph.nodes.size());  // By the node that the match's last one is.
  bool found = false;
  {
    Matcher matcher(graph);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      std::optional<Match> match = matcher.At(i);
      if (!match.has_value()) continue;
      found = true;
      ending[match->last] = std::move(match);
    }
  }
  if (!found) return;
  std::vector<Node> nodes;
  Writer writer(graph, nodes);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (ending[i].has_value()) {
      writer.Write(*std::move(ending[i]));
    } else {
      nodes.push_back(std::move(graph.nodes[i]));
    }
  }
  graph.nodes = std::move(nodes);
  RemoveDeadCode(graph);
}

}  // namespace sluice::model
