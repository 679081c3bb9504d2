// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// How a window slides over the spatial dimensions of a convolution or a pooling: one entry per dimension in each
/// member, all checked.
struct Spatial {
  Dims input = {};
  Dims kernel = {};
  Dims strides = {};
  Dims dilations = {};
  Dims pads_begin = {};
  Dims pads_end = {};
  Dims output = {};
};

/// Fills in defaults (an empty list is all 1, or all 0 for pads), checks every value and computes the output. Numbers
/// are bounded by 2^30, so that sums and products of two fit int64. INVALID_ARGUMENT naming `what`.
absl::StatusOr<Spatial> MakeSpatial(absl::string_view what, Spatial spatial, bool ceil_mode);

/// Without the dimensions over which nothing slides (input 1, kernel 1, no pads): the bytes are the same and a last
/// dimension of 1 would leave nothing to vectorise over. Keeps one dimension at least.
Spatial DropUnitDims(const Spatial& spatial);

/// The same as three dimensions, with units in front.
Spatial PadToThree(const Spatial& spatial);

}  // namespace sluice::gpu
