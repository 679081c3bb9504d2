// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "gpu/kernels/elementwise.h"

namespace sluice::gpu::host {

// The loops of the elementwise kernels, for those that run several behind each other.

/// output[i] = function(input[i]); they may be the same memory.
using UnaryRow = std::function<void(const float* input, float* output, int64_t count)>;
/// UNIMPLEMENTED for kinds that FP32 lacks.
absl::StatusOr<UnaryRow> FloatUnaryRow(const UnaryDescription& description);

/// One row of the result; steps are 0 or 1, and an operand of step 1 may share the result's memory. Operands and result
/// are untyped, so that the kernels around it are compiled once and not for each kind and type.
using BinaryRow = void (*)(const std::byte* a, int64_t a_step, const std::byte* b, int64_t b_step, std::byte* output,
                           int64_t count);
/// Null for what does not exist.
BinaryRow BinaryRowFor(BinaryKind kind, DataType type);

}  // namespace sluice::gpu::host
