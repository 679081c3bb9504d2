// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernels/elementwise_chain.h"
#include "gpu/kernels/strided.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Where a step finds an operand: kPreviousResult is the result of the step before, 0 to kMaxChainInputs - 1 are inputs,
// and from kFirstKept on come the kept results.
inline constexpr int kPreviousResult = -1;
inline constexpr int kFirstKept = static_cast<int>(kMaxChainInputs);
inline constexpr int kNotKept = -1;

struct PlacedStep {
  std::variant<UnaryKind, BinaryKind> kind;
  int a = kPreviousResult;
  int b = kPreviousResult;  ///< Of two operands only.
  int keep = kNotKept;      ///< Which kept result this one becomes; an operand that is read last here may be that one.
  float alpha = 0.0f;
  float beta = 0.0f;
};

/// A checked chain as the backends run it.
struct ChainProgram {
  std::vector<PlacedStep> steps;
  Dims output;
  StridedWalk walk;  ///< Merged, over the inputs in order.
};
/// INVALID_ARGUMENT where the description is inconsistent or beyond its bounds; its type is not looked at.
absl::StatusOr<ChainProgram> MakeChainProgram(const ElementwiseChainDescription& description);

/// "mul,add,sigmoid".
std::string ChainWords(const std::vector<ElementwiseStep>& steps);
/// What a chain's kernel is called: "elementwise mul,add,sigmoid [64,4096]".
std::string ChainName(const ElementwiseChainDescription& description, const Dims& output);

}  // namespace sluice::gpu
