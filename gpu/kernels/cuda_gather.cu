// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Gather and concatenation: rows of bytes that move in units of up to 16.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_units.cuh"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

/// GatherGeometry in units.
struct GatherShape {
  int64_t count = 0;  ///< Units of the output.
  int64_t length = 0;
  int64_t row = 0;  ///< Units of a row.
  Divider row_divider;
  Divider index_count;
};

template <class T, class Index>
__global__ void Gather(const __grid_constant__ GatherShape shape, const T* data, const Index* indices, T* output) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < shape.count; i += GridStep()) {
    int64_t unit, which;
    const int64_t row = shape.row_divider.Divide(i, unit);
    const int64_t outer = shape.index_count.Divide(row, which);
    int64_t index = indices[which];
    if (index < 0) index += shape.length;
    index = index < 0 ? 0 : index;
    index = index >= shape.length ? shape.length - 1 : index;
    output[i] = data[(outer * shape.length + index) * shape.row + unit];
  }
}

GatherShape ShapeIn(const GatherGeometry& geometry, size_t unit_bytes) {
  GatherShape shape;
  shape.row = static_cast<int64_t>(geometry.row_bytes / unit_bytes);
  shape.count = geometry.outer * geometry.index_count * shape.row;
  shape.length = geometry.length;
  shape.row_divider = Divider(std::max<int64_t>(shape.row, 1));
  shape.index_count = Divider(std::max<int64_t>(geometry.index_count, 1));
  return shape;
}

/// Spans: data, indices, output.
template <class Index>
PreparedKernel MakeGather(int ordinal, std::string name, const GatherGeometry& geometry, size_t element_bytes) {
  const size_t output_bytes = static_cast<size_t>(geometry.outer * geometry.index_count) * geometry.row_bytes;
  std::vector<size_t> span_bytes = {static_cast<size_t>(geometry.outer * geometry.length) * geometry.row_bytes,
                                    BytesOf<Index>(geometry.index_count), output_bytes};
  if (output_bytes == 0) return MakeEmptyKernel(std::move(name), std::move(span_bytes));
  const size_t wide_bytes = UnitDividing(geometry.row_bytes);
  for (const size_t unit_bytes : {element_bytes, wide_bytes}) {
    SLUICE_RETURN_IF_ERROR(
        WithUnit(unit_bytes, [&](auto tag) { return LoadKernel(ordinal, Gather<decltype(tag), Index>); }));
  }
  const GatherShape narrow = ShapeIn(geometry, element_bytes);
  const GatherShape wide = ShapeIn(geometry, wide_bytes);
  return MakeLaunchKernel(
      std::move(name), std::move(span_bytes),
      [narrow, wide, element_bytes, wide_bytes](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        const bool aligned = IsAligned(args.spans[0].data, wide_bytes) && IsAligned(args.spans[2].data, wide_bytes);
        const GatherShape& shape = aligned ? wide : narrow;
        return WithUnit(aligned ? wide_bytes : element_bytes, [&](auto tag) -> absl::Status {
          using T = decltype(tag);
          LaunchAfterPrevious(Gather<T, Index>, BlocksFor(shape.count), kBlockThreads, stream, shape,
                              Elements<const T>(args, 0), Elements<const Index>(args, 1), Elements<T>(args, 2));
          return SLUICE_CUDA_STATUS(cudaGetLastError());
        });
      });
}

constexpr int kMaxPieces = 64;  // inputs of one launch

/// Neighbouring inputs of a concatenation that one launch copies; lengths in units.
struct Pieces {
  int64_t count = 0;  ///< Units that the pieces have in all.
  int64_t row = 0;    ///< Units of a whole row of the output.
  int64_t first = 0;  ///< Where in it the pieces begin.
  Divider width;      ///< What the pieces give to one row.
  int pieces = 0;
  const void* inputs[kMaxPieces] = {};
  int64_t ends[kMaxPieces] = {};  ///< Of each piece in the row, counted from the first.
};

