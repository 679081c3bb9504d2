// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_activation.cuh"
#include "gpu/kernels/cuda_conv_half_kernels.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"

namespace sluice::gpu::cuda {
namespace {

constexpr int kPack = 8;  // Neighbouring channels of one thread, where their number allows: 16 bytes.

/// Where one output element begins in its image.
struct Place {
  int64_t image, y0, x0;
};
__device__ Place PlaceOf(const ConvShape& shape, const Divider& height, const Divider& width, int64_t pixel) {
  int64_t x, y;
  const int64_t rows = width.Divide(pixel, x);
  const int64_t image = height.Divide(rows, y);
  return {image, y * shape.strides[1] - shape.pads_begin[1], x * shape.strides[2] - shape.pads_begin[2]};
}

template <class T, int kEach>
__global__ void __launch_bounds__(kBlockThreads)
    Depthwise(const __grid_constant__ ConvShape shape, SumActivation activation, Divider height, Divider width,
              Divider groups, int64_t count, const T* input, const T* weights, const T* bias, const T* residual,
              T* out) {
  WaitForPrevious();
  using Unit = Pack<T, kEach>;
  const int64_t units = shape.channels / kEach;
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t unit;
    const int64_t pixel = groups.Divide(i, unit);
    const Place place = PlaceOf(shape, height, width, pixel);
    const auto* image = reinterpret_cast<const Unit*>(input) + place.image * shape.input[1] * shape.input[2] * units;
    float sums[kEach];
    const Unit start = reinterpret_cast<const Unit*>(bias)[unit];
#pragma unroll
    for (int k = 0; k < kEach; ++k) sums[k] = static_cast<float>(start.values[k]);
    for (int64_t ky = 0; ky < shape.kernel[1]; ++ky) {
      const int64_t y = place.y0 + ky * shape.dilations[1];
      if (y < 0 || y >= shape.input[1]) continue;
      for (int64_t kx = 0; kx < shape.kernel[2]; ++kx) {
        const int64_t x = place.x0 + kx * shape.dilations[2];
        if (x < 0 || x >= shape.input[2]) continue;
        const Unit value = image[(y * shape.input[2] + x) * units + unit];
        const Unit weight = reinterpret_cast<const Unit*>(weights)[(ky * shape.kernel[2] + kx) * units + unit];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          sums[k] = fmaf(static_cast<float>(value.values[k]), static_cast<float>(weight.values[k]), sums[k]);
        }
      }
    }
    Unit result;
    Unit added = {};
    if (residual != nullptr) added = reinterpret_cast<const Unit*>(residual)[i];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      result.values[k] = static_cast<T>(Activate(activation, sums[k] + static_cast<float>(added.values[k])));
    }
    reinterpret_cast<Unit*>(out)[i] = result;
  }
}

/// The same for square kernels without dilation: a thread makes kWide neighbouring places of a row in kPack channels,
/// so that a weight is loaded once for all of them and an input once for all the windows it lies in. 32-bit indices.
constexpr int kWide = 4;
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kBlockThreads)
    DepthwiseWide(const __grid_constant__ ConvShape shape, SumActivation activation, Divider height, Divider strips,
                  Divider groups, int64_t count, const T* input, const T* weights, const T* bias, const T* residual,
                  T* out) {
  WaitForPrevious();
  using Unit = Pack<T, kPack>;
  constexpr int kColumns = (kWide - 1) * kStride + kKernel;
  const int units = static_cast<int>(shape.channels / kPack);
  const int in_height = static_cast<int>(shape.input[1]), in_width = static_cast<int>(shape.input[2]);
  const int out_width = static_cast<int>(shape.output[2]);
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t unit, strip, row;
    const int64_t image = height.Divide(strips.Divide(groups.Divide(i, unit), strip), row);
    const int y0 = static_cast<int>(row) * kStride - static_cast<int>(shape.pads_begin[1]);
    const int first = static_cast<int>(strip) * kWide;
    const int x0 = first * kStride - static_cast<int>(shape.pads_begin[2]);
    const auto* const from = reinterpret_cast<const Unit*>(input) + image * in_height * in_width * units + unit;
    float sums[kWide][kPack];
    const Unit start = reinterpret_cast<const Unit*>(bias)[unit];
#pragma unroll
    for (int o = 0; o < kWide; ++o) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[o][k] = static_cast<float>(start.values[k]);
    }
    for (int ky = 0; ky < kKernel; ++ky) {
      const int y = y0 + ky;
      if (y < 0 || y >= in_height) continue;
      Unit taps[kKernel];
#pragma unroll
      for (int kx = 0; kx < kKernel; ++kx) {
        taps[kx] = reinterpret_cast<const Unit*>(weights)[(ky * kKernel + kx) * units + unit];
      }
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        const int x = x0 + column;
        if (x < 0 || x >= in_width) continue;
        const Unit value = from[static_cast<int64_t>(y * in_width + x) * units];
#pragma unroll
        for (int o = 0; o < kWide; ++o) {
          const int kx = column - o * kStride;
          if (kx < 0 || kx >= kKernel) continue;
#pragma unroll
          for (int k = 0; k < kPack; ++k) {
            sums[o][k] = fmaf(static_cast<float>(value.values[k]), static_cast<float>(taps[kx].values[k]), sums[o][k]);
          }
        }
      }
    }
    const int64_t place = (image * shape.output[1] + row) * out_width + first;
