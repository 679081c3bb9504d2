// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/status_macros.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_conv_kernels.h"
#include "gpu/kernels/cuda_wait.cuh"
#include "gpu/kernels/spatial.h"

namespace sluice::gpu::cuda {
namespace {

__host__ __device__ int64_t Area(const int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

__device__ int64_t FirstIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t IndexStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void Pad(ConvShape shape, int64_t count, const float* input, float* padded) {
  WaitForPrevious();
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    int64_t rest = i;
    const int64_t x = rest % shape.padded[2] - shape.pads_begin[2];
    rest /= shape.padded[2];
    const int64_t y = rest % shape.padded[1] - shape.pads_begin[1];
    rest /= shape.padded[1];
    const int64_t z = rest % shape.padded[0] - shape.pads_begin[0];
    const int64_t plane = rest / shape.padded[0];
    const bool inside = x >= 0 && x < shape.input[2] && y >= 0 && y < shape.input[1] && z >= 0 && z < shape.input[0];
    padded[i] = inside ? input[((plane * shape.input[0] + z) * shape.input[1] + y) * shape.input[2] + x] : 0.0f;
  }
}

__global__ void AddBias(ConvShape shape, int64_t count, const float* bias, float* out) {
  WaitForPrevious();
  const int64_t area = Area(shape.output);
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    float value = out[i];
    if (bias != nullptr) value += bias[i / area % shape.filters];
    if (shape.relu && value < 0.0f) value = 0.0f;
    out[i] = value;
  }
}

// 32-bit indices: a division of 64-bit ones takes longer than all the rest.
__global__ void Unfold(ConvShape shape, uint32_t count, const float* input, float* columns) {
  WaitForPrevious();
  const auto kernel_y = static_cast<uint32_t>(shape.kernel[1]), kernel_x = static_cast<uint32_t>(shape.kernel[2]);
  const auto kernel_z = static_cast<uint32_t>(shape.kernel[0]);
  const auto out_z = static_cast<uint32_t>(shape.output[0]), out_y = static_cast<uint32_t>(shape.output[1]);
  const auto out_x = static_cast<uint32_t>(shape.output[2]), batch = static_cast<uint32_t>(shape.batch);
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    uint32_t rest = i;
    const int64_t ox = rest % out_x;
    rest /= out_x;
    const int64_t oy = rest % out_y;
    rest /= out_y;
    const int64_t oz = rest % out_z;
    rest /= out_z;
    const int64_t image = rest % batch;
    rest /= batch;
    const int64_t x = ox * shape.strides[2] - shape.pads_begin[2] + rest % kernel_x * shape.dilations[2];
    rest /= kernel_x;
    const int64_t y = oy * shape.strides[1] - shape.pads_begin[1] + rest % kernel_y * shape.dilations[1];
    rest /= kernel_y;
    const int64_t z = oz * shape.strides[0] - shape.pads_begin[0] + rest % kernel_z * shape.dilations[0];
    const int64_t plane = image * shape.channels + rest / kernel_z;
    const bool inside = x >= 0 && x < shape.input[2] && y >= 0 && y < shape.input[1] && z >= 0 && z < shape.input[0];
    columns[i] = inside ? input[((plane * shape.input[0] + z) * shape.input[1] + y) * shape.input[2] + x] : 0.0f;
  }
}

__global__ void Fold(uint32_t batch, uint32_t filters, uint32_t area, uint32_t parts, bool relu, const float* products,
                     const float* bias, const float* residual, float* out) {
  WaitForPrevious();
  const uint32_t count = batch * filters * area;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const uint32_t place = i % area, filter = i / area % filters, image = i / area / filters;
    const float* product = products + (filter * batch + image) * area + place;
    float value = *product;
    for (uint32_t part = 1; part < parts; ++part) value += product[part * count];
    if (bias != nullptr) value += bias[filter];
    if (residual != nullptr) value += residual[i];
    if (relu && value < 0.0f) value = 0.0f;
    out[i] = value;
  }
}

