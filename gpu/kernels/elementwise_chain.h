// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

// Bounds of a chain. A CUDA thread holds all inputs and kept results in registers.
inline constexpr size_t kMaxChainInputs = 6;
inline constexpr size_t kMaxChainSteps = 16;
/// Results of steps that wait, at any one time, for a later step than the next.
inline constexpr size_t kMaxChainKept = 4;
/// Dimensions of the output, with neighbours merged that every input walks through evenly.
inline constexpr size_t kMaxChainRank = 8;

/// One step of a chain. Values are numbered: the inputs first, then the results of the steps in order.
struct ElementwiseStep {
  /// Any kind but kNot, and of two operands the arithmetic ones (kAdd to kMod).
  std::variant<UnaryKind, BinaryKind> kind = UnaryKind::kIdentity;
  size_t a = 0;        ///< A value before this step's own; likewise b.
  size_t b = 0;        ///< Of two operands only.
  float alpha = 0.0f;  ///< kLeakyRelu, kHardSigmoid; of kClip the lower bound.
  float beta = 0.0f;   ///< kHardSigmoid; of kClip the upper bound, not below the lower.
};

/// Elementwise steps in one kernel: each input is read and the result written once. Every step computes over the
/// output's shape, which is that of all inputs broadcast against each other by numpy's rule; the output is the last
/// step's result. Types: FP32, and on CUDA FP16 and BF16, which are computed in FP32 and rounded once, at the end.
///
/// Spans: the inputs in order, output. An input of the output's own shape may share its memory.
struct ElementwiseChainDescription {
  DataType type = DataType::kFp32;
  std::vector<Dims> inputs = {};            ///< 1 to kMaxChainInputs.
  std::vector<ElementwiseStep> steps = {};  ///< 1 to kMaxChainSteps, with at most kMaxChainKept results kept.
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareElementwiseChain(Device& device,
                                                                const ElementwiseChainDescription& description);

}  // namespace sluice::gpu
