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

constexpr int kWarp = 32;
constexpr int kWarps = static_cast<int>(kBlockThreads) / kWarp;
constexpr int kInFlight = 8;  // Loads of B that a thread has in flight: together they hide the memory's latency.
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

/// B is read once: it must not push A, which every block reads, out of the first-level cache. The second level keeps
/// it, where the weights of a small model stay from request to request.
__device__ float4 LoadPassing(const float4* from) {
  float4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from));
  return value;
}
__device__ float LoadPassing(const float* from) {
  float value;
  asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
__device__ void SetZero(float4& value) { value = make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
__device__ void SetZero(float& value) { value = 0.0f; }
__device__ float AddProduct(float4 x, float4 y, float sum) {
  return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}
__device__ float AddProduct(float x, float y, float sum) { return fmaf(x, y, sum); }

/// A block of kWarps warps computes kWarps / parts columns; `parts` warps share one column's depth. Vec is float4 when
/// the depth is a multiple of 4, so that every column of B and row of A begins on 16 bytes.
template <int rows, class Vec>
__global__ void __launch_bounds__(kBlockThreads)
    FewRows(MatMulShape shape, int parts, const Vec* a, const Vec* b, const float* c, float* out) {
  WaitForPrevious();
  __shared__ float partial[kWarps][rows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int part = warp % parts;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * (kWarps / parts) + warp / parts;
  const int count = static_cast<int>(shape.depth / static_cast<int64_t>(sizeof(Vec) / sizeof(float)));
  const bool inside = column < shape.columns;
  float sums[rows] = {};
  if (inside) {
    const Vec* weights = b + column * count;
    const int step = parts * kWarp;
    for (int64_t first = part * kWarp + lane; first < count; first += static_cast<int64_t>(kInFlight) * step) {
      Vec loaded[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step < count) {
          loaded[i] = LoadPassing(weights + first + i * step);
        } else {
          SetZero(loaded[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step >= count) continue;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          sums[r] = AddProduct(loaded[i], a[static_cast<int64_t>(r) * count + first + i * step], sums[r]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], distance);
    }
    if (lane == 0) partial[warp][r] = sums[r];
  }
  __syncthreads();
  if (!inside || part != 0 || lane >= rows) return;
  float sum = 0.0f;
  for (int p = 0; p < parts; ++p) sum += partial[warp + p][lane];
  float value = shape.alpha * sum;
  if (c != nullptr) value += shape.beta * c[lane * shape.c_row + column * shape.c_column];
  if (shape.relu && value < 0.0f) value = 0.0f;
  out[lane * shape.columns + column] = value;
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

template <int rows, class Vec>
absl::Status LaunchFewRows(cudaStream_t stream, const MatMulShape& shape, int parts, const float* a, const float* b,
                           const float* c, float* out) {
  const int64_t per_block = kWarps / parts;
  const auto blocks = static_cast<unsigned>((shape.columns + per_block - 1) / per_block);
  LaunchAfterPrevious(FewRows<rows, Vec>, blocks, kBlockThreads, stream, shape, parts, reinterpret_cast<const Vec*>(a),
                      reinterpret_cast<const Vec*>(b), c, out);
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

template <class Vec>
absl::Status DispatchFewRows(cudaStream_t stream, const MatMulShape& shape, int parts, const float* a, const float* b,
                             const float* c, float* out) {
  switch (shape.rows) {
    case 1:
      return LaunchFewRows<1, Vec>(stream, shape, parts, a, b, c, out);
    case 2:
      return LaunchFewRows<2, Vec>(stream, shape, parts, a, b, c, out);
    case 3:
      return LaunchFewRows<3, Vec>(stream, shape, parts, a, b, c, out);
    default:
      return LaunchFewRows<4, Vec>(stream, shape, parts, a, b, c, out);
  }
}

}  // namespace

int FewRowsParts(const MatMulShape& shape, int multiprocessors) {
  // Enough warps for eight on each multiprocessor, as long as each thread keeps a few loads.
  constexpr int64_t kLeastLoads = 4;
  const int64_t loads = shape.depth % 4 == 0 ? shape.depth / 4 : shape.depth;
  int parts = 1;
  while (parts < kWarps && shape.columns * parts < int64_t{kWarps} * multiprocessors &&
         loads > kLeastLoads * kWarp * parts) {
    parts *= 2;
  }
  return parts;
}

absl::Status LoadFewRows(int ordinal) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<1, float4>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<2, float4>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<3, float4>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<4, float4>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<1, float>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<2, float>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, FewRows<3, float>));
  return LoadKernel(ordinal, FewRows<4, float>);
}

absl::Status SubmitFewRows(cudaStream_t stream, const MatMulShape& shape, int parts, const float* a, const float* b,
                           const float* c, float* out) {
  if (shape.depth % 4 != 0) return DispatchFewRows<float>(stream, shape, parts, a, b, c, out);
  return DispatchFewRows<float4>(stream, shape, parts, a, b, c, out);
}

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
