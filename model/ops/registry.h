// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::model {

class InferContext;
class LowerContext;

/// How Sluice runs one operator in a range of its domain's opsets. Adding an operator is one entry in a table of
/// registry.cc.
struct OperatorEntry {
  absl::string_view name;
  int64_t min_opset;
  int64_t max_opset;
  size_t min_inputs;
  size_t max_inputs;
  size_t max_outputs;
  /// Sets the type and dimensions of every output from those of the inputs, which are known; may set outputs to
  /// constants, and the node then vanishes.
  absl::Status (*infer)(InferContext& context);
  /// Turns the node into launches and views; null when it always vanishes.
  absl::Status (*lower)(LowerContext& context);
};

inline constexpr int64_t kMinOpset = 7;
/// Of operators that passes alone make: no file has it.
inline constexpr int64_t kInternalOpset = 0;
inline constexpr int64_t kMaxOpset = 23;
inline constexpr size_t kAnyCount = 4096;  ///< For operators with a list of inputs or outputs; the reader's bound.

/// The operators of one domain, and its opsets that files may import. No two domains have an operator of one name, so
/// that passes tell operators by their names.
struct OperatorDomain {
  absl::string_view name;
  int64_t min_opset;
  int64_t max_opset;
  std::span<const OperatorEntry> operators;

  /// The entry for `operator_name` at `opset`, or null.
  const OperatorEntry* Find(absl::string_view operator_name, int64_t opset) const;
  /// True when some opset of files has an entry for `operator_name`.
  bool Knows(absl::string_view operator_name) const;
};

/// ai.onnx, which files may leave without a name, and ai.onnx.ml.
std::span<const OperatorDomain> OperatorDomains();

/// The domain as a file names it, or null.
const OperatorDomain* FindDomain(absl::string_view name);

/// The entry of domain ai.onnx for `name` at `opset`, or null.
const OperatorEntry* FindOperator(absl::string_view name, int64_t opset);

}  // namespace sluice::model
