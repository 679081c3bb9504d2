// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Attention of FP16 and BF16 in one kernel, by the online softmax of FlashAttention (Dao et al. 2022): a block keeps
// some queries of one head in registers, walks the keys tile by tile, and corrects what it has summed so far whenever a
// larger score comes. Products run on tensor cores (mma.sync m16n8k16) and are summed in FP32.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/attention.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kKeyTile = 64;      // Keys that are in shared memory at once.
constexpr int kWarpQueries = 16;  // Rows of one mma.
constexpr int kChunk = 8;         // Halves in 16 bytes.
constexpr int64_t kMostHeadSize = 128;
constexpr int64_t kManyBlocks = 132;  // Fewer leave multiprocessors of an H200 idle, so blocks are made smaller.

enum class MaskKind : uint8_t { kNone, kNumbers, kTruths };

struct AttentionShape {
  int queries = 0, keys = 0, head_size = 0, heads = 0;
  bool causal = false;
  float scale = 1;  ///< Times log2(e).
  int64_t q_row = 0, k_row = 0, v_row = 0, out_row = 0;
  int64_t q_offset = 0, k_offset = 0, v_offset = 0;
  MaskKind mask_kind = MaskKind::kNone;
  int64_t mask_batch = 0, mask_head = 0, mask_query = 0, mask_key = 0;  ///< Steps; 0 where it is broadcast.
};

__device__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices; each thread names one row's 16 bytes.
__device__ void LoadMatrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row)));
}
__device__ void LoadMatricesTransposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row)));
}

/// sums += a b, a is 16 x 16, b 16 x 8.
template <class T>
__device__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <class T>
__device__ uint32_t PackPair(float low, float high) {
  union {
    T halves[2];
    uint32_t word;
  } pair = {{static_cast<T>(low), static_cast<T>(high)}};
  return pair.word;
}

/// Copies rows [first, first + rows) of one head into shared memory, zeros beyond the tensor and behind the head.
template <class T, int kSize, int kThreads>
__device__ void FetchTile(T (*to)[kSize + kChunk], const T* from, int64_t row_step, int first, int rows, int count,
                          int head_size) {
  constexpr int kChunks = kSize / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = i % kChunks * kChunk;
    const bool inside = first + row < count && column < head_size;
    // With a source size of 0 the copy writes zeros and reads nothing.
    const T* source = inside ? from + (first + row) * row_step + column : from;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(&to[row][column])), "l"(source),
                 "r"(inside ? 16 : 0));
  }
}
__device__ void CommitFetch() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ void WaitForFetch() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

template <class T>
__device__ float MaskAt(const AttentionShape& shape, const void* mask, int64_t offset) {
  if (shape.mask_kind == MaskKind::kTruths) {
    return static_cast<const uint8_t*>(mask)[offset] != 0 ? 0.0f : -INFINITY;
  }
  constexpr float kLog2E = 1.44269504088896340736f;
  return static_cast<float>(static_cast<const T*>(mask)[offset]) * kLog2E;
}

/// 2^x; the hardware's own instruction, within 2 units of the last place.
__device__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// What a key adds to every score: minus infinity behind the last one, and the mask where it is the same for all
/// queries.
template <class T>
__device__ float KeyBias(const AttentionShape& shape, const void* mask, int64_t mask_offset, int key) {
  if (key >= shape.keys) return -INFINITY;
  if (shape.mask_kind == MaskKind::kNone || shape.mask_query != 0) return 0.0f;
  return MaskAt<T>(shape, mask, mask_offset + key * shape.mask_key);
}

