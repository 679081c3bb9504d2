// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Transpose, slice, expand and copy: kernels that move elements without looking at them. Elements that lie together in
// both tensors move together, up to 16 bytes at a time.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_units.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/strided.h"

namespace sluice::gpu::cuda {
namespace {

template <class T>
__global__ void Move(const __grid_constant__ DeviceWalk<1> walk, const T* input, T* output) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < walk.count; i += GridStep()) {
    int64_t offset[1];
    walk.Locate(i, offset);
    output[i] = input[offset[0]];
  }
}

/// The same bytes, `tail_bytes` of them behind the last whole unit.
template <class T>
__global__ void CopyUnits(const T* input, T* output, int64_t count, int tail_bytes) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < count; i += GridStep()) output[i] = input[i];
  if (GridThread() < tail_bytes) {
    const int64_t at = count * static_cast<int64_t>(sizeof(T)) + GridThread();
    reinterpret_cast<uint8_t*>(output)[at] = reinterpret_cast<const uint8_t*>(input)[at];
  }
}

/// A transpose of two dimensions, `rows` contiguous in the input and `columns` in the output, and the offsets of every
/// other dimension.
struct TileShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_step = 0;  ///< From row to row in the output; likewise columns in the input.
  int64_t column_step = 0;
  int64_t tiles = 0;  ///< In all.
  Divider row_tiles;  ///< Tiles along one dimension of one matrix.
  Divider column_tiles;
  DeviceWalk<2> rest;  ///< Over the matrices: offsets in input and output.
};

constexpr int kTile = 32;
constexpr int kTileThreads = 8;  // per column of a tile

/// Through shared memory, so that both sides are read and written along their own contiguous dimension.
template <class T>
__global__ void Transpose(const __grid_constant__ TileShape shape, const T* input, T* output) {
  WaitForPrevious();
  __shared__ T tile[kTile][kTile + 1];  // one more, so that a column lies in different banks
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  for (int64_t t = blockIdx.x; t < shape.tiles; t += gridDim.x) {
    int64_t row, column;
    int64_t matrix = shape.row_tiles.Divide(t, row);
    matrix = shape.column_tiles.Divide(matrix, column);
    row *= kTile;
    column *= kTile;
    int64_t offsets[2];
    shape.rest.Locate(matrix, offsets);
    for (int k = y; k < kTile; k += kTileThreads) {
      if (row + x < shape.rows && column + k < shape.columns) {
        tile[k][x] = input[offsets[0] + (column + k) * shape.column_step + row + x];
      }
    }
    __syncthreads();
    for (int k = y; k < kTile; k += kTileThreads) {
      if (row + k < shape.rows && column + x < shape.columns) {
        output[offsets[1] + (row + k) * shape.row_step + column + x] = tile[x][k];
      }
    }
    __syncthreads();
  }
}

/// Loads every width, since the widest that spans allow is chosen at each launch.
absl::Status LoadCopies(int ordinal) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, CopyUnits<uint8_t>));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, CopyUnits<uint32_t>));
  return LoadKernel(ordinal, CopyUnits<uint4>);
}

template <class T>
absl::Status SubmitCopyUnits(cudaStream_t stream, const std::byte* input, std::byte* output, size_t size_bytes) {
  const int64_t count = static_cast<int64_t>(size_bytes / sizeof(T));
  LaunchAfterPrevious(CopyUnits<T>, BlocksFor(count), kBlockThreads, stream, reinterpret_cast<const T*>(input),
                      reinterpret_cast<T*>(output), count, static_cast<int>(size_bytes % sizeof(T)));
  return SLUICE_CUDA_STATUS(cudaGetLastError());
}

/// Spans: input, of which `size_bytes` from `first_byte` on are copied; output.
PreparedKernel MakeCopy(int ordinal, std::string name, size_t input_bytes, size_t first_byte, size_t size_bytes) {
  if (size_bytes == 0) return MakeEmptyKernel(std::move(name), {input_bytes, 0});
  SLUICE_RETURN_IF_ERROR(LoadCopies(ordinal));
  return MakeLaunchKernel(std::move(name), {input_bytes, size_bytes},
                          [first_byte, size_bytes](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const std::byte* input = args.spans[0].data + first_byte;
                            std::byte* output = args.spans[1].data;
                            if (IsAligned(input, 16) && IsAligned(output, 16)) {
                              return SubmitCopyUnits<uint4>(stream, input, output, size_bytes);
                            }
                            if (IsAligned(input, 4) && IsAligned(output, 4)) {
                              return SubmitCopyUnits<uint32_t>(stream, input, output, size_bytes);
                            }
                            return SubmitCopyUnits<uint8_t>(stream, input, output, size_bytes);
                          });
}

