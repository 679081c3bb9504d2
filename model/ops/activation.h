// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"

namespace sluice::model {

/// Set by passes to "Relu" on nodes that apply it to their own result, to "Gelu" on a matrix product, and on a Conv to
/// "Swish", or to "Clip" with the other two attributes.
inline constexpr absl::string_view kActivationAttribute = "sluice.activation";
inline constexpr absl::string_view kLowAttribute = "sluice.low";
inline constexpr absl::string_view kHighAttribute = "sluice.high";

/// Lower and upper bound of a Clip, from attributes (before opset 11) or constant inputs.
absl::StatusOr<std::pair<double, double>> ClipBounds(const NodeContext& context);

absl::StatusOr<gpu::Activation> FusedActivation(const NodeContext& context);

/// The type a Cast converts to.
absl::StatusOr<DataType> CastTarget(const NodeContext& context);

/// True for operators whose result depends element by element on one input (Relu, Tanh, Gelu ...).
bool IsUnaryOperator(absl::string_view name);

}  // namespace sluice::model
