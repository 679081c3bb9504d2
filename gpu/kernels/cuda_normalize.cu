// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Softmax and batch normalisation. Each row is walked by the threads of a warp or a block, which join their totals;
// sums are kept in double. Input and output may be the same memory: a row is written after all of it was read for the
// last total, and each thread then writes only what it reads itself.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

/// [outer, length, inner] with the threads of each row.
struct RowShape {
  int64_t rows = 0;  ///< outer * inner
  int64_t length = 0;
  int64_t inner = 1;
  Divider inner_divider;
  int width = 1;
};

/// What one element becomes, given its row's totals.
template <class C>
__device__ C SoftmaxOf(C x, C largest, double sum, bool log, C shift) {
  if (log) return x - largest - shift;
  return static_cast<C>(static_cast<double>(exp(x - largest)) / sum);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    SoftmaxRows(const __grid_constant__ RowShape shape, bool log_of, const T* input, T* output) {
  WaitForPrevious();
  using C = Compute<T>;
  __shared__ C largest_shared[kWarp];
  __shared__ double sum_shared[kWarp];
  const int each = static_cast<int>(blockDim.x) / shape.width;
  const int lane = static_cast<int>(threadIdx.x) % shape.width;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * each; first < shape.rows;
       first += static_cast<int64_t>(gridDim.x) * each) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / shape.width;
    const int64_t length = row < shape.rows ? shape.length : 0;  // threads without a row take part in the joins
    int64_t column;
    const int64_t outer = shape.inner_divider.Divide(row, column);
    const int64_t start = outer * shape.length * shape.inner + column;
    C largest = kLowest<C>;
    for (int64_t k = lane; k < length; k += shape.width)
      largest = Larger{}(largest, static_cast<C>(input[start + k * shape.inner]));
    largest = JoinGroup(largest, shape.width, largest_shared, Larger{});
    double sum = 0;
    for (int64_t k = lane; k < length; k += shape.width) {
      sum += static_cast<double>(exp(static_cast<C>(input[start + k * shape.inner]) - largest));
    }
    sum = JoinGroup(sum, shape.width, sum_shared, Sum{});
    const C shift = log_of ? static_cast<C>(log(sum)) : C(0);
    for (int64_t k = lane; k < length; k += shape.width) {
      const int64_t i = start + k * shape.inner;
      output[i] = static_cast<T>(SoftmaxOf(static_cast<C>(input[i]), largest, sum, log_of, shift));
    }
  }
}

constexpr int kColumnThreads = 8;  // that share a column

/// Joins the values of the threads that share a column.
template <class T, class Join>
__device__ T JoinColumn(T value, T (&shared)[kColumnThreads][kWarp], int x, int y, const Join& join) {
  __syncthreads();  // an earlier call's values have been read
  shared[y][x] = value;
  __syncthreads();
  value = shared[0][x];
  for (int k = 1; k < kColumnThreads; ++k) value = join(value, shared[k][x]);
  return value;
}

/// kWarp neighbouring columns for every block.
template <class T>
__global__ void SoftmaxColumns(const __grid_constant__ RowShape shape, Divider strips, int64_t blocks, bool log_of,
                               const T* input, T* output) {
  WaitForPrevious();
  using C = Compute<T>;
  __shared__ C largest_shared[kColumnThreads][kWarp];
  __shared__ double sum_shared[kColumnThreads][kWarp];
  const int x = static_cast<int>(threadIdx.x) % kWarp;
  const int y = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    int64_t strip;
    const int64_t outer = strips.Divide(block, strip);
    const int64_t column = strip * kWarp + x;
    const int64_t length = column < shape.inner ? shape.length : 0;
    const int64_t start = outer * shape.length * shape.inner + column;
    C largest = kLowest<C>;
    for (int64_t k = y; k < length; k += kColumnThreads)
      largest = Larger{}(largest, static_cast<C>(input[start + k * shape.inner]));
    largest = JoinColumn(largest, largest_shared, x, y, Larger{});
    double sum = 0;
    for (int64_t k = y; k < length; k += kColumnThreads) {
      sum += static_cast<double>(exp(static_cast<C>(input[start + k * shape.inner]) - largest));
    }
    sum = JoinColumn(sum, sum_shared, x, y, Sum{});
    const C shift = log_of ? static_cast<C>(log(sum)) : C(0);
    for (int64_t k = y; k < length; k += kColumnThreads) {
      const int64_t i = start + k * shape.inner;
      output[i] = static_cast<T>(SoftmaxOf(static_cast<C>(input[i]), largest, sum, log_of, shift));
    }
  }
}

