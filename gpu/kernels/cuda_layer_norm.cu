// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of a sum of rows. An output may be the same memory as an addend: in registers a row is read by
// its warp before any of it is written; out of them each thread writes, in its last walk, only what it reads itself.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kMostAddends = static_cast<int>(kMostLayerNormAddends);

template <class T>
struct Addend {
  const T* data = nullptr;
  const void* indices = nullptr;  ///< Of a table.
  bool wide = true;               ///< Indices are INT64, else INT32.
  Divider rows;
  int64_t table_rows = 0;

  /// What is added to a row that there is.
  __device__ const T* Row(int64_t row, int64_t length) const {
    int64_t at;
    rows.Divide(row, at);
    if (indices != nullptr) {
      int64_t index = wide ? static_cast<const int64_t*>(indices)[at] : static_cast<const int32_t*>(indices)[at];
      if (index < 0) index += table_rows;
      index = index < 0 ? 0 : index;
      at = index >= table_rows ? table_rows - 1 : index;
    }
    return data + at * length;
  }
};

/// A kernel's parameter. Memory is filled in by each launch.
template <class T>
struct Norm {
  int64_t rows = 0;
  int64_t length = 0;
  int width = 1;  ///< Threads that share a row.
  float epsilon = 0;
  int addend_count = 1;
  Addend<T> addends[kMostAddends] = {};
  const float* scale = nullptr;
  const float* bias = nullptr;  ///< Null without one; so is `sum`.
  T* output = nullptr;
  T* sum = nullptr;
};

template <class T>
__device__ T Normalized(const Norm<T>& norm, float x, float center, float factor, int64_t i) {
  return static_cast<T>((x - center) * factor * norm.scale[i] + (norm.bias != nullptr ? norm.bias[i] : 0.0f));
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) LayerNorm(const __grid_constant__ Norm<T> norm) {
  WaitForPrevious();
  __shared__ double shared[kWarp];
  const int width = norm.width;
  const int each = static_cast<int>(blockDim.x) / width;
  const int lane = static_cast<int>(threadIdx.x) % width;
  const double count = static_cast<double>(norm.length);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * each; first < norm.rows;
       first += static_cast<int64_t>(gridDim.x) * each) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / width;
    const bool there = row < norm.rows;  // Threads without a row take part in the joins.
    const int64_t length = there ? norm.length : 0;
    const T* from[kMostAddends];
#pragma unroll
    for (int k = 0; k < kMostAddends; ++k) {
      from[k] = there && k < norm.addend_count ? norm.addends[k].Row(row, norm.length) : nullptr;
    }
    const auto x = [&](int64_t i) {
      float value = static_cast<float>(from[0][i]);
#pragma unroll
      for (int k = 1; k < kMostAddends; ++k) {
        if (k < norm.addend_count) value += static_cast<float>(from[k][i]);
      }
      return value;
    };
    double total = 0;
    for (int64_t i = lane; i < length; i += width) total += static_cast<double>(x(i));
    const double mean = JoinGroup(total, width, shared, Sum{}) / count;
    double squares = 0;
    for (int64_t i = lane; i < length; i += width) {
      const double difference = static_cast<double>(x(i)) - mean;
      squares += difference * difference;
    }
    const double variance = JoinGroup(squares, width, shared, Sum{}) / count;
    const float center = static_cast<float>(mean);
    const float factor = static_cast<float>(1.0 / sqrt(variance + static_cast<double>(norm.epsilon)));
    for (int64_t i = lane; i < length; i += width) {
      const float value = x(i);
      if (norm.sum != nullptr) norm.sum[row * length + i] = static_cast<T>(value);
      norm.output[row * length + i] = Normalized(norm, value, center, factor, i);
    }
  }
}

template <class T>
constexpr int kRowPack = static_cast<int>(16 / sizeof(T));  // Elements that are loaded and stored at once.
constexpr int kMostPacks = 8;                               // Of one thread of the warp that a row has.