/// A block: kWarps * 16 queries (blockIdx.x) of one head (blockIdx.y) of one batch element (blockIdx.z). kSize is the
/// head size rounded up. Threads of a warp hold, of each 16 x 8 result, the rows lane / 4 and lane / 4 + 8, columns
/// lane % 4 * 2 and the next.
template <class T, int kSize, int kWarps>
// As many blocks on a multiprocessor as its shared memory holds.
__global__ void __launch_bounds__(kWarps* kWarp, kSize <= 64 && kWarps == 4 ? 4 : 1)
    Attention(const __grid_constant__ AttentionShape shape, const T* q, const T* k, const T* v, const void* mask,
              T* out) {
  WaitForPrevious();
  constexpr int kThreads = kWarps * kWarp, kBlockQueries = kWarps * kWarpQueries;
  // What fits into 48 KiB: two tiles of keys and values and the queries beside them, or one, whose place the queries
  // take first.
  constexpr bool kRoomy = kSize <= 64;
  constexpr int kStages = kRoomy ? 2 : 1;
  constexpr int kDepthSteps = kSize / 16, kKeySteps = kKeyTile / 16, kScoreTiles = kKeyTile / 8, kOutTiles = kSize / 8;
  __shared__ alignas(16) T k_tiles[kStages][kKeyTile][kSize + kChunk];
  __shared__ alignas(16) T v_tiles[kStages][kKeyTile][kSize + kChunk];
  __shared__ alignas(16) T q_tile_beside[kRoomy ? kBlockQueries : 1][kSize + kChunk];
  __shared__ alignas(8) float key_biases[kStages][kKeyTile];
  static_assert(kBlockQueries <= kKeyTile);
  auto* const q_tile = kRoomy ? q_tile_beside : k_tiles[0];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t batch = blockIdx.z, head = blockIdx.y;
  const int first_query = static_cast<int>(blockIdx.x) * kBlockQueries;
  const T* const queries = q + shape.q_offset + batch * shape.queries * shape.q_row + head * shape.head_size;
  const T* const keys = k + shape.k_offset + batch * shape.keys * shape.k_row + head * shape.head_size;
  const T* const values = v + shape.v_offset + batch * shape.keys * shape.v_row + head * shape.head_size;
  const int64_t mask_offset = batch * shape.mask_batch + head * shape.mask_head;

  // Causal: keys behind the block's last query are seen by nobody.
  const int last_query = min(first_query + kBlockQueries, shape.queries) - 1;
  const int key_count = shape.causal ? min(shape.keys, last_query + 1) : shape.keys;
  const int tiles = (key_count + kKeyTile - 1) / kKeyTile;
  const auto fetch = [&](int tile) {
    if (tile < tiles) {
      const int stage = tile % kStages, first = tile * kKeyTile;
      FetchTile<T, kSize, kThreads>(k_tiles[stage], keys, shape.k_row, first, kKeyTile, shape.keys, shape.head_size);
      FetchTile<T, kSize, kThreads>(v_tiles[stage], values, shape.v_row, first, kKeyTile, shape.keys, shape.head_size);
      for (int i = static_cast<int>(threadIdx.x); i < kKeyTile; i += kThreads) {
        key_biases[stage][i] = KeyBias<T>(shape, mask, mask_offset, first + i);
      }
    }
    CommitFetch();
  };
  FetchTile<T, kSize, kThreads>(q_tile, queries, shape.q_row, first_query, kBlockQueries, shape.queries,
                                shape.head_size);
  if constexpr (!kRoomy) {
    CommitFetch();
    WaitForFetch<0>();
  } else {
    for (int stage = 0; stage < kStages; ++stage) fetch(stage);  // The queries go with the first.
    WaitForFetch<kStages - 1>();
  }
  __syncthreads();
  uint32_t q_parts[kDepthSteps][4];
#pragma unroll
  for (int d = 0; d < kDepthSteps; ++d) {
    LoadMatrices(q_parts[d], &q_tile[warp * kWarpQueries + lane % 16][d * 16 + lane / 16 * kChunk]);
  }
  if constexpr (!kRoomy) {
    __syncthreads();
    fetch(0);
  }

  float sums[kOutTiles][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, weight_sums[2] = {};
  const int rows[2] = {first_query + warp * kWarpQueries + lane / 4, first_query + warp * kWarpQueries + lane / 4 + 8};
  for (int tile = 0; tile < tiles; ++tile) {
    WaitForFetch<kStages - 1>();
    __syncthreads();
    const auto& k_tile = k_tiles[tile % kStages];
    const auto& v_tile = v_tiles[tile % kStages];
    const auto& key_bias = key_biases[tile % kStages];
    float scores[kScoreTiles][4] = {};
#pragma unroll
    for (int d = 0; d < kDepthSteps; ++d) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        // Two tiles of eight keys, each in its two halves of the depth.
        uint32_t b[4];
        LoadMatrices(b, &k_tile[n * 8 + lane / 16 * 8 + lane % 8][d * 16 + lane / 8 % 2 * kChunk]);
        MultiplyAdd<T>(scores[n], q_parts[d], b[0], b[1]);
        MultiplyAdd<T>(scores[n + 1], q_parts[d], b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      const float2 bias = *reinterpret_cast<const float2*>(&key_bias[n * 8 + lane % 4 * 2]);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = fmaf(scores[n][i], shape.scale, i % 2 == 0 ? bias.x : bias.y);
    }
    if (shape.causal || shape.mask_query != 0) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile * kKeyTile + n * 8 + lane % 4 * 2 + i % 2, row = rows[i / 2];
          if (shape.causal && key > row) scores[n][i] = -INFINITY;
          if (shape.mask_query != 0 && key < shape.keys && row < shape.queries) {
            scores[n][i] += MaskAt<T>(shape, mask, mask_offset + row * shape.mask_query + key * shape.mask_key);
          }
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = largest[half];
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) now = fmaxf(now, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
      for (int distance = 1; distance < 4; distance *= 2) {
        now = fmaxf(now, __shfl_xor_sync(kAllLanes, now, distance));
      }
      // A row that has seen nothing yet stays at zero.
      const float correction = largest[half] == -INFINITY ? 0.0f : Exp2(largest[half] - now);
      const float base = now == -INFINITY ? 0.0f : now;
      weight_sums[half] *= correction;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        sums[n][half * 2] *= correction;
        sums[n][half * 2 + 1] *= correction;
      }
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          scores[n][i] = Exp2(scores[n][i] - base);
          weight_sums[half] += scores[n][i];
        }
      }
      largest[half] = now;
    }
