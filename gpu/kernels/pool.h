// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

enum class PoolKind : uint8_t { kMax, kAverage };

/// Maximum or mean over a sliding window, channels first, one to three spatial dimensions. Positions outside the input
/// do not take part; the mean divides by the number of positions inside the input, or with count_include_pad inside the
/// input and its pads.
///
/// Spans: input, output; they must not overlap. Types: FP32, FP64; kMax also INT8 and UINT8.
struct PoolDescription {
  PoolKind kind = PoolKind::kMax;
  DataType type = DataType::kFp32;
  Dims input = {};       ///< [N, C, spatial...], all positive.
  Dims kernel = {};      ///< One per spatial dimension.
  Dims strides = {};     ///< Empty for all 1.
  Dims dilations = {};   ///< Empty for all 1.
  Dims pads_begin = {};  ///< Empty for all 0; each smaller than the dilated kernel. Likewise pads_end.
  Dims pads_end = {};
  bool ceil_mode = false;  ///< Round the number of windows up: the last may reach beyond the pads, but begins inside.
  bool count_include_pad = false;
  bool channels_last = false;  ///< As of a ConvDescription.
};

/// Maximum or mean over all spatial positions: [N, C, spatial...] to [N, C, 1...].
///
/// Spans: input, output. Types: FP32, FP64.
struct GlobalPoolDescription {
  PoolKind kind = PoolKind::kMax;
  DataType type = DataType::kFp32;
  Dims input = {};  ///< Rank at least 3, all positive.
  bool channels_last = false;
};

/// [N, C, spatial...] of the result; INVALID_ARGUMENT when the description is not consistent.
absl::StatusOr<Dims> PoolOutputDims(const PoolDescription& description);

absl::StatusOr<std::unique_ptr<Kernel>> PreparePool(Device& device, const PoolDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalPool(Device& device, const GlobalPoolDescription& description);

}  // namespace sluice::gpu