/// Rows that one warp keeps in its registers: read once, in packs. Halves are added up in float: at most 64 terms a
/// thread, then five levels of a tree.
template <class T, int kPacks, int kAddends>
__global__ void __launch_bounds__(kBlockThreads) LayerNormInRegisters(const __grid_constant__ Norm<T> norm) {
  WaitForPrevious();
  constexpr int kEach = kRowPack<T>;
  using RowPack = Pack<T, kEach>;
  using Total = std::conditional_t<kIsHalf<T>, float, double>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int count = static_cast<int>(norm.length) / kEach;
  const int64_t step = GridStep() / kWarp;
  for (int64_t row = GridThread() / kWarp; row < norm.rows; row += step) {  // The same for a whole warp.
    const RowPack* from[kAddends];
#pragma unroll
    for (int k = 0; k < kAddends; ++k) {
      from[k] = reinterpret_cast<const RowPack*>(norm.addends[k].Row(row, norm.length));
    }
    float x[kPacks][kEach];
    Total total = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = p * kWarp + lane;
      RowPack pack[kAddends] = {};
#pragma unroll
      for (int k = 0; k < kAddends; ++k) {
        if (i < count) pack[k] = from[k][i];
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        x[p][e] = static_cast<float>(pack[0].values[e]);
#pragma unroll
        for (int k = 1; k < kAddends; ++k) x[p][e] += static_cast<float>(pack[k].values[e]);
        total += static_cast<Total>(x[p][e]);
      }
    }
    const Total length = static_cast<Total>(norm.length);
    const Total mean = JoinGroup(total, kWarp, static_cast<Total*>(nullptr), Sum{}) / length;
    Total squares = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * kWarp + lane >= count) continue;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const Total difference = static_cast<Total>(x[p][e]) - mean;
        squares += difference * difference;
      }
    }
    const Total variance = JoinGroup(squares, kWarp, static_cast<Total*>(nullptr), Sum{}) / length;
    const float center = static_cast<float>(mean);
    const float factor = static_cast<float>(rsqrt(variance + static_cast<Total>(norm.epsilon)));
    auto* to = reinterpret_cast<RowPack*>(norm.output + row * norm.length);
    auto* sum = norm.sum == nullptr ? nullptr : reinterpret_cast<RowPack*>(norm.sum + row * norm.length);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = p * kWarp + lane;
      if (i >= count) continue;
      RowPack pack;
      if (sum != nullptr) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) pack.values[e] = static_cast<T>(x[p][e]);
        sum[i] = pack;
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e) pack.values[e] = Normalized(norm, x[p][e], center, factor, i * kEach + e);
      to[i] = pack;
    }
  }
}

template <class T>
using NormKernel = void (*)(Norm<T>);

template <class T, int kPacks>
NormKernel<T> WithPacks(size_t addends) {
  if (addends == 1) return LayerNormInRegisters<T, kPacks, 1>;
  if (addends == 2) return LayerNormInRegisters<T, kPacks, 2>;
  if (addends == 3) return LayerNormInRegisters<T, kPacks, 3>;
  return LayerNormInRegisters<T, kPacks, kMostAddends>;
}

/// Null for rows that do not fill packs, do not fit in a warp's registers, or are too short to give every thread some.
template <class T>
NormKernel<T> InRegistersFor(int64_t length, size_t addends) {
  constexpr int64_t kFull = int64_t{kWarp} * kRowPack<T>;  // Elements of one pack for every thread.
  if (length % kRowPack<T> != 0 || length > kMostPacks * kFull || (!kIsHalf<T> && length < kFull)) return nullptr;
  const int64_t packs = (length + kFull - 1) / kFull;
  if (packs <= 1) return WithPacks<T, 1>(addends);
  if (packs <= 2) return WithPacks<T, 2>(addends);
  if (packs <= 3) return WithPacks<T, 3>(addends);
  if (packs <= 4) return WithPacks<T, 4>(addends);
  if (packs <= 6) return WithPacks<T, 6>(addends);
  return WithPacks<T, kMostPacks>(addends);
}