#pragma unroll
    for (int s = 0; s < kKeySteps; ++s) {
      // What lies as a result of two tiles lies as the left factor of the next product.
      const uint32_t weights[4] = {PackPair<T>(scores[s * 2][0], scores[s * 2][1]),
                                   PackPair<T>(scores[s * 2][2], scores[s * 2][3]),
                                   PackPair<T>(scores[s * 2 + 1][0], scores[s * 2 + 1][1]),
                                   PackPair<T>(scores[s * 2 + 1][2], scores[s * 2 + 1][3])};
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        uint32_t b[4];
        LoadMatricesTransposed(b, &v_tile[s * 16 + lane % 16][n * 8 + lane / 16 * kChunk]);
        MultiplyAdd<T>(sums[n], weights, b[0], b[1]);
        MultiplyAdd<T>(sums[n + 1], weights, b[2], b[3]);
      }
    }
    __syncthreads();
    fetch(tile + kStages);
  }

  for (int half = 0; half < 2; ++half) {
    for (int distance = 1; distance < 4; distance *= 2) {
      weight_sums[half] += __shfl_xor_sync(kAllLanes, weight_sums[half], distance);
    }
    if (rows[half] >= shape.queries) continue;
    const float factor = weight_sums[half] > 0.0f ? 1.0f / weight_sums[half] : weight_sums[half];  // NaN stays NaN.
    T* const to = out + (batch * shape.queries + rows[half]) * shape.out_row + head * shape.head_size;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column >= shape.head_size) continue;
      *reinterpret_cast<uint32_t*>(to + column) =
          PackPair<T>(sums[n][half * 2] * factor, sums[n][half * 2 + 1] * factor);
    }
  }
}

