// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_activation.cuh"
#include "gpu/kernels/cuda_few_rows.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_wait.cuh"

namespace sluice::gpu::cuda {
namespace {

constexpr int kWarps = static_cast<int>(kBlockThreads) / kWarp;
constexpr int kInFlight = 8;  // Loads of B that a thread has in flight: together they hide the memory's latency.
constexpr int kPackBytes = 16;

template <class T>
constexpr int kPackOf = kPackBytes / static_cast<int>(sizeof(T));

/// B is read once: it must not push A, which every block reads, out of the first-level cache. The second level keeps
/// it, where the weights of a small model stay from request to request.
template <class T, int pack>
__device__ Pack<T, pack> LoadPassing(const Pack<T, pack>* from) {
  Pack<T, pack> value;
  if constexpr (sizeof(value) == kPackBytes) {
    uint4 bits;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
    memcpy(&value, &bits, sizeof(value));
  } else if constexpr (sizeof(value) == sizeof(uint32_t)) {
    uint32_t bits;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(bits) : "l"(from));
    memcpy(&value, &bits, sizeof(value));
  } else {
    static_assert(sizeof(value) == sizeof(uint16_t));
    uint16_t bits;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(bits) : "l"(from));
    memcpy(&value, &bits, sizeof(value));
  }
  return value;
}

template <class T, int pack>
__device__ float AddProduct(const Pack<T, pack>& x, const Pack<T, pack>& y, float sum) {
#pragma unroll
  for (int k = 0; k < pack; ++k) {
    sum = fmaf(static_cast<float>(x.values[k]), static_cast<float>(y.values[k]), sum);
  }
  return sum;
}

/// A block of kWarps warps computes kWarps / parts columns. `pack` divides the depth, so that every column of B and row
/// of A begins where a pack may.
template <class T, int pack, int rows>
__global__ void __launch_bounds__(kBlockThreads) FewRows(const __grid_constant__ FewRowsProduct product, const T* a,
                                                         const T* b, const T* c, const T* residual, T* out) {
  WaitForPrevious();
  using Unit = Pack<T, pack>;
  __shared__ float partial[kWarps][rows];
  const int parts = product.parts;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int part = warp % parts;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * (kWarps / parts) + warp / parts;
  const int count = static_cast<int>(product.depth / pack);
  const bool inside = column < product.columns;
  float sums[rows] = {};
  if (inside) {
    const auto* inputs = reinterpret_cast<const Unit*>(a);
    const Unit* weights = reinterpret_cast<const Unit*>(b) + column * count;
    const int step = parts * kWarp;
    for (int64_t first = part * kWarp + lane; first < count; first += static_cast<int64_t>(kInFlight) * step) {
      Unit loaded[kInFlight] = {};
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step < count) loaded[i] = LoadPassing(weights + first + i * step);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step >= count) continue;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          sums[r] = AddProduct(loaded[i], inputs[static_cast<int64_t>(r) * count + first + i * step], sums[r]);
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
  const int64_t at = lane * product.columns + column;
  float value = product.alpha * sum;
  if (c != nullptr) {
    value += product.beta * static_cast<float>(c[lane * product.c_row + column * product.c_column]);
  }
  if (residual != nullptr) value += static_cast<float>(residual[at]);
  out[at] = static_cast<T>(Activate(product.activation, value));
}

/// Calls body with the type, its pack for `depth` and the rows as compile-time numbers.
template <class Body>
absl::Status WithFewRows(DataType type, int64_t depth, int64_t rows, const Body& body) {
  const auto with_rows = [&](auto tag, auto pack) {
    const auto with = [&]<int r>(std::integral_constant<int, r>) {
      return body(FewRows<decltype(tag), decltype(pack)::value, r>, tag);
    };
    if (rows == 1) return with(std::integral_constant<int, 1>{});
    if (rows == 2) return with(std::integral_constant<int, 2>{});
    if (rows == 3) return with(std::integral_constant<int, 3>{});
    return with(std::integral_constant<int, 4>{});
  };
  const auto with_pack = [&](auto tag) {
    using T = decltype(tag);
    if (depth % kPackOf<T> == 0) return with_rows(tag, std::integral_constant<int, kPackOf<T>>{});
    return with_rows(tag, std::integral_constant<int, 1>{});
  };
  return DispatchHalf(type, with_pack, [&] { return with_pack(float{}); });
}

/// Enough warps for eight on each multiprocessor, as long as each thread keeps a few loads.
int PartsOf(const FewRowsProduct& product, int multiprocessors) {
  constexpr int64_t kLeastLoads = 4;
  const auto pack = static_cast<int64_t>(kPackBytes / ElementBytes(product.type));
  const int64_t loads = product.depth % pack == 0 ? product.depth / pack : product.depth;
  int parts = 1;
  while (parts < kWarps && product.columns * parts < int64_t{kWarps} * multiprocessors &&
         loads > kLeastLoads * kWarp * parts) {
    parts *= 2;
  }
  return parts;
}

}  // namespace

bool TakesFewRows(const MatMulOperands& operands) {
  const MatMulShape& shape = operands.shape;
  return shape.batch_rank == 0 && shape.batches == 1 && operands.transpose_b && !operands.transpose_a &&
         shape.rows <= kMaxFewRows && shape.depth <= std::numeric_limits<int32_t>::max();
}

FewRowsProduct MakeFewRows(const MatMulOperands& operands, int multiprocessors) {
  const MatMulShape& shape = operands.shape;
  FewRowsProduct product;
  product.type = operands.type;
  product.rows = shape.rows;
  product.columns = shape.columns;
  product.depth = shape.depth;
  product.c_row = shape.c_row;
  product.c_column = shape.c_column;
  product.alpha = shape.alpha;
  product.beta = shape.beta;
  if (shape.relu) product.activation.kind = Activation::kRelu;
  product.parts = PartsOf(product, multiprocessors);
  return product;
}

absl::Status LoadFewRows(int ordinal, DataType type) {
  for (const int64_t depth : {1, kPackBytes}) {  // Without packs and with them.
    for (int64_t rows = 1; rows <= kMaxFewRows; ++rows) {
      SLUICE_RETURN_IF_ERROR(
          WithFewRows(type, depth, rows, [&](auto kernel, auto) { return LoadKernel(ordinal, kernel); }));
    }
  }
  return absl::OkStatus();
}

absl::Status SubmitFewRows(cudaStream_t stream, const FewRowsProduct& product, const void* a, const void* b,
                           const void* c, const void* residual, void* out) {
  const int64_t per_block = kWarps / product.parts;
  const auto blocks = static_cast<unsigned>((product.columns + per_block - 1) / per_block);
  return WithFewRows(product.type, product.depth, product.rows, [&](auto kernel, auto tag) {
    using T = decltype(tag);
    LaunchAfterPrevious(kernel, blocks, kBlockThreads, stream, product, static_cast<const T*>(a),
                        static_cast<const T*>(b), static_cast<const T*>(c), static_cast<const T*>(residual),
                        static_cast<T*>(out));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

}  // namespace sluice::gpu::cuda