/// `norm` with a launch's memory.
template <class T>
Norm<T> Bind(Norm<T> norm, const KernelArgs& args, bool has_bias, bool writes_sum) {
  size_t span = 0;
  for (int k = 0; k < norm.addend_count; ++k) {
    norm.addends[k].data = Elements<const T>(args, span++);
    if (norm.addends[k].table_rows > 0) norm.addends[k].indices = args.spans[span++].data;
  }
  norm.scale = Elements<const float>(args, span++);
  if (has_bias) norm.bias = Elements<const float>(args, span++);
  norm.output = Elements<T>(args, span++);
  if (writes_sum) norm.sum = Elements<T>(args, span);
  return norm;
}

/// True when rows can be read and written in packs.
template <class T>
bool TakesPacks(const Norm<T>& norm) {
  constexpr size_t kBytes = sizeof(Pack<T, kRowPack<T>>);
  for (int k = 0; k < norm.addend_count; ++k) {
    if (!IsAligned(norm.addends[k].data, kBytes)) return false;
  }
  return IsAligned(norm.output, kBytes) && IsAligned(norm.sum, kBytes);
}

template <class T>
std::vector<size_t> SpanBytes(const LayerNormDescription& d, const LayerNormGeometry& geometry) {
  const size_t size_bytes = BytesOf<T>(geometry.rows * geometry.length);
  std::vector<size_t> result;
  if (d.addends.empty()) result.push_back(size_bytes);
  for (size_t k = 0; k < d.addends.size(); ++k) {
    const int64_t table_rows = d.addends[k].table_rows;
    result.push_back(BytesOf<T>((table_rows > 0 ? table_rows : geometry.addend_rows[k]) * geometry.length));
    if (table_rows > 0) {
      result.push_back(static_cast<size_t>(geometry.addend_rows[k]) * ElementBytes(d.addends[k].index_type));
    }
  }
  result.push_back(BytesOf<float>(geometry.length));
  if (d.has_bias) result.push_back(BytesOf<float>(geometry.length));
  result.push_back(size_bytes);
  if (d.writes_sum) result.push_back(size_bytes);
  return result;
}

template <class T>
PreparedKernel MakeLayerNorm(int ordinal, const LayerNormDescription& d, const LayerNormGeometry& geometry) {
  std::vector<size_t> span_bytes = SpanBytes<T>(d, geometry);
  if (geometry.rows * geometry.length == 0) return MakeEmptyKernel(geometry.name, std::move(span_bytes));
  const size_t addends = geometry.addend_rows.size();
  const RowThreads threads = RowThreadsFor(geometry.length);
  Norm<T> prepared{.rows = geometry.rows,
                   .length = geometry.length,
                   .width = threads.width,
                   .epsilon = d.epsilon,
                   .addend_count = static_cast<int>(addends)};
  for (size_t k = 0; k < addends; ++k) prepared.addends[k].rows = Divider(geometry.addend_rows[k]);
  for (size_t k = 0; k < d.addends.size(); ++k) {
    prepared.addends[k].table_rows = d.addends[k].table_rows;
    prepared.addends[k].wide = d.addends[k].index_type == DataType::kInt64;
  }
  const NormKernel<T> in_registers = InRegistersFor<T>(geometry.length, addends);
  if (in_registers != nullptr) SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, in_registers));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, LayerNorm<T>));
  return MakeLaunchKernel(geometry.name, std::move(span_bytes),
                          [prepared, threads, in_registers, has_bias = d.has_bias, writes_sum = d.writes_sum](
                              cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const Norm<T> norm = Bind(prepared, args, has_bias, writes_sum);
                            if (in_registers != nullptr && TakesPacks(norm)) {
                              LaunchAfterPrevious(in_registers, BlocksFor(norm.rows * kWarp), kBlockThreads, stream,
                                                  norm);
                            } else {
                              LaunchAfterPrevious(LayerNorm<T>, RowBlocks(norm.rows, threads),
                                                  static_cast<unsigned>(threads.block), stream, norm);
                            }
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareLayerNorm(const LayerNormDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const LayerNormGeometry geometry, MakeLayerNormGeometry(description));
  const auto prepare = [&](auto tag) { return MakeLayerNorm<decltype(tag)>(ordinal_, description, geometry); };
  return DispatchHalf(description.type, prepare, [&] {
    return DispatchType(Backend::kCuda, TypeList<float>{}, description.type, "layer norm", prepare);
  });
}

}  // namespace sluice::gpu::cuda
