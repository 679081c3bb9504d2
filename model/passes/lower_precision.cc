// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "model/ops/activation.h"
#include "model/ops/operators.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"

namespace sluice::model {
namespace {

constexpr size_t kImageRank = 4;
constexpr int64_t kMostImageChannels = 4;

/// Operators that run in halves, beside those that work element by element on one input.
constexpr std::array<absl::string_view, 43> kHalfOperators = {"Add",
                                                              "Attention",
                                                              "AveragePool",
                                                              "Clip",
                                                              "Concat",
                                                              "Conv",
                                                              "Div",
                                                              "Equal",
                                                              "Expand",
                                                              "Flatten",
                                                              "Gather",
                                                              "GatherND",
                                                              "Gemm",
                                                              "GlobalAveragePool",
                                                              "GlobalMaxPool",
                                                              "Greater",
                                                              "GreaterOrEqual",
                                                              "Identity",
                                                              "IsNaN",
                                                              "LayerNormalization",
                                                              "Less",
                                                              "LessOrEqual",
                                                              "LogSoftmax",
                                                              "MatMul",
                                                              "Max",
                                                              "MaxPool",
                                                              "Min",
                                                              "Mul",
                                                              "Pow",
                                                              "ReduceL1",
                                                              "ReduceMax",
                                                              "ReduceMean",
                                                              "ReduceMin",
                                                              "ReduceSum",
                                                              "Reshape",
                                                              "Slice",
                                                              "Softmax",
                                                              "Split",
                                                              "Squeeze",
                                                              "Sub",
                                                              "Sum",
                                                              "Transpose",
                                                              "Unsqueeze"};
constexpr std::array<absl::string_view, 2> kHalfMovements = {"Tile", "Where"};

bool RunsInHalf(const Graph& graph, const Node& node) {
  const absl::string_view name = node.entry->name;
  if (name == "Conv") return graph.value(node.inputs[0]).dims->size() == kImageRank;
  if (name == "MaxPool" || name == "AveragePool") return graph.value(node.inputs[0]).dims->size() == kImageRank;
  const auto in = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return IsUnaryOperator(name) || in(kHalfOperators) || in(kHalfMovements);
}

/// True for inputs that the operator's kernel takes in FP32: it packs them itself, or reads numbers off them.
bool StaysFp32(const Graph& graph, const Node& node, size_t input) {
  const absl::string_view name = node.entry->name;
  if (name == "Conv") {
    // An image as a request brings it is turned on its way into the convolution.
    const Shape& weights = *graph.value(node.inputs[1]).dims;
    const bool is_image = std::ranges::find(graph.inputs, node.inputs[0]) != graph.inputs.end() &&
                          weights[1] == (*graph.value(node.inputs[0]).dims)[1] && weights[1] <= kMostImageChannels;
    return input == 1 || input == 2 || (input == 0 && is_image);
  }
  if (name == "Clip") return input > 0;
  if (name == "LayerNormalization") return input == 1 || input == 2;  // Behind them is what else is added up.
  const bool product = name == "MatMul" || name == "Gemm";
  return product && (input == 1 || input == 2) && graph.value(node.inputs[input]).is_constant;
}

/// A finite number stays one: masks are spelt as the lowest FP32, and minus infinity in a whole row would be NaN.
uint16_t ToBits(DataType type, float value) {
  if (type == DataType::kBf16) {
    const uint16_t bits = Bf16FromFloat(value);
    const bool overflown = std::isfinite(value) && std::isinf(FloatFromBf16(bits));
    return overflown ? static_cast<uint16_t>(bits - 1) : bits;  // The next smaller magnitude is the largest finite.
  }
  constexpr float kMostFp16 = 65504.0f;
  return Fp16FromFloat(std::isfinite(value) ? std::clamp(value, -kMostFp16, kMostFp16) : value);
}

/// ONNX's number of a type.
int64_t OnnxNumber(DataType type) {
  constexpr int64_t kFloat = 1, kFloat16 = 10, kBfloat16 = 16;
  return type == DataType::kFp16 ? kFloat16 : type == DataType::kBf16 ? kBfloat16 : kFloat;
}

class Lowering {
 public:
  Lowering(Graph& graph, DataType type) : graph_(graph), type_(type) {}

  void Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      Place(node);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueIndex& output : graph_.outputs) {
      if (graph_.value(output).type == type_ && lowered_.contains(output)) output = As(output, DataType::kFp32);
    }
  }

 private:
  void Place(Node& node) {
    const bool half = RunsInHalf(graph_, node);
    // Numbers that come from elsewhere are made in halves at once.
    if (half || IsCastToFp32(node)) {
      for (const ValueIndex output : node.outputs) {
        if (output != kNoValue && graph_.value(output).type == DataType::kFp32) {
          graph_.value(output).type = type_;
          lowered_.insert(output);
        }
      }
    }
    if (node.entry->name == "Cast") {  // It reads either.
      if (lowered_.contains(node.outputs[0])) node.SetAttribute("to", OnnxNumber(type_));
      return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueIndex input = node.inputs[i];
      if (input == kNoValue) continue;
      const bool wants_half = half && !StaysFp32(graph_, node, i);
      const DataType from = graph_.value(input).type;
      if (wants_half && from == DataType::kFp32) node.inputs[i] = As(input, type_);
      if (!wants_half && from == type_ && lowered_.contains(input)) node.inputs[i] = As(input, DataType::kFp32);
    }
  }

  bool IsCastToFp32(const Node& node) const {
    return node.entry->name == "Cast" && graph_.value(node.outputs[0]).type == DataType::kFp32 &&
           !graph_.IsOutput(node.outputs[0]);
  }

  /// The value in the other type: a constant, or a copy made once.
  ValueIndex As(ValueIndex index, DataType type) {
    const auto [made, is_new] = copies_.try_emplace(std::pair(index, type), kNoValue);
    if (!is_new) return made->second;
    const Value& value = graph_.value(index);
    const std::string name = absl::StrCat(value.name, "/", std::string(WireName(type)));
    if (value.is_constant && type == type_) {
      const size_t count = value.bytes.size() / sizeof(float);
      std::vector<std::byte> bytes(count * sizeof(uint16_t));
      for (size_t i = 0; i < count; ++i) {
        float number;
        std::memcpy(&number, value.bytes.data() + i * sizeof(float), sizeof(float));
        const uint16_t bits = ToBits(type_, number);
        std::memcpy(bytes.data() + i * sizeof(uint16_t), &bits, sizeof(bits));
      }
      made->second = graph_.AddConstant(name, type_, *value.dims, std::move(bytes));
      return made->second;
    }
    Value copy;
    copy.name = name;
    copy.type = type;
    copy.dims = value.dims;
    Node cast;
    cast.name = name;
    cast.entry = FindOperator("Cast", kMaxOpset);
    cast.inputs = {index};
    made->second = graph_.AddValue(std::move(copy));
    cast.outputs = {made->second};
    cast.SetAttribute("to", OnnxNumber(type));
    graph_.nodes.push_back(std::move(cast));
    return made->second;
  }

  Graph& graph_;
  const DataType type_;
  std::set<ValueIndex> lowered_;  ///< Values that were FP32 before.
  std::map<std::pair<ValueIndex, DataType>, ValueIndex> copies_;
};

}  // namespace

void LowerPrecision(Graph& graph, Precision precision) {
  graph.tf32 = precision == Precision::kTf32;
  if (precision == Precision::kFp16) Lowering(graph, DataType::kFp16).Run();
  if (precision == Precision::kBf16) Lowering(graph, DataType::kBf16).Run();
}

}  // namespace sluice::model