template <class T, int kSize, int kWarps>
PreparedKernel MakeAttention(int ordinal, std::string name, std::vector<size_t> span_bytes, const AttentionShape& shape,
                             int64_t batch) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Attention<T, kSize, kWarps>));
  constexpr int kBlockQueries = kWarps * kWarpQueries;
  const dim3 grid(static_cast<unsigned>((shape.queries + kBlockQueries - 1) / kBlockQueries),
                  static_cast<unsigned>(shape.heads), static_cast<unsigned>(batch));
  return MakeLaunchKernel(std::move(name), std::move(span_bytes),
                          [shape, grid](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const bool masked = shape.mask_kind != MaskKind::kNone;
                            for (size_t i = 0; i < 3; ++i) {
                              if (!IsAligned(args.spans[i].data, 16))
                                return absl::InternalError("attention: q, k or v is not on 16 bytes");
                            }
                            LaunchAfterPrevious(Attention<T, kSize, kWarps>, grid, kWarps * kWarp, stream, shape,
                                                Elements<const T>(args, 0), Elements<const T>(args, 1),
                                                Elements<const T>(args, 2),
                                                masked ? static_cast<const void*>(args.spans[3].data) : nullptr,
                                                Elements<T>(args, masked ? 4 : 3));
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

template <class T, int kSize>
PreparedKernel MakeAttentionOfSize(int ordinal, const std::string& name, const std::vector<size_t>& span_bytes,
                                   const AttentionShape& shape, int64_t batch) {
  const int64_t blocks = (shape.queries + 4 * kWarpQueries - 1) / (4 * kWarpQueries) * shape.heads * batch;
  if (blocks >= kManyBlocks) return MakeAttention<T, kSize, 4>(ordinal, name, span_bytes, shape, batch);
  return MakeAttention<T, kSize, 2>(ordinal, name, span_bytes, shape, batch);
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareAttention(const AttentionDescription& d) {
  SLUICE_ASSIGN_OR_RETURN(const AttentionGeometry geometry, CheckAttention(d));
  const std::string name =
      absl::StrCat("attention [", d.batch, ",", d.heads, ",", d.queries, ",", d.head_size, "] over ", d.keys, " keys");
  constexpr int64_t kMostGrid = 65535;
  const int64_t aligned = d.q_row | d.k_row | d.v_row | d.q_offset | d.k_offset | d.v_offset | d.head_size;
  if (!IsHalfType(d.type) || d.head_size > kMostHeadSize || aligned % kChunk != 0 || d.heads > kMostGrid ||
      d.batch > kMostGrid || d.queries > (1 << 30) || d.keys > (1 << 30)) {
    return absl::UnimplementedError(absl::StrCat(
        "the CUDA backend has attention for FP16 and BF16 and head sizes, rows and offsets that are multiples of ",
        kChunk, ", heads of up to ", kMostHeadSize, " elements; this is ", std::string(WireName(d.type)), " ", name));
  }
  AttentionShape shape;
  shape.queries = static_cast<int>(d.queries);
  shape.keys = static_cast<int>(d.keys);
  shape.heads = static_cast<int>(d.heads);
  shape.head_size = static_cast<int>(d.head_size);
  shape.causal = d.causal;
  constexpr float kLog2E = 1.44269504088896340736f;
  shape.scale = d.scale * kLog2E;
  shape.q_row = d.q_row;
  shape.k_row = d.k_row;
  shape.v_row = d.v_row;
  shape.out_row = d.heads * d.head_size;
  shape.q_offset = d.q_offset;
  shape.k_offset = d.k_offset;
  shape.v_offset = d.v_offset;
  if (d.mask.has_value()) {
    shape.mask_kind = d.mask_type == DataType::kBool ? MaskKind::kTruths : MaskKind::kNumbers;
    shape.mask_batch = geometry.mask_strides[0];
    shape.mask_head = geometry.mask_strides[1];
    shape.mask_query = geometry.mask_strides[2];
    shape.mask_key = geometry.mask_strides[3];
  }
  const auto prepare = [&](auto tag) -> PreparedKernel {
    using T = decltype(tag);
    std::vector<size_t> span_bytes = {BytesOf<T>(geometry.q_count), BytesOf<T>(geometry.k_count),
                                      BytesOf<T>(geometry.v_count)};
    if (d.mask.has_value()) {
      span_bytes.push_back(static_cast<size_t>(geometry.mask_count) * ElementBytes(d.mask_type));
    }
    span_bytes.push_back(BytesOf<T>(geometry.output_count));
    const auto make = d.head_size <= 32   ? MakeAttentionOfSize<T, 32>
                      : d.head_size <= 64 ? MakeAttentionOfSize<T, 64>
                      : d.head_size <= 96 ? MakeAttentionOfSize<T, 96>
                                          : MakeAttentionOfSize<T, 128>;
    return make(ordinal_, name, span_bytes, shape, d.batch);
  };
  return DispatchHalf(d.type, prepare, [&]() -> PreparedKernel { return absl::InternalError("not a half"); });
}

}  // namespace sluice::gpu::cuda
