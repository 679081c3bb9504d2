// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

/// An element and its place; index -1 for none yet.
template <class T>
struct Candidate {
  T value;
  int64_t index;
};

/// Of two candidates the one that wins, whatever their order: a NaN beats every number, and of equal values (or NaNs)
/// the first or the last does.
struct Contest {
  bool min;
  bool last;
  template <class T>
  __device__ Candidate<T> operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
    if (a_is_nan || a.value == b.value) return (a.index < b.index) != last ? a : b;
    return (min ? a.value < b.value : a.value > b.value) ? a : b;
  }
};

/// Rows of [outer, length, inner]; `width` threads for each.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    ArgReduce(int64_t rows, int64_t length, int64_t inner, Divider inner_divider, int width, Contest contest,
              const T* input, int64_t* output) {
  WaitForPrevious();
  __shared__ Candidate<T> shared[kWarp];
  const int each = static_cast<int>(blockDim.x) / width;
  const int lane = static_cast<int>(threadIdx.x) % width;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * each; first < rows;
       first += static_cast<int64_t>(gridDim.x) * each) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / width;
    Candidate<T> best{T(0), -1};
    if (row < rows) {
      int64_t column;
      const int64_t outer = inner_divider.Divide(row, column);
      const T* from = input + outer * length * inner + column;
      for (int64_t k = lane; k < length; k += width) best = contest(best, Candidate<T>{from[k * inner], k});
    }
    for (int offset = (width < kWarp ? width : kWarp) / 2; offset > 0; offset /= 2) {
      const Candidate<T> other{static_cast<T>(__shfl_xor_sync(kAllLanes, best.value, offset)),
                               __shfl_xor_sync(kAllLanes, best.index, offset)};
      best = contest(best, other);
    }
    if (width > kWarp) {
      __syncthreads();  // the row before has been read
      if (lane % kWarp == 0) shared[lane / kWarp] = best;
      __syncthreads();
      for (int warp = 0; warp < width / kWarp; ++warp) best = contest(best, shared[warp]);
    }
    if (lane == 0 && row < rows) output[row] = best.index;
  }
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareArgReduce(const ArgReduceDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AxisGeometry geometry, MakeArgReduceGeometry(description));
  const std::string name = absl::StrCat(description.min ? "argmin " : "argmax ", DimsToString(description.input));
  const int64_t rows = geometry.outer * geometry.inner;
  return DispatchType(Backend::kCuda, NumberTypes{}, description.type, "index reduction",
                      [&](auto tag) -> PreparedKernel {
                        using T = decltype(tag);
                        std::vector<size_t> span_bytes = {BytesOf<T>(rows * geometry.length), BytesOf<int64_t>(rows)};
                        if (rows == 0) return MakeEmptyKernel(name, std::move(span_bytes));
                        SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, ArgReduce<T>));
                        const RowThreads threads = RowThreadsFor(geometry.length);
                        const unsigned blocks = RowBlocks(rows, threads);
                        const Contest contest{description.min, description.select_last_index};
                        return MakeLaunchKernel(
                            name, std::move(span_bytes),
                            [rows, length = geometry.length, inner = geometry.inner, divider = Divider(geometry.inner),
                             threads, blocks, contest](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                              LaunchAfterPrevious(ArgReduce<T>, blocks, static_cast<unsigned>(threads.block), stream,
                                                  rows, length, inner, divider, threads.width, contest,
                                                  Elements<const T>(args, 0), Elements<int64_t>(args, 1));
                              return SLUICE_CUDA_STATUS(cudaGetLastError());
                            });
                      });
}

}  // namespace sluice::gpu::cuda