/// A walk in units of some bytes.
struct UnitWalk {
  size_t unit_bytes = 0;
  int64_t base = 0;
  DeviceWalk<1> walk;
};

/// `walk` with `width` neighbouring elements as one; WidestUnit says how many can be.
absl::StatusOr<UnitWalk> MakeUnitWalk(StridedWalk walk, size_t element_bytes, int64_t width) {
  walk.dims.back() /= width;
  walk.count /= width;
  walk.base /= width;
  Dims& strides = walk.strides[0];
  for (size_t i = 0; i + 1 < strides.size(); ++i) strides[i] /= width;
  UnitWalk result;
  result.unit_bytes = element_bytes * static_cast<size_t>(width);
  result.base = walk.base;
  SLUICE_ASSIGN_OR_RETURN(result.walk, MakeDeviceWalk<1>(walk));
  return result;
}

/// How many neighbouring elements move as one of at most 16 bytes, whatever the coordinates.
int64_t WidestUnit(const StridedWalk& walk, size_t element_bytes) {
  const Dims& strides = walk.strides[0];
  if (strides.back() != 1) return 1;
  for (int64_t width = static_cast<int64_t>(kMaxUnitBytes / element_bytes); width > 1; width /= 2) {
    bool fits = walk.dims.back() % width == 0 && walk.base % width == 0;
    for (size_t i = 0; i + 1 < strides.size(); ++i) fits = fits && strides[i] % width == 0;
    if (fits) return width;
  }
  return 1;
}

