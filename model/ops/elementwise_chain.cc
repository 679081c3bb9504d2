// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/ops/elementwise_chain.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/operators.h"

namespace sluice::model {
namespace {

// Attributes of the node: four integers and two numbers for each step.
constexpr absl::string_view kStepsAttribute = "sluice.steps";      // Operands there are, number of the kind, a, b.
constexpr absl::string_view kNumbersAttribute = "sluice.numbers";  // alpha, beta.
constexpr size_t kStepInts = 4;
constexpr size_t kStepNumbers = 2;

}  // namespace

void SetChain(Node& node, const std::vector<gpu::ElementwiseStep>& steps) {
  std::vector<int64_t> ints;
  std::vector<float> numbers;
  for (const gpu::ElementwiseStep& step : steps) {
    const int64_t kind = std::visit([](auto k) { return static_cast<int64_t>(k); }, step.kind);
    const int64_t operands = std::holds_alternative<gpu::BinaryKind>(step.kind) ? 2 : 1;
    ints.insert(ints.end(), {operands, kind, static_cast<int64_t>(step.a), static_cast<int64_t>(step.b)});
    numbers.insert(numbers.end(), {step.alpha, step.beta});
  }
  node.SetAttribute(kStepsAttribute, std::move(ints));
  node.SetAttribute(kNumbersAttribute, std::move(numbers));
}

absl::StatusOr<std::vector<gpu::ElementwiseStep>> ChainOf(const Node& node) {
  const Attribute* const steps = node.FindAttribute(kStepsAttribute);
  const Attribute* const parameters = node.FindAttribute(kNumbersAttribute);
  const auto* const ints = steps == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&steps->value);
  const auto* const numbers = parameters == nullptr ? nullptr : std::get_if<std::vector<float>>(&parameters->value);
  if (ints == nullptr || numbers == nullptr || ints->size() / kStepInts != numbers->size() / kStepNumbers) {
    return absl::InternalError("an Elementwise node without its steps");
  }
  std::vector<gpu::ElementwiseStep> result(ints->size() / kStepInts);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t* const from = ints->data() + i * kStepInts;
    if (from[0] == 2) {
      result[i].kind = static_cast<gpu::BinaryKind>(from[1]);
    } else {
      result[i].kind = static_cast<gpu::UnaryKind>(from[1]);
    }
    result[i].a = static_cast<size_t>(from[2]);
    result[i].b = static_cast<size_t>(from[3]);
    result[i].alpha = (*numbers)[i * kStepNumbers];
    result[i].beta = (*numbers)[i * kStepNumbers + 1];
  }
  return result;
}

absl::Status InferElementwise(InferContext& context) {
  Shape dims = context.dims(0);
  for (size_t i = 1; i < context.input_count(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(dims, gpu::BroadcastDims(dims, context.dims(i)));
  }
  return context.SetOutput(0, context.input(0).type, std::move(dims));
}

absl::Status LowerElementwise(LowerContext& context) {
  gpu::ElementwiseChainDescription description{.type = context.input(0).type};
  SLUICE_ASSIGN_OR_RETURN(description.steps, ChainOf(context.node()));
  std::vector<size_t> in_place;
  for (size_t i = 0; i < context.input_count(); ++i) {
    description.inputs.push_back(StoredOperand(context, i));
    if (context.dims(i) == context.output_dims(0)) in_place.push_back(i);
  }
  SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareElementwiseChain(context.device(), description));
  context.AddLaunch(std::move(kernel), context.node().inputs, {context.output_index(0)}, std::move(in_place));
  return absl::OkStatus();
}

}  // namespace sluice::model
