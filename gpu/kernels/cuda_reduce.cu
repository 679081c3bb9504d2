// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Reductions. Rows are folded by up to a block each, columns by blocks that read whole lines; where there are too few
// results to fill the device, parts of each are folded first and then joined. The order is fixed, so that a result is
// the same every time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/names.h"
#include "gpu/kernels/strided.h"

namespace sluice::gpu::cuda {
namespace {

// A fold: the neutral start, how an element joins, how two totals merge, and what the total becomes. Totals of floating
// sums are double; integer sums wrap in the unsigned type.
template <class T>
using SumType = std::conditional_t<std::is_floating_point_v<Compute<T>>, double, uint64_t>;

template <class T>
struct SumFold {
  using Total = SumType<T>;
  static constexpr Total kStart = 0;
  __device__ static Total Join(Total total, T x) { return total + static_cast<Total>(static_cast<Compute<T>>(x)); }
  __device__ static Total Merge(Total a, Total b) { return a + b; }
  __device__ static T Finish(Total total, int64_t) { return static_cast<T>(total); }
};
template <class T>
struct MeanFold : SumFold<T> {
  __device__ static T Finish(SumType<T> total, int64_t count) {
    if constexpr (std::is_floating_point_v<Compute<T>>) {
      return static_cast<T>(total / static_cast<double>(count));
    } else {
      return static_cast<T>(static_cast<int64_t>(total) / count);
    }
  }
};
template <class T>
struct SumSquareFold : SumFold<T> {
  __device__ static SumType<T> Join(SumType<T> total, T x) {
    return total +
           static_cast<SumType<T>>(static_cast<Compute<T>>(x)) * static_cast<SumType<T>>(static_cast<Compute<T>>(x));
  }
};
template <class T>
struct L1Fold : SumFold<T> {
  __device__ static SumType<T> Join(SumType<T> total, T x) {
    const SumType<T> wide = static_cast<SumType<T>>(static_cast<Compute<T>>(x));
    return static_cast<Compute<T>>(x) < Compute<T>(0) ? total - wide : total + wide;
  }
};
template <class T>
struct L2Fold : SumSquareFold<T> {
  __device__ static T Finish(SumType<T> total, int64_t) { return static_cast<T>(sqrt(static_cast<double>(total))); }
};
template <class T>
struct ProdFold : SumFold<T> {
  using Total = SumType<T>;
  static constexpr Total kStart = 1;
  __device__ static Total Join(Total total, T x) { return total * static_cast<Total>(static_cast<Compute<T>>(x)); }
  __device__ static Total Merge(Total a, Total b) { return a * b; }
};
template <class T>
struct MaxFold {
  using Total = Compute<T>;
  static constexpr Total kStart = kLowest<Total>;
  __device__ static Total Join(Total total, T x) { return Larger{}(total, static_cast<Total>(x)); }
  __device__ static Total Merge(Total a, Total b) { return Larger{}(a, b); }
  __device__ static T Finish(Total total, int64_t) { return static_cast<T>(total); }
};
template <class T>
struct MinFold {
  using Total = Compute<T>;
  static constexpr Total kStart = kHighest<Total>;
  __device__ static Total Join(Total total, T x) { return Smaller{}(total, static_cast<Total>(x)); }
  __device__ static Total Merge(Total a, Total b) { return Smaller{}(a, b); }
  __device__ static T Finish(Total total, int64_t) { return static_cast<T>(total); }
};
template <class Fold>
struct MergeOf {
  __device__ typename Fold::Total operator()(typename Fold::Total a, typename Fold::Total b) const {
    return Fold::Merge(a, b);
  }
};

/// Where the elements of each result are: [outer, folded, inner], or two walks when `strided`.
struct FoldShape {
  int64_t outputs = 0;
  int64_t folded = 0;
  int64_t inner = 1;
  int64_t part = 0;    ///< Elements that one of gridDim.y parts folds.
  Divider strips;      ///< Of kWarp columns, in `inner`.
  int64_t blocks = 0;  ///< Strips in all.
  bool strided = false;
  DeviceWalk<1> kept;   ///< To the first element of a result.
  DeviceWalk<1> along;  ///< From there to the others.
};

template <class Fold, class T>
__device__ void WriteTotal(const FoldShape& shape, int64_t index, typename Fold::Total total, T* output,
                           typename Fold::Total* parts) {
  if (parts != nullptr) {
    parts[blockIdx.y * shape.outputs + index] = total;
  } else {
    output[index] = Fold::Finish(total, shape.folded);
  }
}

/// One result for every `width` threads; inner is 1 or the shape is strided.
template <class Fold, class T>
__global__ void __launch_bounds__(kMostThreads) FoldRows(const __grid_constant__ FoldShape shape, int width,
                                                         const T* input, T* output, typename Fold::Total* parts) {
  WaitForPrevious();
  using Total = typename Fold::Total;
  __shared__ Total shared[kWarp];
  const int rows = static_cast<int>(blockDim.x) / width;
  const int lane = static_cast<int>(threadIdx.x) % width;
  const int64_t begin = blockIdx.y * shape.part;
  const int64_t end = begin + shape.part < shape.folded ? begin + shape.part : shape.folded;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows; first < shape.outputs;
       first += static_cast<int64_t>(gridDim.x) * rows) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / width;
    Total total = Fold::kStart;
    if (row < shape.outputs && shape.strided) {
      int64_t start[1], offset[1];
      shape.kept.Locate(row, start);
      for (int64_t k = begin + lane; k < end; k += width) {
        shape.along.Locate(k, offset);
        total = Fold::Join(total, input[start[0] + offset[0]]);
      }
    } else if (row < shape.outputs) {
      const T* from = input + row * shape.folded;
#pragma unroll 4
      for (int64_t k = begin + lane; k < end; k += width) total = Fold::Join(total, from[k]);
    }
    total = JoinGroup(total, width, shared, MergeOf<Fold>{});
    if (lane == 0 && row < shape.outputs) WriteTotal<Fold, T>(shape, row, total, output, parts);
  }
}