#pragma unroll
    for (int o = 0; o < kWide; ++o) {
      if (first + o >= out_width) continue;
      const int64_t at = (place + o) * units + unit;
      Unit added = {};
      if (residual != nullptr) added = reinterpret_cast<const Unit*>(residual)[at];
      Unit result;
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        result.values[k] = static_cast<T>(Activate(activation, sums[o][k] + static_cast<float>(added.values[k])));
      }
      reinterpret_cast<Unit*>(out)[at] = result;
    }
  }
}

template <class T>
__global__ void DirectHalf(const __grid_constant__ ConvShape shape, SumActivation activation, Divider height,
                           Divider width, Divider filters, int64_t count, const T* input, const T* weights,
                           const T* bias, const T* residual, T* out) {
  WaitForPrevious();
  const int64_t group_channels = shape.channels / shape.groups, group_filters = shape.filters / shape.groups;
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t filter;
    const int64_t pixel = filters.Divide(i, filter);
    const Place place = PlaceOf(shape, height, width, pixel);
    const T* image = input + place.image * shape.input[1] * shape.input[2] * shape.channels +
                     filter / group_filters * group_channels;
    const T* weight = weights + filter * shape.kernel[1] * shape.kernel[2] * group_channels;
    float sum = static_cast<float>(bias[filter]);
    for (int64_t ky = 0; ky < shape.kernel[1]; ++ky) {
      const int64_t y = place.y0 + ky * shape.dilations[1];
      for (int64_t kx = 0; kx < shape.kernel[2]; ++kx, weight += group_channels) {
        const int64_t x = place.x0 + kx * shape.dilations[2];
        if (y < 0 || y >= shape.input[1] || x < 0 || x >= shape.input[2]) continue;
        const T* from = image + (y * shape.input[2] + x) * shape.channels;
        for (int64_t c = 0; c < group_channels; ++c) {
          sum = fmaf(static_cast<float>(from[c]), static_cast<float>(weight[c]), sum);
        }
      }
    }
    if (residual != nullptr) sum += static_cast<float>(residual[i]);
    out[i] = static_cast<T>(Activate(activation, sum));
  }
}

template <class T>
__global__ void Image(int64_t area, Divider areas, int64_t count, int channels, const float* input, T* image) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t place;
    const int64_t n = areas.Divide(i, place);
    for (int c = 0; c < channels; ++c) {
      image[i * channels + c] = static_cast<T>(input[(n * channels + c) * area + place]);
    }
  }
}

/// A thread makes kPack neighbouring numbers of a row; `pieces` of them are a row.
template <class T>
__global__ void ImageColumns(const __grid_constant__ ConvShape shape, Divider height, Divider width, Divider pieces,
                             int64_t count, const float* input, Pack<T, kPack>* rows) {
  WaitForPrevious();
  const int channels = static_cast<int>(shape.channels);
  const int kernel_y = static_cast<int>(shape.kernel[1]), kernel_x = static_cast<int>(shape.kernel[2]);
  const int64_t area = shape.input[1] * shape.input[2];
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t piece;
    const Place place = PlaceOf(shape, height, width, pieces.Divide(i, piece));
    const float* const image = input + place.image * channels * area;
    const int first = static_cast<int>(piece) * kPack;
    int tap = first / channels, c = first - tap * channels;
    int ky = tap / kernel_x, kx = tap - ky * kernel_x;
    Pack<T, kPack> unit = {};
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const int64_t y = place.y0 + ky * shape.dilations[1], x = place.x0 + kx * shape.dilations[2];
      if (ky < kernel_y && y >= 0 && y < shape.input[1] && x >= 0 && x < shape.input[2]) {
        unit.values[k] = static_cast<T>(image[c * area + y * shape.input[2] + x]);
      }
      if (++c < channels) continue;
      c = 0;
      if (++kx < kernel_x) continue;
      kx = 0;
      ++ky;
    }
    rows[i] = unit;
  }
}