absl::Status SubmitMove(cudaStream_t stream, const UnitWalk& walk, const KernelArgs& args) {
  return WithUnit(walk.unit_bytes, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    LaunchAfterPrevious(Move<T>, BlocksFor(walk.walk.count), kBlockThreads, stream, walk.walk,
                        Elements<const T>(args, 0) + walk.base, Elements<T>(args, 1));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

absl::Status LoadMove(int ordinal, size_t unit_bytes) {
  return WithUnit(unit_bytes, [&](auto tag) { return LoadKernel(ordinal, Move<decltype(tag)>); });
}

/// Spans: input, output.
PreparedKernel MakeMove(int ordinal, std::string name, const StridedWalk& walk, int64_t input_count,
                        size_t element_bytes) {
  const size_t input_bytes = static_cast<size_t>(input_count) * element_bytes;
  const size_t output_bytes = static_cast<size_t>(walk.count) * element_bytes;
  if (walk.count == 0) return MakeEmptyKernel(std::move(name), {input_bytes, 0});
  if (walk.dims.size() == 1 && (walk.strides[0][0] == 1 || walk.count == 1)) {
    return MakeCopy(ordinal, std::move(name), input_bytes, static_cast<size_t>(walk.base) * element_bytes,
                    output_bytes);
  }
  SLUICE_ASSIGN_OR_RETURN(const UnitWalk narrow, MakeUnitWalk(walk, element_bytes, 1));
  SLUICE_ASSIGN_OR_RETURN(const UnitWalk wide, MakeUnitWalk(walk, element_bytes, WidestUnit(walk, element_bytes)));
  SLUICE_RETURN_IF_ERROR(LoadMove(ordinal, narrow.unit_bytes));
  SLUICE_RETURN_IF_ERROR(LoadMove(ordinal, wide.unit_bytes));
  return MakeLaunchKernel(std::move(name), {input_bytes, output_bytes},
                          [narrow, wide](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const bool aligned = IsAligned(args.spans[0].data, wide.unit_bytes) &&
                                                 IsAligned(args.spans[1].data, wide.unit_bytes);
                            return SubmitMove(stream, aligned ? wide : narrow, args);
                          });
}

/// Tiles of dimension `row` of the walk (stride 1 in the input) by the last one.
absl::StatusOr<TileShape> MakeTileShape(const StridedWalk& walk, size_t row) {
  const Dims output_strides = RowMajorStrides(walk.dims);
  StridedWalk rest{.dims = {}, .count = 1, .strides = {{}, {}}};
  for (size_t i = 0; i + 1 < walk.dims.size(); ++i) {
    if (i == row) continue;
    rest.dims.push_back(walk.dims[i]);
    rest.count *= walk.dims[i];
    rest.strides[0].push_back(walk.strides[0][i]);
    rest.strides[1].push_back(output_strides[i]);
  }
  TileShape shape;
  shape.rows = walk.dims[row];
  shape.columns = walk.dims.back();
  shape.row_step = output_strides[row];
  shape.column_step = walk.strides[0].back();
  const int64_t row_tiles = (shape.rows + kTile - 1) / kTile;
  const int64_t column_tiles = (shape.columns + kTile - 1) / kTile;
  shape.row_tiles = Divider(row_tiles);
  shape.column_tiles = Divider(column_tiles);
  shape.tiles = row_tiles * column_tiles * rest.count;
  SLUICE_ASSIGN_OR_RETURN(shape.rest, MakeDeviceWalk<2>(MergeDims(rest)));
  return shape;
}

template <class T>
PreparedKernel MakeTranspose(int ordinal, std::string name, const StridedWalk& walk, size_t row) {
  SLUICE_ASSIGN_OR_RETURN(const TileShape shape, MakeTileShape(walk, row));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Transpose<T>));
  const size_t size_bytes = BytesOf<T>(walk.count);
  constexpr int64_t kMaxBlocks = 1 << 16;
  const auto blocks = static_cast<unsigned>(std::min(shape.tiles, kMaxBlocks));
  return MakeLaunchKernel(std::move(name), {size_bytes, size_bytes},
                          [shape, blocks](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            LaunchAfterPrevious(Transpose<T>, blocks, kTile * kTileThreads, stream, shape,
                                                Elements<const T>(args, 0), Elements<T>(args, 1));
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareTranspose(const TransposeDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeTransposeWalk(description));
  std::string name =
      absl::StrCat("transpose ", DimsToString(description.input), " by ", DimsToString(description.permutation));
  return DispatchSize(description.type, "transpose", [&](auto tag) -> PreparedKernel {
    using T = decltype(tag);
    constexpr int64_t kLeast = 8;  // narrower tiles would be mostly empty
    const Dims& strides = walk.strides[0];
    const auto found = std::find(strides.begin(), strides.end(), 1);
    const auto row = static_cast<size_t>(found - strides.begin());
    if (walk.count > 0 && strides.back() > 1 && found != strides.end() && walk.dims[row] >= kLeast &&
        walk.dims.back() >= kLeast) {
      return MakeTranspose<T>(ordinal_, std::move(name), walk, row);
    }
    return MakeMove(ordinal_, std::move(name), walk, walk.count, sizeof(T));
  });
}

PreparedKernel CudaKernelLibrary::PrepareExpand(const ExpandDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeExpandWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t input_count, ElementCount(description.input));
  std::string name = absl::StrCat("expand ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "expand",
                      [&](auto tag) { return MakeMove(ordinal_, std::move(name), walk, input_count, sizeof(tag)); });
}

PreparedKernel CudaKernelLibrary::PrepareSlice(const SliceDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeSliceWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t input_count, ElementCount(description.input));
  std::string name = absl::StrCat("slice ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "slice",
                      [&](auto tag) { return MakeMove(ordinal_, std::move(name), walk, input_count, sizeof(tag)); });
}

PreparedKernel CudaKernelLibrary::PrepareCopy(const CopyDescription& description) {
  const size_t size_bytes = description.size_bytes;
  if (static_cast<int64_t>(size_bytes) < 0) {
    return absl::InvalidArgumentError("copy: the size must be below 2^63 bytes");
  }
  return MakeCopy(ordinal_, absl::StrCat("copy ", size_bytes, " bytes"), size_bytes, 0, size_bytes);
}

}  // namespace sluice::gpu::cuda