constexpr int kColumnThreads = 8;  // that share a column

/// kWarp neighbouring columns of [outer, folded, inner] for every block.
template <class Fold, class T>
__global__ void FoldColumns(const __grid_constant__ FoldShape shape, const T* input, T* output,
                            typename Fold::Total* parts) {
  WaitForPrevious();
  using Total = typename Fold::Total;
  __shared__ Total shared[kColumnThreads][kWarp];
  const int x = static_cast<int>(threadIdx.x) % kWarp;
  const int y = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t begin = blockIdx.y * shape.part;
  const int64_t end = begin + shape.part < shape.folded ? begin + shape.part : shape.folded;
  for (int64_t block = blockIdx.x; block < shape.blocks; block += gridDim.x) {
    int64_t strip;
    const int64_t outer = shape.strips.Divide(block, strip);
    const int64_t column = strip * kWarp + x;
    Total total = Fold::kStart;
    if (column < shape.inner) {
      const T* from = input + outer * shape.folded * shape.inner + column;
#pragma unroll 4
      for (int64_t k = begin + y; k < end; k += kColumnThreads) total = Fold::Join(total, from[k * shape.inner]);
    }
    shared[y][x] = total;
    __syncthreads();
    if (y == 0 && column < shape.inner) {
      for (int k = 1; k < kColumnThreads; ++k) total = Fold::Merge(total, shared[k][x]);
      WriteTotal<Fold, T>(shape, outer * shape.inner + column, total, output, parts);
    }
    __syncthreads();
  }
}

/// Joins [count] parts of each result; a warp for every result.
template <class Fold, class T>
__global__ void MergeParts(const typename Fold::Total* parts, int count, int64_t outputs, int64_t folded, T* output) {
  WaitForPrevious();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t step = GridStep() / kWarp;
  for (int64_t index = GridThread() / kWarp; index < outputs; index += step) {  // the same for a whole warp
    typename Fold::Total total = Fold::kStart;
    for (int k = lane; k < count; k += kWarp) total = Fold::Merge(total, parts[k * outputs + index]);
    total = JoinGroup(total, kWarp, static_cast<typename Fold::Total*>(nullptr), MergeOf<Fold>{});
    if (lane == 0) output[index] = Fold::Finish(total, folded);
  }
}

