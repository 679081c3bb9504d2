// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kTile = 16;  // elements; a tile of both sides stays in the first-level cache

template <class T>
void MoveRow(const T* input, int64_t step, T* output, int64_t count) {
  if (step == 1) {
    std::memcpy(output, input, static_cast<size_t>(count) * sizeof(T));
  } else if (step == 0) {
    std::fill(output, output + count, *input);
  } else {
    for (int64_t i = 0; i < count; ++i) output[i] = input[i * step];
  }
}

/// Writes the output in row-major order and reads the input with strides from `base`: expand, slice and most
/// transposes.
template <class T>
Result StridedMove(std::string name, const StridedLoop<1>& loop, int64_t base) {
  return MakeLoopKernel(std::move(name), [loop, base](const KernelArgs& args) {
    const T* input = Elements<T>(args, 0) + base;
    T* output = Elements<T>(args, 1);
    const int64_t count = loop.inner_count(), step = loop.inner_step(0);
    if (loop.outer_count() == 1) {
      ParallelRanges(count, 1, [&](int64_t begin, int64_t end) {
        MoveRow(input + begin * step, step, output + begin, end - begin);
      });
      return;
    }
    loop.Run([&](int64_t index, const StridedLoop<1>::Offsets& offsets) {
      MoveRow(input + offsets[0], step, output + index * count, count);
    });
  });
}

/// Transposes whose innermost dimension jumps through the input: tiles of the input's innermost dimension (`row` in the
/// output) by the output's innermost, so that neither side touches a cache line once per element.
template <class T>
Result TiledMove(std::string name, const Dims& output_dims, const Dims& strides, size_t row) {
  // Everything but the two tiled dimensions, as offsets into both sides.
  Dims rest_dims, rest_input, rest_output;
  const Dims output_strides = RowMajorStrides(output_dims);
  for (size_t i = 0; i + 1 < output_dims.size(); ++i) {
    if (i == row) continue;
    rest_dims.push_back(output_dims[i]);
    rest_input.push_back(strides[i]);
    rest_output.push_back(output_strides[i]);
  }
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<2> rest,
                          StridedLoop<2>::Make(MergeDims({rest_dims, 1, {rest_input, rest_output}})));
  const int64_t rows = output_dims[row], columns = output_dims.back();
  const int64_t row_out = output_strides[row], column_in = strides.back();
  return MakeLoopKernel(std::move(name), [=](const KernelArgs& args) {
    const T* input = Elements<T>(args, 0);
    T* output = Elements<T>(args, 1);
    const int64_t row_tiles = (rows + kTile - 1) / kTile;
    const auto band = [&](const T* from, T* to, int64_t tile) {
      const int64_t row_end = std::min(rows, (tile + 1) * kTile);
      for (int64_t column = 0; column < columns; column += kTile) {
        const int64_t column_end = std::min(columns, column + kTile);
        for (int64_t r = tile * kTile; r < row_end; ++r) {
          for (int64_t c = column; c < column_end; ++c) to[r * row_out + c] = from[c * column_in + r];
        }
      }
    };
    const int64_t inner = rest.inner_count();
    ParallelRanges(rest.outer_count() * inner * row_tiles, kTile * columns, [&](int64_t begin, int64_t end) {
      const int64_t first = begin / (inner * row_tiles), last = (end - 1) / (inner * row_tiles);
      rest.RunRange(first, last + 1, [&](int64_t index, const StridedLoop<2>::Offsets& offsets) {
        const int64_t low = std::max(begin, index * inner * row_tiles) - index * inner * row_tiles;
        const int64_t high = std::min(end, (index + 1) * inner * row_tiles) - index * inner * row_tiles;
        for (int64_t i = low; i < high; ++i) {
          const int64_t k = i / row_tiles;
          band(input + offsets[0] + k * rest.inner_step(0), output + offsets[1] + k * rest.inner_step(1),
               i % row_tiles);
        }
      });
    });
  });
}

}  // namespace

Result PlainTranspose(const TransposeDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeTransposeWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<1> loop, StridedLoop<1>::Make(walk));
  const std::string name =
      absl::StrCat("transpose ", DimsToString(description.input), " by ", DimsToString(description.permutation));
  return DispatchSize(description.type, "transpose", [&](auto tag) -> Result {
    using T = decltype(tag);
    const Dims& strides = walk.strides[0];
    if (walk.count > 0 && strides.back() > 1) {
      const auto row = std::find(strides.begin(), strides.end(), 1);
      if (row != strides.end()) return TiledMove<T>(name, walk.dims, strides, row - strides.begin());
    }
    return StridedMove<T>(name, loop, 0);
  });
}

