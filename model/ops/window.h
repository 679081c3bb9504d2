// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "model/ops/context.h"

namespace sluice::model {

/// How a convolution or pool slides: one entry per spatial dimension each.
struct Window {
  Shape kernel;
  Shape strides;
  Shape dilations;
  Shape pads_begin;
  Shape pads_end;
};

/// Reads kernel_shape, strides, dilations, pads and auto_pad of a node whose input has dimensions `input`
/// ([N, C, spatial...]). `kernel` is the kernel's shape where something else than the attribute decides it (the weights
/// of a convolution), or empty. INVALID_ARGUMENT when the attributes contradict each other or the input.
absl::StatusOr<Window> ReadWindow(const NodeContext& context, const Shape& input, const Shape& kernel);

}  // namespace sluice::model