/// How a reduction is launched.
struct FoldPlan {
  FoldShape shape;
  bool columns = false;
  RowThreads threads;
  unsigned blocks = 1;
  int parts = 1;
};

/// Parts of a fold of which `blocks` blocks would leave most of the device idle.
int PartsFor(int64_t blocks, int64_t folded, int64_t least_part) {
  constexpr int64_t kWantedBlocks = 256;  // two for each multiprocessor of an H200
  if (blocks * 2 > kWantedBlocks) return 1;
  return static_cast<int>(std::clamp<int64_t>(folded / least_part, 1, kWantedBlocks / blocks));
}

/// The walk over the kept or the folded dimensions.
absl::StatusOr<DeviceWalk<1>> WalkOver(const ReduceGeometry& geometry, bool folded) {
  const Dims strides = RowMajorStrides(geometry.dims);
  StridedWalk walk{.dims = {}, .count = folded ? geometry.folded_count : geometry.output_count, .strides = {{}}};
  for (size_t i = 0; i < geometry.dims.size(); ++i) {
    if (geometry.folded[i] != folded) continue;
    walk.dims.push_back(geometry.dims[i]);
    walk.strides[0].push_back(strides[i]);
  }
  return MakeDeviceWalk<1>(MergeDims(walk));
}

absl::StatusOr<FoldPlan> MakeFoldPlan(const ReduceGeometry& geometry) {
  constexpr int64_t kLeastInner = 8;  // fewer columns would leave most of a warp idle
  FoldPlan plan;
  FoldShape& shape = plan.shape;
  shape.outputs = geometry.output_count;
  shape.folded = geometry.folded_count;
  const Dims& dims = geometry.dims;
  const std::vector<bool>& folded = geometry.folded;
  const bool rows = shape.folded == 0 || dims.size() <= 1 || folded == std::vector<bool>{false, true};
  const bool columns = folded == std::vector<bool>{true, false} || folded == std::vector<bool>{false, true, false};
  if (!rows && columns && dims.back() >= kLeastInner) {
    plan.columns = true;
    shape.inner = dims.back();
    const int64_t strips = (shape.inner + kWarp - 1) / kWarp;
    shape.strips = Divider(strips);
    shape.blocks = shape.outputs / shape.inner * strips;
    plan.threads = {kWarp, kWarp * kColumnThreads};
    plan.blocks = static_cast<unsigned>(std::min<int64_t>(shape.blocks, 1 << 16));
    plan.parts = PartsFor(shape.blocks, shape.folded, 256);
  } else {
    shape.strided = !rows;
    if (shape.strided) {
      SLUICE_ASSIGN_OR_RETURN(shape.kept, WalkOver(geometry, false));
      SLUICE_ASSIGN_OR_RETURN(shape.along, WalkOver(geometry, true));
    }
    plan.threads = RowThreadsFor(shape.folded);
    plan.blocks = RowBlocks(shape.outputs, plan.threads);
    plan.parts = PartsFor(plan.blocks, shape.folded, 8192);
  }
  shape.part = (shape.folded + plan.parts - 1) / plan.parts;
  return plan;
}

