// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "gpu/kernels/tensor.h"
#include "model/ops/context.h"

namespace sluice::model {

/// Set by passes/fuse_activation to "Relu" on nodes that apply it to their own result.
inline constexpr absl::string_view kActivationAttribute = "sluice.activation";

absl::StatusOr<gpu::Activation> FusedActivation(const NodeContext& context);

/// The type a Cast converts to.
absl::StatusOr<DataType> CastTarget(const NodeContext& context);

/// True for operators whose result depends element by element on one input (Relu, Tanh, Gelu ...).
bool IsUnaryOperator(absl::string_view name);

}  // namespace sluice::model