/// `units` of 16 bytes are a place's channels.
__global__ void UnfoldHalf(const __grid_constant__ ConvShape shape, Divider height, Divider width, Divider kernel,
                           Divider kernel_width, Divider unit_divider, int64_t units, int64_t count, const uint4* input,
                           uint4* rows) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t unit, tap, kx;
    int64_t rest = unit_divider.Divide(i, unit);
    const int64_t pixel = kernel.Divide(rest, tap);
    const int64_t ky = kernel_width.Divide(tap, kx);
    const Place place = PlaceOf(shape, height, width, pixel);
    const int64_t y = place.y0 + ky * shape.dilations[1], x = place.x0 + kx * shape.dilations[2];
    const bool inside = y >= 0 && y < shape.input[1] && x >= 0 && x < shape.input[2];
    rows[i] = inside ? input[((place.image * shape.input[1] + y) * shape.input[2] + x) * units + unit] : uint4{};
  }
}

template <class T, int kEach>
__global__ void ActivateAll(SumActivation activation, int64_t count, T* out) {
  WaitForPrevious();
  using Unit = Pack<T, kEach>;
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    Unit unit = reinterpret_cast<const Unit*>(out)[i];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      unit.values[k] = static_cast<T>(Activate(activation, static_cast<float>(unit.values[k])));
    }
    reinterpret_cast<Unit*>(out)[i] = unit;
  }
}

template <class Body>
absl::Status WithHalf(DataType type, const Body& body) {
  return DispatchHalf(type, body, [] { return absl::InternalError("not a half"); });
}

template <class T, int kEach>
absl::Status LaunchDepthwise(cudaStream_t stream, const ConvShape& shape, const SumActivation& activation,
                             const void* input, const void* weights, const void* bias, const void* residual,
                             void* out) {
  const int64_t units = shape.channels / kEach;
  const int64_t count = shape.batch * shape.output[1] * shape.output[2] * units;
  LaunchAfterPrevious(Depthwise<T, kEach>, BlocksFor(count), kBlockThreads, stream, shape, activation,
                      Divider(shape.output[1]), Divider(shape.output[2]), Divider(units), count,
                      static_cast<const T*>(input), static_cast<const T*>(weights), static_cast<const T*>(bias),
                      static_cast<const T*>(residual), static_cast<T*>(out));
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

/// The wide kernel for a shape; null when it has none.
template <class T>
auto WideFor(const ConvShape& shape) -> decltype(&DepthwiseWide<T, 3, 1>) {
  const int64_t kernel = shape.kernel[1], stride = shape.strides[1];
  constexpr int64_t kMostPlaces = 1 << 30;
  if (shape.channels % kPack != 0 || shape.kernel[2] != kernel || shape.strides[2] != stride ||
      shape.dilations[1] != 1 || shape.dilations[2] != 1 || shape.input[1] * shape.input[2] > kMostPlaces) {
    return nullptr;
  }
  if (kernel == 3 && stride == 1) return DepthwiseWide<T, 3, 1>;
  if (kernel == 3 && stride == 2) return DepthwiseWide<T, 3, 2>;
  if (kernel == 5 && stride == 1) return DepthwiseWide<T, 5, 1>;
  if (kernel == 5 && stride == 2) return DepthwiseWide<T, 5, 2>;
  return nullptr;
}

}  // namespace

absl::Status LoadImage(int ordinal, DataType type) {
  return WithHalf(type, [&](auto tag) {
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, ImageColumns<decltype(tag)>));
    return LoadKernel(ordinal, Image<decltype(tag)>);
  });
}

absl::Status SubmitImage(cudaStream_t stream, DataType type, const ConvShape& shape, const float* input, void* image) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    const int64_t area = shape.input[1] * shape.input[2], count = shape.batch * area;
    LaunchAfterPrevious(Image<T>, BlocksFor(count), kBlockThreads, stream, area, Divider(area), count,
                        static_cast<int>(shape.channels), input, static_cast<T*>(image));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

absl::Status SubmitImageColumns(cudaStream_t stream, DataType type, const ConvShape& shape, int64_t depth,
                                const float* input, void* rows) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    const int64_t pieces = depth / kPack, count = shape.batch * shape.output[1] * shape.output[2] * pieces;
    LaunchAfterPrevious(ImageColumns<T>, BlocksFor(count), kBlockThreads, stream, shape, Divider(shape.output[1]),
                        Divider(shape.output[2]), Divider(pieces), count, input, static_cast<Pack<T, kPack>*>(rows));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