template <class Fold, class T>
PreparedKernel MakeFold(int ordinal, std::string name, const ReduceGeometry& geometry) {
  using Total = typename Fold::Total;
  const int64_t input_count = geometry.output_count * geometry.folded_count;
  std::vector<size_t> span_bytes = {BytesOf<T>(input_count), BytesOf<T>(geometry.output_count)};
  if (geometry.output_count == 0) return MakeEmptyKernel(std::move(name), std::move(span_bytes));
  SLUICE_ASSIGN_OR_RETURN(const FoldPlan plan, MakeFoldPlan(geometry));
  SLUICE_RETURN_IF_ERROR(plan.columns ? LoadKernel(ordinal, FoldColumns<Fold, T>)
                                      : LoadKernel(ordinal, FoldRows<Fold, T>));
  size_t workspace_bytes = 0;
  if (plan.parts > 1) {
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, MergeParts<Fold, T>));
    workspace_bytes = BytesOf<Total>(plan.parts * geometry.output_count);
  }
  return MakeLaunchKernel(
      std::move(name), std::move(span_bytes),
      [plan](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        const T* input = Elements<const T>(args, 0);
        T* output = Elements<T>(args, 1);
        Total* parts = plan.parts > 1 ? reinterpret_cast<Total*>(args.workspace.data) : nullptr;
        const dim3 grid(plan.blocks, static_cast<unsigned>(plan.parts));
        const auto threads = static_cast<unsigned>(plan.threads.block);
        if (plan.columns) {
          LaunchAfterPrevious(FoldColumns<Fold, T>, grid, threads, stream, plan.shape, input, output, parts);
        } else {
          LaunchAfterPrevious(FoldRows<Fold, T>, grid, threads, stream, plan.shape, plan.threads.width, input, output,
                              parts);
        }
        SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGetLastError()));
        if (plan.parts == 1) return absl::OkStatus();
        LaunchAfterPrevious(MergeParts<Fold, T>, BlocksFor(plan.shape.outputs * kWarp), kBlockThreads, stream, parts,
                            plan.parts, plan.shape.outputs, plan.shape.folded, output);
        return SLUICE_CUDA_STATUS(cudaGetLastError());
      },
      workspace_bytes);
}

template <class T>
PreparedKernel MakeReduce(int ordinal, const std::string& name, const ReduceDescription& d,
                          const ReduceGeometry& geometry) {
  if (d.kind == ReduceKind::kMax) return MakeFold<MaxFold<T>, T>(ordinal, name, geometry);
  if (d.kind == ReduceKind::kMin) return MakeFold<MinFold<T>, T>(ordinal, name, geometry);
  if constexpr (sizeof(Compute<T>) >= 4) {
    switch (d.kind) {
      case ReduceKind::kSum:
        return MakeFold<SumFold<T>, T>(ordinal, name, geometry);
      case ReduceKind::kMean:
        return MakeFold<MeanFold<T>, T>(ordinal, name, geometry);
      case ReduceKind::kProd:
        return MakeFold<ProdFold<T>, T>(ordinal, name, geometry);
      case ReduceKind::kSumSquare:
        return MakeFold<SumSquareFold<T>, T>(ordinal, name, geometry);
      case ReduceKind::kL1:
        return MakeFold<L1Fold<T>, T>(ordinal, name, geometry);
      case ReduceKind::kL2:
        return MakeFold<L2Fold<T>, T>(ordinal, name, geometry);
      default:
        break;
    }
  }
  return LacksType(Backend::kCuda, absl::StrCat("reduction (", NameOf(d.kind), ")"), d.type);
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareReduce(const ReduceDescription& description) {
  SLUICE_RETURN_IF_ERROR(ReduceOutputDims(description, /*keep_dims=*/true).status());
  SLUICE_ASSIGN_OR_RETURN(const ReduceGeometry geometry, MakeReduceGeometry(description.input, description.axes));
  const std::string name = absl::StrCat("reduce ", NameOf(description.kind), " ", DimsToString(description.input),
                                        " over ", DimsToString(description.axes));
  if (description.type == DataType::kBool) return MakeReduce<uint8_t>(ordinal_, name, description, geometry);
  const auto prepare = [&](auto tag) -> PreparedKernel {
    return MakeReduce<decltype(tag)>(ordinal_, name, description, geometry);
  };
  return DispatchHalf(description.type, prepare, [&] {
    return DispatchType(Backend::kCuda, NumberTypes{}, description.type, "reduction", prepare);
  });
}

PreparedKernel CudaKernelLibrary::PrepareGlobalPool(const GlobalPoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ReduceDescription reduce, MakeGlobalPoolReduce(description));
  if (description.type != DataType::kFp32 && description.type != DataType::kFp64 && !IsHalfType(description.type)) {
    return LacksType(Backend::kCuda, "global pooling", description.type);
  }
  return PrepareReduce(reduce);
}

}  // namespace sluice::gpu::cuda
