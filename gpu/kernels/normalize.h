// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Inference-time batch normalisation of [N, C, ...]:
/// output = activation(scale[c] * (x - mean[c]) / sqrt(variance[c] + epsilon) + bias[c]).
///
/// Spans: input, scale, bias, mean, variance (each [C]), output; input and output may be the same memory. Type: FP32.
struct BatchNormDescription {
  Dims input = {};  ///< Rank at least 2.
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;
};

/// One of the tensors that a layer normalisation adds up.
struct LayerNormAddend {
  /// The input's last dimensions, at least all that are normalised; those in front are 1 or left out, and the addend is
  /// the same for all of their elements.
  Dims dims = {};
  /// Above 0 the span is a table of so many rows of the normalised dimensions, and each of the addend's rows is the one
  /// that an index names. Indices mean what they do in GatherDescription.
  int64_t table_rows = 0;
  DataType index_type = DataType::kInt64;  ///< INT32 or INT64.
};

/// How many may be added up.
inline constexpr size_t kMostLayerNormAddends = 4;

/// Normalises the sum x of the addends over the dimensions from `axis` to the last: output = scale * (x - mean) /
/// sqrt(variance + epsilon) + bias, with mean and variance of those dimensions.
///
/// Spans: each addend (of a table: the table, then the indices, one for each row of `dims`), scale, [bias, when
/// has_bias], output, [x, when writes_sum]; scale and bias have the shape of the normalised dimensions. Output and x
/// may each be the same memory as an addend that is no table and has as many elements as the input, but not both as
/// the same one. Halves are added up in float; x is rounded once, and the output is made of what it was before.
struct LayerNormDescription {
  DataType type = DataType::kFp32;  ///< Of addends and outputs, FP16 and BF16 where KernelFeatures says so; scale and
                                    ///< bias are FP32.
  Dims input = {};                  ///< Of x and of the output.
  int64_t axis = -1;
  float epsilon = 1e-5f;
  bool has_bias = true;
  std::vector<LayerNormAddend> addends = {};  ///< At most kMostLayerNormAddends; none means one of the input's shape.
  bool writes_sum = false;
};

/// Rows that an addend of `dims` has when `input` is normalised from `axis` on. INVALID_ARGUMENT when it cannot be one.
absl::StatusOr<int64_t> LayerNormAddendRows(const Dims& input, int64_t axis, const Dims& dims);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNorm(Device& device, const BatchNormDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNorm(Device& device, const LayerNormDescription& description);

}  // namespace sluice::gpu
