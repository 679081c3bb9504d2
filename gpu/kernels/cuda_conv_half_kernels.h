// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/data_type.h"
#include "gpu/kernels/cuda_activation.h"
#include "gpu/kernels/cuda_conv_kernels.h"

namespace sluice::gpu::cuda {

// Images of FP16 or BF16, [batch, y, x, channels], spatial dimensions 1 and 2 of the shape. `residual` may be null, and
// may be `out`.

/// FP32 [batch, channels, y, x] as halves [batch, y, x, channels].
absl::Status SubmitImage(cudaStream_t stream, DataType type, const ConvShape& shape, const float* input, void* image);
/// The same image as rows [batch, output y, output x] of `depth` halves, a multiple of 8: all that each place of the
/// result sees, [kernel, channels], then zeros.
absl::Status SubmitImageColumns(cudaStream_t stream, DataType type, const ConvShape& shape, int64_t depth,
                                const float* input, void* rows);
absl::Status LoadImage(int ordinal, DataType type);  ///< For both.

/// Rows [batch, output y, output x] of [kernel, channels]: all that each place of the result sees, zeros outside. The
/// channels are a multiple of kUnfoldChannels; of either half.
inline constexpr int64_t kUnfoldChannels = 8;
absl::Status LoadUnfoldHalf(int ordinal);
absl::Status SubmitUnfoldHalf(cudaStream_t stream, const ConvShape& shape, const void* input, void* rows);

/// One channel a group: weights [kernel, channels], bias [channels], of the same type.
absl::Status LoadDepthwise(int ordinal, DataType type);
absl::Status SubmitDepthwise(cudaStream_t stream, DataType type, const ConvShape& shape,
                             const SumActivation& activation, const void* input, const void* weights, const void* bias,
                             const void* residual, void* out);

/// Any groups: weights [filters, kernel, channels / groups]; one thread for each element of the result.
absl::Status LoadDirectHalf(int ordinal, DataType type);
absl::Status SubmitDirectHalf(cudaStream_t stream, DataType type, const ConvShape& shape,
                              const SumActivation& activation, const void* input, const void* weights, const void* bias,
                              const void* residual, void* out);

/// out = activation(out), `count` elements; for kClip and kSwish behind a library's call.
absl::Status LoadHalfActivation(int ordinal, DataType type);
absl::Status SubmitHalfActivation(cudaStream_t stream, DataType type, const SumActivation& activation, int64_t count,
                                  void* out);

}  // namespace sluice::gpu::cuda