template <class T>
__global__ void Concat(const __grid_constant__ Pieces pieces, T* output) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < pieces.count; i += GridStep()) {
    int64_t place;
    const int64_t outer = pieces.width.Divide(i, place);
    int low = 0;  // the first piece that ends behind `place`
    for (int high = pieces.pieces - 1; low < high;) {
      const int middle = (low + high) / 2;
      if (pieces.ends[middle] > place) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const int64_t begin = low == 0 ? 0 : pieces.ends[low - 1];
    const T* input = static_cast<const T*>(pieces.inputs[low]);
    output[outer * pieces.row + pieces.first + place] = input[outer * (pieces.ends[low] - begin) + (place - begin)];
  }
}

/// Copies inputs [begin, end) to their place in every row.
absl::Status SubmitPieces(cudaStream_t stream, const KernelArgs& args, const ConcatGeometry& geometry, size_t begin,
                          size_t end, size_t first_byte, size_t unit_bytes) {
  Pieces pieces;
  pieces.row = static_cast<int64_t>(geometry.row_bytes / unit_bytes);
  pieces.first = static_cast<int64_t>(first_byte / unit_bytes);
  int64_t width = 0;
  for (size_t i = begin; i < end; ++i) {
    if (geometry.widths[i] == 0) continue;
    width += static_cast<int64_t>(geometry.widths[i] / unit_bytes);
    pieces.inputs[pieces.pieces] = args.spans[i].data;
    pieces.ends[pieces.pieces] = width;
    ++pieces.pieces;
  }
  if (width == 0) return absl::OkStatus();
  pieces.width = Divider(width);
  pieces.count = geometry.outer * width;
  return WithUnit(unit_bytes, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    LaunchAfterPrevious(Concat<T>, BlocksFor(pieces.count), kBlockThreads, stream, pieces,
                        reinterpret_cast<T*>(args.spans[geometry.widths.size()].data));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareGather(const GatherDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const GatherGeometry geometry, MakeGatherGeometry(description));
  const size_t element_bytes = ElementBytes(description.type);
  std::string name = absl::StrCat("gather ", DimsToString(description.data), " at ", DimsToString(description.indices));
  if (description.index_type == DataType::kInt32) {
    return MakeGather<int32_t>(ordinal_, std::move(name), geometry, element_bytes);
  }
  return MakeGather<int64_t>(ordinal_, std::move(name), geometry, element_bytes);
}

PreparedKernel CudaKernelLibrary::PrepareConcat(const ConcatDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ConcatGeometry geometry, MakeConcatGeometry(description));
  const size_t element_bytes = ElementBytes(description.type);
  std::vector<size_t> span_bytes;
  size_t wide_bytes = kMaxUnitBytes;
  for (const size_t width : geometry.widths) {
    span_bytes.push_back(static_cast<size_t>(geometry.outer) * width);
    wide_bytes = std::min(wide_bytes, UnitDividing(width));
  }
  span_bytes.push_back(static_cast<size_t>(geometry.outer) * geometry.row_bytes);
  std::string name = absl::StrCat("concat ", geometry.widths.size(), " inputs to ", DimsToString(geometry.output));
  if (span_bytes.back() == 0) return MakeEmptyKernel(std::move(name), std::move(span_bytes));
  for (const size_t unit_bytes : {element_bytes, wide_bytes}) {
    SLUICE_RETURN_IF_ERROR(WithUnit(unit_bytes, [&](auto tag) { return LoadKernel(ordinal_, Concat<decltype(tag)>); }));
  }
  return MakeLaunchKernel(
      std::move(name), std::move(span_bytes),
      [geometry, element_bytes, wide_bytes](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        bool aligned = true;
        for (const DeviceSpan& span : args.spans) {
          aligned = aligned && (span.size_bytes == 0 || IsAligned(span.data, wide_bytes));
        }
        size_t first_byte = 0;
        for (size_t begin = 0; begin < geometry.widths.size(); begin += kMaxPieces) {
          const size_t end = std::min(geometry.widths.size(), begin + kMaxPieces);
          SLUICE_RETURN_IF_ERROR(
              SubmitPieces(stream, args, geometry, begin, end, first_byte, aligned ? wide_bytes : element_bytes));
          for (size_t i = begin; i < end; ++i) first_byte += geometry.widths[i];
        }
        return absl::OkStatus();
      });
}

}  // namespace sluice::gpu::cuda