__global__ void DirectConv(ConvShape shape, int64_t count, const float* input, const float* weights, const float* bias,
                           const float* residual, float* out) {
  WaitForPrevious();
  const int64_t group_channels = shape.channels / shape.groups;
  const int64_t group_filters = shape.filters / shape.groups;
  const int64_t input_area = Area(shape.input);
  const int64_t kernel_area = Area(shape.kernel);
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    int64_t rest = i;
    const int64_t x0 = rest % shape.output[2] * shape.strides[2] - shape.pads_begin[2];
    rest /= shape.output[2];
    const int64_t y0 = rest % shape.output[1] * shape.strides[1] - shape.pads_begin[1];
    rest /= shape.output[1];
    const int64_t z0 = rest % shape.output[0] * shape.strides[0] - shape.pads_begin[0];
    rest /= shape.output[0];
    const int64_t filter = rest % shape.filters;
    const int64_t plane = rest / shape.filters * shape.channels + filter / group_filters * group_channels;
    const float* image = input + plane * input_area;
    const float* weight = weights + filter * group_channels * kernel_area;
    float sum = 0.0f;
    for (int64_t c = 0; c < group_channels; ++c) {
      for (int64_t kz = 0; kz < shape.kernel[0]; ++kz) {
        const int64_t z = z0 + kz * shape.dilations[0];
        for (int64_t ky = 0; ky < shape.kernel[1]; ++ky) {
          const int64_t y = y0 + ky * shape.dilations[1];
          for (int64_t kx = 0; kx < shape.kernel[2]; ++kx, ++weight) {
            const int64_t x = x0 + kx * shape.dilations[2];
            const bool inside =
                x >= 0 && x < shape.input[2] && y >= 0 && y < shape.input[1] && z >= 0 && z < shape.input[0];
            if (inside) sum = fmaf(image[(z * shape.input[1] + y) * shape.input[2] + x], *weight, sum);
          }
        }
      }
      image += input_area;
    }
    if (bias != nullptr) sum += bias[filter];
    if (residual != nullptr) sum += residual[i];
    if (shape.relu && sum < 0.0f) sum = 0.0f;
    out[i] = sum;
  }
}

int64_t OutputCount(const ConvShape& shape) { return shape.batch * shape.filters * Area(shape.output); }

}  // namespace

ConvShape MakeConvShape(const ConvGeometry& geometry, bool relu) {
  const Spatial spatial = PadToThree(DropUnitDims(geometry.spatial));
  ConvShape shape;
  shape.batch = geometry.batch;
  shape.channels = geometry.channels;
  shape.filters = geometry.filters;
  shape.groups = geometry.groups;
  shape.relu = relu;
  for (int i = 0; i < 3; ++i) {
    shape.input[i] = spatial.input[i];
    shape.kernel[i] = spatial.kernel[i];
    shape.strides[i] = spatial.strides[i];
    shape.dilations[i] = spatial.dilations[i];
    shape.pads_begin[i] = spatial.pads_begin[i];
    shape.padded[i] = spatial.pads_begin[i] + spatial.input[i] + spatial.pads_end[i];
    shape.output[i] = spatial.output[i];
  }
  return shape;
}

absl::Status LoadPad(int ordinal) { return LoadKernel(ordinal, Pad); }

absl::Status SubmitPad(cudaStream_t stream, const ConvShape& shape, const float* input, float* padded) {
  const int64_t count = shape.batch * shape.channels * Area(shape.padded);
  LaunchAfterPrevious(Pad, BlocksFor(count), kBlockThreads, stream, shape, count, input, padded);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::Status LoadAddBias(int ordinal) { return LoadKernel(ordinal, AddBias); }

absl::Status SubmitAddBias(cudaStream_t stream, const ConvShape& shape, const float* bias, float* out) {
  const int64_t count = OutputCount(shape);
  LaunchAfterPrevious(AddBias, BlocksFor(count), kBlockThreads, stream, shape, count, bias, out);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::Status LoadColumns(int ordinal) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Unfold));
  return LoadKernel(ordinal, Fold);
}

absl::Status SubmitUnfold(cudaStream_t stream, const ConvShape& shape, const float* input, float* columns) {
  const int64_t count = shape.channels * Area(shape.kernel) * shape.batch * Area(shape.output);
  LaunchAfterPrevious(Unfold, BlocksFor(count), kBlockThreads, stream, shape, static_cast<uint32_t>(count), input,
                      columns);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::Status SubmitFold(cudaStream_t stream, const ConvShape& shape, int64_t parts, const float* products,
                        const float* bias, const float* residual, float* out) {
  LaunchAfterPrevious(Fold, BlocksFor(OutputCount(shape)), kBlockThreads, stream, static_cast<uint32_t>(shape.batch),
                      static_cast<uint32_t>(shape.filters), static_cast<uint32_t>(Area(shape.output)),
                      static_cast<uint32_t>(parts), shape.relu, products, bias, residual, out);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::Status LoadDirectConv(int ordinal) { return LoadKernel(ordinal, DirectConv); }

absl::Status SubmitDirectConv(cudaStream_t stream, const ConvShape& shape, const float* input, const float* weights,
                              const float* bias, const float* residual, float* out) {
  const int64_t count = OutputCount(shape);
  LaunchAfterPrevious(DirectConv, BlocksFor(count), kBlockThreads, stream, shape, count, input, weights, bias, residual,
                      out);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

}  // namespace sluice::gpu::cuda
