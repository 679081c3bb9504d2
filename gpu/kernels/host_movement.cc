// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/status_macros.h"
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
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<2> rest, StridedLoop<2>::Make(rest_dims, {rest_input, rest_output}));
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
  SLUICE_ASSIGN_OR_RETURN(const Dims output, TransposeOutputDims(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(output));
  const Dims input_strides = RowMajorStrides(description.input);
  Dims strides;
  for (int64_t axis : description.permutation) strides.push_back(input_strides[axis]);
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<1> loop, StridedLoop<1>::Make(output, {strides}));
  const std::string name =
      absl::StrCat("transpose ", DimsToString(description.input), " by ", DimsToString(description.permutation));
  return DispatchSize(description.type, "transpose", [&](auto tag) -> Result {
    using T = decltype(tag);
    if (count > 0 && loop.inner_step(0) > 1) {
      Dims merged, merged_strides;
      size_t row = loop.outer_rank();
      for (size_t i = 0; i <= loop.outer_rank(); ++i) {
        merged.push_back(loop.dim(i));
        merged_strides.push_back(loop.step(i)[0]);
        if (loop.step(i)[0] == 1) row = i;
      }
      if (row < loop.outer_rank()) return TiledMove<T>(name, merged, merged_strides, row);
    }
    return StridedMove<T>(name, loop, 0);
  });
}

Result PlainExpand(const ExpandDescription& description) {
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  SLUICE_RETURN_IF_ERROR(ElementCount(description.output).status());
  absl::StatusOr<Dims> broadcast = BroadcastDims(description.input, description.output);
  if (!broadcast.ok() || *broadcast != description.output) {
    return absl::InvalidArgumentError(absl::StrCat("expand: ", DimsToString(description.input),
                                                   " does not broadcast to ", DimsToString(description.output)));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const StridedLoop<1> loop,
      StridedLoop<1>::Make(description.output, {BroadcastStrides(description.input, description.output)}));
  const std::string name =
      absl::StrCat("expand ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "expand", [&](auto tag) { return StridedMove<decltype(tag)>(name, loop, 0); });
}

Result PlainSlice(const SliceDescription& description) {
  const size_t rank = description.input.size();
  SLUICE_RETURN_IF_ERROR(ElementCount(description.input).status());
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.output));
  if (description.starts.size() != rank || description.steps.size() != rank || description.output.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice: starts, steps and output must have one value for each of ", rank, " dimensions"));
  }
  const Dims input_strides = RowMajorStrides(description.input);
  Dims strides(rank, 0);
  int64_t base = 0;
  for (size_t i = 0; i < rank && count > 0; ++i) {
    const int64_t length = description.input[i], start = description.starts[i], step = description.steps[i];
    const int64_t moves = description.output[i] - 1;
    // Divisions instead of products: a step from a file may be any int64.
    const bool inside = start >= 0 && start < length && step != 0 &&
                        (moves == 0 || (step > 0 ? step <= (length - 1 - start) / moves : step >= -(start / moves)));
    if (!inside) {
      return absl::InvalidArgumentError(absl::StrCat("slice: start ", start, ", step ", step, " and ", moves + 1,
                                                     " elements leave dimension ", i, " of ",
                                                     DimsToString(description.input)));
    }
    base += start * input_strides[i];
    strides[i] = moves == 0 ? 0 : step * input_strides[i];
  }
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<1> loop, StridedLoop<1>::Make(description.output, {strides}));
  const std::string name =
      absl::StrCat("slice ", DimsToString(description.input), " to ", DimsToString(description.output));
  return DispatchSize(description.type, "slice",
                      [&](auto tag) { return StridedMove<decltype(tag)>(name, loop, base); });
}

Result PlainConcat(const ConcatDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const Dims output, ConcatOutputDims(description));
  const size_t element = ElementBytes(description.type);
  if (element == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("concatenation: elements of type ", WireName(description.type), " have no fixed size"));
  }
  const int64_t axis = *NormalizeAxis(description.axis, output.size());
  int64_t outer = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= output[i];
  size_t tail = element;
  for (size_t i = axis + 1; i < output.size(); ++i) tail *= output[i];
  std::vector<size_t> widths;  // bytes that each input gives to one outer index
  size_t row = 0;
  for (const Dims& input : description.inputs) {
    widths.push_back(input[axis] * tail);
    row += widths.back();
  }
  std::string name = absl::StrCat("concat ", widths.size(), " inputs to ", DimsToString(output));
  return MakeLoopKernel(std::move(name), [outer, row, widths](const KernelArgs& args) {
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
Result GatherKernel(std::string name, int64_t outer, int64_t length, int64_t index_count, size_t bytes) {
  return MakeLoopKernel(std::move(name), [=](const KernelArgs& args) {
    const std::byte* data = args.spans[0].data;
    const Index* indices = Elements<Index>(args, 1);
    std::byte* output = args.spans[2].data;
    if (bytes == 0) return;
    const int64_t elements = static_cast<int64_t>(bytes / sizeof(float)) + 1;
    ParallelRanges(outer * index_count, elements, [&](int64_t begin, int64_t end) {
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
  SLUICE_ASSIGN_OR_RETURN(const Dims output, GatherOutputDims(description));
  const size_t element = ElementBytes(description.type);
  if (element == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: elements of type ", WireName(description.type), " have no fixed size"));
  }
  const int64_t axis = *NormalizeAxis(description.axis, description.data.size());
  int64_t outer = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= description.data[i];
  size_t bytes = element;
  for (size_t i = axis + 1; i < description.data.size(); ++i) bytes *= description.data[i];
  SLUICE_ASSIGN_OR_RETURN(const int64_t index_count, ElementCount(description.indices));
  const int64_t length = description.data[axis];
  std::string name = absl::StrCat("gather ", DimsToString(description.data), " at ", DimsToString(description.indices));
  if (description.index_type == DataType::kInt32) {
    return GatherKernel<int32_t>(std::move(name), outer, length, index_count, bytes);
  }
  return GatherKernel<int64_t>(std::move(name), outer, length, index_count, bytes);
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