Result PlainExpand(const ExpandDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeExpandWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<1> loop, StridedLoop<1>::Make(walk));
  const std::string name =
      absl::StrCat("expand ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "expand", [&](auto tag) { return StridedMove<decltype(tag)>(name, loop, 0); });
}

Result PlainSlice(const SliceDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk walk, MakeSliceWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<1> loop, StridedLoop<1>::Make(walk));
  const std::string name =
      absl::StrCat("slice ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "slice",
                      [&](auto tag) { return StridedMove<decltype(tag)>(name, loop, walk.base); });
}

Result PlainConcat(const ConcatDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ConcatGeometry geometry, MakeConcatGeometry(description));
  std::string name = absl::StrCat("concat ", geometry.widths.size(), " inputs to ", DimsToString(geometry.output));
  return MakeLoopKernel(std::move(name), [outer = geometry.outer, row = geometry.row_bytes,
                                          widths = geometry.widths](const KernelArgs& args) {
    std::byte* output = args.spans[widths.size()].data;
    ParallelRanges(outer, static_cast<int64_t>(row / sizeof(float)), [&](int64_t begin, int64_t end) {
      size_t offset = 0;
      for (size_t input = 0; input < widths.size(); ++input) {
        const size_t width = widths[input];
        if (width == 0) continue;
        for (int64_t i = begin; i < end; ++i) {
          std::memcpy(output + i * row + offset, args.spans[input].data + i * width, width);
        }
        offset += width;
      }
    });
  });
}

namespace {

template <class Index>
Result GatherKernel(std::string name, const GatherGeometry& geometry) {
  return MakeLoopKernel(std::move(name), [geometry](const KernelArgs& args) {
    const int64_t length = geometry.length, index_count = geometry.index_count;
    const size_t bytes = geometry.row_bytes;
    const std::byte* data = args.spans[0].data;
    const Index* indices = Elements<Index>(args, 1);
    std::byte* output = args.spans[2].data;
    if (bytes == 0) return;
    const int64_t elements = static_cast<int64_t>(bytes / sizeof(float)) + 1;
    ParallelRanges(geometry.outer * index_count, elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / index_count;
        int64_t index = indices[i - o * index_count];
        if (index < 0) index += length;
        index = std::clamp<int64_t>(index, 0, length - 1);
        std::memcpy(output + i * bytes, data + (o * length + index) * bytes, bytes);
      }
    });
  });
}

}  // namespace

Result PlainGather(const GatherDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const GatherGeometry geometry, MakeGatherGeometry(description));
  std::string name = absl::StrCat("gather ", DimsToString(description.data), " at ", DimsToString(description.indices));
  if (description.index_type == DataType::kInt32) {
    return GatherKernel<int32_t>(std::move(name), geometry);
  }
  return GatherKernel<int64_t>(std::move(name), geometry);
}

Result PlainCopy(const CopyDescription& description) {
  const int64_t size = static_cast<int64_t>(description.size_bytes);
  if (size < 0) return absl::InvalidArgumentError("copy: the size must be below 2^63 bytes");
  return MakeLoopKernel(absl::StrCat("copy ", size, " bytes"), [size](const KernelArgs& args) {
    ParallelRanges(size, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(args.spans[1].data + begin, args.spans[0].data + begin, end - begin);
    });
  });
}

Result PlainFill(const FillDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.dims));
  if (ElementBytes(description.type) != 0 && description.value.size() != ElementBytes(description.type)) {
    return absl::InvalidArgumentError(absl::StrCat("fill: a value of ", WireName(description.type), " must have ",
                                                   ElementBytes(description.type), " bytes, it has ",
                                                   description.value.size()));
  }
  const std::string name = absl::StrCat("fill ", DimsToString(description.dims));
  return DispatchSize(description.type, "fill", [&](auto tag) -> Result {
    using T = decltype(tag);
    T value;
    std::memcpy(&value, description.value.data(), sizeof(T));
    return MakeLoopKernel(name, [count, value](const KernelArgs& args) {
      T* output = Elements<T>(args, 0);
      ParallelRanges(count, 1, [&](int64_t begin, int64_t end) { std::fill(output + begin, output + end, value); });
    });
  });
}

}  // namespace sluice::gpu::host
