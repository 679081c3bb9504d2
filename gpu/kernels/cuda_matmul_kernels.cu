// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_matmul_kernels.h"
#include "gpu/kernels/cuda_wait.cuh"

namespace sluice::gpu::cuda {
namespace {

constexpr int kTile = 16;
constexpr int64_t kMaxTileBlocks = 1 << 16;

struct BatchOffsets {
  int64_t a = 0, b = 0, c = 0;
};

__device__ BatchOffsets Locate(const MatMulShape& shape, int64_t batch) {
  BatchOffsets offsets;
  for (int d = shape.batch_rank - 1; d >= 0; --d) {
    const int64_t coordinate = batch % shape.batch[d];
    batch /= shape.batch[d];
    offsets.a += coordinate * shape.a_batch[d];
    offsets.b += coordinate * shape.b_batch[d];
    offsets.c += coordinate * shape.c_batch[d];
  }
  return offsets;
}

template <class T>
__global__ void __launch_bounds__(kTile* kTile) Tiles(MatMulShape shape, const T* a, const T* b, const T* c, T* out) {
  WaitForPrevious();
  __shared__ T a_tile[kTile][kTile + 1];
  __shared__ T b_tile[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t tile_rows = (shape.rows + kTile - 1) / kTile;
  const int64_t tile_columns = (shape.columns + kTile - 1) / kTile;
  const int64_t tiles = shape.batches * tile_rows * tile_columns;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t batch = tile / tile_columns / tile_rows;
    const BatchOffsets offsets = Locate(shape, batch);
    const int64_t row = tile / tile_columns % tile_rows * kTile + y;
    const int64_t column = tile % tile_columns * kTile + x;
    T sum = T(0);
    for (int64_t k = 0; k < shape.depth; k += kTile) {
      const bool has_a = row < shape.rows && k + x < shape.depth;
      const bool has_b = column < shape.columns && k + y < shape.depth;
      a_tile[y][x] = has_a ? a[offsets.a + row * shape.a_row + (k + x) * shape.a_depth] : T(0);
      b_tile[y][x] = has_b ? b[offsets.b + (k + y) * shape.b_depth + column * shape.b_column] : T(0);
      __syncthreads();
      for (int i = 0; i < kTile; ++i) sum += a_tile[y][i] * b_tile[i][x];
      __syncthreads();
    }
    if (row >= shape.rows || column >= shape.columns) continue;
    T value = static_cast<T>(shape.alpha) * sum;
    if (c != nullptr) {
      value += static_cast<T>(shape.beta) * c[offsets.c + row * shape.c_row + column * shape.c_column];
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (shape.relu && value < T(0)) value = T(0);
    }
    out[(batch * shape.rows + row) * shape.columns + column] = value;
  }
}

template <class T>
__global__ void AddC(MatMulShape shape, int64_t parts, const float* from, const T* c, const T* residual, T* out) {
  WaitForPrevious();
  const int64_t count = shape.batches * shape.rows * shape.columns;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t column = i % shape.columns;
    const int64_t row = i / shape.columns % shape.rows;
    float value = from[i];
    for (int64_t part = 1; part < parts; ++part) value += from[part * count + i];
    if (c != nullptr) {
      const int64_t offset = Locate(shape, i / shape.columns / shape.rows).c;
      value += shape.beta * static_cast<float>(c[offset + row * shape.c_row + column * shape.c_column]);
    }
    if (residual != nullptr) value += static_cast<float>(residual[i]);
    if (shape.relu && value < 0.0f) value = 0.0f;
    out[i] = static_cast<T>(value);
  }
}

}  // namespace

template <class T>
absl::Status LoadTiles(int ordinal) {
  return LoadKernel(ordinal, Tiles<T>);
}

template <class T>
absl::Status SubmitTiles(cudaStream_t stream, const MatMulShape& shape, const T* a, const T* b, const T* c, T* out) {
  const int64_t tiles = shape.batches * ((shape.rows + kTile - 1) / kTile) * ((shape.columns + kTile - 1) / kTile);
  const auto blocks = static_cast<unsigned>(std::min(tiles, kMaxTileBlocks));
  LaunchAfterPrevious(Tiles<T>, blocks, kTile * kTile, stream, shape, a, b, c, out);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

template absl::Status LoadTiles<float>(int);
template absl::Status LoadTiles<double>(int);
template absl::Status LoadTiles<uint32_t>(int);
template absl::Status LoadTiles<uint64_t>(int);
template absl::Status SubmitTiles<float>(cudaStream_t, const MatMulShape&, const float*, const float*, const float*,
                                         float*);
template absl::Status SubmitTiles<double>(cudaStream_t, const MatMulShape&, const double*, const double*, const double*,
                                          double*);
template absl::Status SubmitTiles<uint32_t>(cudaStream_t, const MatMulShape&, const uint32_t*, const uint32_t*,
                                            const uint32_t*, uint32_t*);
template absl::Status SubmitTiles<uint64_t>(cudaStream_t, const MatMulShape&, const uint64_t*, const uint64_t*,
                                            const uint64_t*, uint64_t*);

namespace {

template <class Body>
absl::Status WithSumType(DataType type, const Body& body) {
  return DispatchHalf(type, body, [&] { return body(float{}); });
}

}  // namespace

absl::Status LoadAddC(int ordinal, DataType type) {
  return WithSumType(type, [&](auto tag) { return LoadKernel(ordinal, AddC<decltype(tag)>); });
}

absl::Status SubmitAddC(cudaStream_t stream, DataType type, const MatMulShape& shape, int64_t parts, const float* from,
                        const void* c, const void* residual, void* out) {
  return WithSumType(type, [&](auto tag) {
    using T = decltype(tag);
    LaunchAfterPrevious(AddC<T>, BlocksFor(shape.batches * shape.rows * shape.columns), kBlockThreads, stream, shape,
                        parts, from, static_cast<const T*>(c), static_cast<const T*>(residual), static_cast<T*>(out));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

}  // namespace sluice::gpu::cuda
