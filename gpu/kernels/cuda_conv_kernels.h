// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {

/// A convolution in three spatial dimensions (units in front), as it is passed to device code. Row-major.
struct ConvShape {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t filters = 0;
  int64_t groups = 1;
  int64_t input[3] = {};
  int64_t kernel[3] = {};
  int64_t strides[3] = {};
  int64_t dilations[3] = {};
  int64_t pads_begin[3] = {};
  int64_t padded[3] = {};  ///< Input with both pads.
  int64_t output[3] = {};
  bool relu = false;
};
ConvShape MakeConvShape(const ConvGeometry& geometry, bool relu);

/// Copies [batch * channels, input...] into the middle of [batch * channels, padded...], zeros around it.
absl::Status LoadPad(int ordinal);
absl::Status SubmitPad(cudaStream_t stream, const ConvShape& shape, const float* input, float* padded);

/// out = activation(out + bias), for convolutions whose library call took no bias along. `bias` may be null.
absl::Status LoadAddBias(int ordinal);
absl::Status SubmitAddBias(cudaStream_t stream, const ConvShape& shape, const float* bias, float* out);

/// Unfold: columns [channels * kernel, batch * output] of an input, one group: a column is what one element of the
/// result sees. Fold: out [batch, filters, output] = activation(sum of products [parts, filters, batch * output] + bias
/// + residual); `bias` and `residual` may be null, `residual` may be `out`. Both for fewer than 2^31 elements.
absl::Status LoadColumns(int ordinal);
absl::Status SubmitUnfold(cudaStream_t stream, const ConvShape& shape, const float* input, float* columns);
absl::Status SubmitFold(cudaStream_t stream, const ConvShape& shape, int64_t parts, const float* products,
                        const float* bias, const float* residual, float* out);

/// The whole convolution, one thread for each element of the result, straight from the formula: for what cuDNN does not
/// do. `bias` and `residual` may be null; `residual` may be `out`.
absl::Status LoadDirectConv(int ordinal);
absl::Status SubmitDirectConv(cudaStream_t stream, const ConvShape& shape, const float* input, const float* weights,
                              const float* bias, const float* residual, float* out);

}  // namespace sluice::gpu::cuda