absl::Status LoadUnfoldHalf(int ordinal) { return LoadKernel(ordinal, UnfoldHalf); }

absl::Status SubmitUnfoldHalf(cudaStream_t stream, const ConvShape& shape, const void* input, void* rows) {
  const int64_t units = shape.channels / kUnfoldChannels, kernel = shape.kernel[1] * shape.kernel[2];
  const int64_t count = shape.batch * shape.output[1] * shape.output[2] * kernel * units;
  LaunchAfterPrevious(UnfoldHalf, BlocksFor(count), kBlockThreads, stream, shape, Divider(shape.output[1]),
                      Divider(shape.output[2]), Divider(kernel), Divider(shape.kernel[2]), Divider(units), units, count,
                      static_cast<const uint4*>(input), static_cast<uint4*>(rows));
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

absl::Status LoadDepthwise(int ordinal, DataType type) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, DepthwiseWide<T, 3, 1>));
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, DepthwiseWide<T, 3, 2>));
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, DepthwiseWide<T, 5, 1>));
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, DepthwiseWide<T, 5, 2>));
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Depthwise<T, 1>));
    return LoadKernel(ordinal, Depthwise<T, kPack>);
  });
}

absl::Status SubmitDepthwise(cudaStream_t stream, DataType type, const ConvShape& shape,
                             const SumActivation& activation, const void* input, const void* weights, const void* bias,
                             const void* residual, void* out) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    // Few places keep more multiprocessors busy one by one.
    constexpr int64_t kManyThreads = 32768;
    const int64_t strips = (shape.output[2] + kWide - 1) / kWide;
    const int64_t count = shape.batch * shape.output[1] * strips * (shape.channels / kPack);
    if (const auto wide = WideFor<T>(shape); wide != nullptr && count >= kManyThreads) {
      LaunchAfterPrevious(wide, BlocksFor(count), kBlockThreads, stream, shape, activation, Divider(shape.output[1]),
                          Divider(strips), Divider(shape.channels / kPack), count, static_cast<const T*>(input),
                          static_cast<const T*>(weights), static_cast<const T*>(bias), static_cast<const T*>(residual),
                          static_cast<T*>(out));
      return SLUICE_CUDA_STATUS(cudaGetLastError());
    }
    const auto launch = shape.channels % kPack == 0 ? LaunchDepthwise<T, kPack> : LaunchDepthwise<T, 1>;
    return launch(stream, shape, activation, input, weights, bias, residual, out);
  });
}

absl::Status LoadDirectHalf(int ordinal, DataType type) {
  return WithHalf(type, [&](auto tag) { return LoadKernel(ordinal, DirectHalf<decltype(tag)>); });
}

absl::Status SubmitDirectHalf(cudaStream_t stream, DataType type, const ConvShape& shape,
                              const SumActivation& activation, const void* input, const void* weights, const void* bias,
                              const void* residual, void* out) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    const int64_t count = shape.batch * shape.output[1] * shape.output[2] * shape.filters;
    LaunchAfterPrevious(DirectHalf<T>, BlocksFor(count), kBlockThreads, stream, shape, activation,
                        Divider(shape.output[1]), Divider(shape.output[2]), Divider(shape.filters), count,
                        static_cast<const T*>(input), static_cast<const T*>(weights), static_cast<const T*>(bias),
                        static_cast<const T*>(residual), static_cast<T*>(out));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

absl::Status LoadHalfActivation(int ordinal, DataType type) {
  return WithHalf(type, [&](auto tag) {
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, ActivateAll<decltype(tag), 1>));
    return LoadKernel(ordinal, ActivateAll<decltype(tag), kPack>);
  });
}

absl::Status SubmitHalfActivation(cudaStream_t stream, DataType type, const SumActivation& activation, int64_t count,
                                  void* out) {
  return WithHalf(type, [&](auto tag) {
    using T = decltype(tag);
    if (count % kPack == 0) {
      LaunchAfterPrevious(ActivateAll<T, kPack>, BlocksFor(count / kPack), kBlockThreads, stream, activation,
                          count / kPack, static_cast<T*>(out));
    } else {
      LaunchAfterPrevious(ActivateAll<T, 1>, BlocksFor(count), kBlockThreads, stream, activation, count,
                          static_cast<T*>(out));
    }
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

}  // namespace sluice::gpu::cuda