template <class T>
PreparedKernel MakeSoftmax(int ordinal, std::string name, const AxisGeometry& geometry, bool log) {
  constexpr int64_t kLeastInner = 16;  // fewer columns would leave most of a warp idle
  RowShape shape;
  shape.rows = geometry.outer * geometry.inner;
  shape.length = geometry.length;
  shape.inner = geometry.inner;
  const size_t size_bytes = BytesOf<T>(shape.rows * shape.length);
  if (size_bytes == 0) return MakeEmptyKernel(std::move(name), {0, 0});
  shape.inner_divider = Divider(shape.inner);
  if (shape.inner >= kLeastInner) {
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, SoftmaxColumns<T>));
    const int64_t strips = (shape.inner + kWarp - 1) / kWarp;
    return MakeLaunchKernel(std::move(name), {size_bytes, size_bytes},
                            [shape, divider = Divider(strips), blocks = geometry.outer * strips, log](
                                cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                              const auto grid = static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 16));
                              LaunchAfterPrevious(SoftmaxColumns<T>, grid, kWarp * kColumnThreads, stream, shape,
                                                  divider, blocks, log, Elements<const T>(args, 0),
                                                  Elements<T>(args, 1));
                              return SLUICE_CUDA_STATUS(cudaGetLastError());
                            });
  }
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, SoftmaxRows<T>));
  const RowThreads threads = RowThreadsFor(shape.length);
  shape.width = threads.width;
  return MakeLaunchKernel(std::move(name), {size_bytes, size_bytes},
                          [shape, threads, log](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            LaunchAfterPrevious(SoftmaxRows<T>, RowBlocks(shape.rows, threads),
                                                static_cast<unsigned>(threads.block), stream, shape, log,
                                                Elements<const T>(args, 0), Elements<T>(args, 1));
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

struct BatchNormShape {
  int64_t count = 0;
  Divider area;
  Divider channels;
  float epsilon = 0;
  bool relu = false;
};

/// kEach neighbouring elements, which have one channel, for every thread.
template <int kEach>
__global__ void BatchNorm(const __grid_constant__ BatchNormShape shape, const float* input, const float* scale,
                          const float* bias, const float* mean, const float* variance, float* output) {
  WaitForPrevious();
  for (int64_t unit = GridThread(); unit < shape.count / kEach; unit += GridStep()) {
    int64_t rest, c;
    shape.channels.Divide(shape.area.Divide(unit * kEach, rest), c);
    const float factor = scale[c] / sqrtf(variance[c] + shape.epsilon);
    const float center = mean[c], shift = bias[c];
    struct alignas(sizeof(float) * kEach) Unit {
      float values[kEach];
    };
    Unit values = reinterpret_cast<const Unit*>(input)[unit];
#pragma unroll
    for (float& value : values.values) {
      value = (value - center) * factor + shift;
      if (shape.relu && value < 0.0f) value = 0.0f;
    }
    reinterpret_cast<Unit*>(output)[unit] = values;
  }
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareSoftmax(const SoftmaxDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeAxisGeometry(description.dims, description.axis));
  const std::string name = absl::StrCat(description.log ? "log softmax " : "softmax ", DimsToString(description.dims),
                                        " over ", geometry.axis);
  const auto prepare = [&](auto tag) { return MakeSoftmax<decltype(tag)>(ordinal_, name, geometry, description.log); };
  return DispatchHalf(description.type, prepare,
                      [&] { return DispatchType(Backend::kCuda, FloatTypes{}, description.type, "softmax", prepare); });
}

PreparedKernel CudaKernelLibrary::PrepareBatchNorm(const BatchNormDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeBatchNormGeometry(description));
  std::string name = absl::StrCat("batch norm ", DimsToString(description.input));
  BatchNormShape shape;
  shape.count = geometry.outer * geometry.length * geometry.inner;
  const size_t size_bytes = BytesOf<float>(shape.count), channel_bytes = BytesOf<float>(geometry.length);
  std::vector<size_t> span_bytes = {size_bytes, channel_bytes, channel_bytes, channel_bytes, channel_bytes, size_bytes};
  if (shape.count == 0) return MakeEmptyKernel(std::move(name), std::move(span_bytes));
  shape.area = Divider(geometry.inner);
  shape.channels = Divider(geometry.length);
  shape.epsilon = description.epsilon;
  shape.relu = description.activation == Activation::kRelu;
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, BatchNorm<1>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, BatchNorm<4>));
  return MakeLaunchKernel(
      std::move(name), std::move(span_bytes),
      [shape, even = geometry.inner % 4 == 0](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        const float* input = Elements<const float>(args, 0);
        const float* scale = Elements<const float>(args, 1);
        const float* bias = Elements<const float>(args, 2);
        const float* mean = Elements<const float>(args, 3);
        const float* variance = Elements<const float>(args, 4);
        float* output = Elements<float>(args, 5);
        if (even && IsAligned(input, sizeof(Pack<float>)) && IsAligned(output, sizeof(Pack<float>))) {
          LaunchAfterPrevious(BatchNorm<4>, BlocksFor(shape.count / 4), kBlockThreads, stream, shape, input, scale,
                              bias, mean, variance, output);
        } else {
          LaunchAfterPrevious(BatchNorm<1>, BlocksFor(shape.count), kBlockThreads, stream, shape, input, scale, bias,
                              mean, variance, output);
        }
        return SLUICE_CUDA_STATUS(cudaGetLastError());
      });
}

}  // namespace sluice::gpu::cuda
