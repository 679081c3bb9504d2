// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/spatial.h"

namespace sluice::gpu::cuda {
namespace {

/// A checked Spatial of three dimensions; Index holds every position in one plane.
template <class Index>
struct PoolShape {
  int64_t count = 0;  ///< Of the output.
  Index input[3] = {}, kernel[3] = {}, strides[3] = {}, dilations[3] = {}, pads_begin[3] = {}, pads_end[3] = {};
  Divider output[3];
  bool count_include_pad = false;
};

/// What one output position's window covers in one dimension.
template <class Index>
struct Cover {
  Index first;    ///< Position in the input of the first kernel element that is inside it.
  Index count;    ///< Kernel elements inside the input.
  Index divisor;  ///< Elements that count for the mean.
};

/// Kernel elements of a window from `start` on that lie before `bound`.
template <class Index>
__device__ Index ElementsBelow(Index bound, Index start, Index kernel, Index dilation) {
  if (bound <= start) return 0;
  const Index elements = (bound - start + dilation - 1) / dilation;
  return elements < kernel ? elements : kernel;
}

template <class Index>
__device__ Cover<Index> CoverOf(const PoolShape<Index>& s, int dim, Index o) {
  const Index start = o * s.strides[dim] - s.pads_begin[dim];
  const Index kernel = s.kernel[dim], dilation = s.dilations[dim], length = s.input[dim];
  if (start >= 0 && start + (kernel - 1) * dilation < length) return {start, kernel, kernel};
  const Index before = ElementsBelow<Index>(0, start, kernel, dilation);
  const Index count = ElementsBelow<Index>(length, start, kernel, dilation) - before;
  // Rounded up, a window may reach beyond even the pads; that part never counts.
  const Index padded =
      s.count_include_pad ? ElementsBelow<Index>(length + s.pads_end[dim], start, kernel, dilation) : count;
  return {start + before * dilation, count, padded};
}

/// One output for every thread.
template <class T, bool kIsMax, class Index>
__global__ void Pool(const __grid_constant__ PoolShape<Index> s, const T* input, T* output) {
  WaitForPrevious();
  using Total = std::conditional_t<kIsMax, Compute<T>, double>;
  for (int64_t i = GridThread(); i < s.count; i += GridStep()) {
    int64_t place[3];
    int64_t plane = i;
    for (int dim = 2; dim >= 0; --dim) plane = s.output[dim].Divide(plane, place[dim]);
    const Cover<Index> z = CoverOf(s, 0, static_cast<Index>(place[0]));
    const Cover<Index> y = CoverOf(s, 1, static_cast<Index>(place[1]));
    const Cover<Index> x = CoverOf(s, 2, static_cast<Index>(place[2]));
    const T* from = input + plane * s.input[0] * s.input[1] * s.input[2];
    Total total = kIsMax ? static_cast<Total>(kLowest<Compute<T>>) : Total(0);
    for (Index a = 0; a < z.count; ++a) {
      for (Index b = 0; b < y.count; ++b) {
        const T* row =
            from + ((z.first + a * s.dilations[0]) * s.input[1] + y.first + b * s.dilations[1]) * s.input[2] + x.first;
        for (Index c = 0; c < x.count; ++c) {
          const auto value = static_cast<Compute<T>>(row[c * s.dilations[2]]);
          if constexpr (kIsMax) {
            total = Larger{}(total, value);
          } else {
            total += static_cast<double>(value);
          }
        }
      }
    }
    if constexpr (kIsMax) {
      output[i] = static_cast<T>(total);
    } else {
      const double divisor =
          static_cast<double>(z.divisor) * static_cast<double>(y.divisor) * static_cast<double>(x.divisor);
      output[i] = static_cast<T>(total / divisor);
    }
  }
}

template <class Index>
PoolShape<Index> ShapeOf(int64_t planes, const Spatial& s, bool count_include_pad) {
  PoolShape<Index> shape;
  shape.count = planes;
  for (size_t i = 0; i < 3; ++i) {
    shape.count *= s.output[i];
    shape.input[i] = static_cast<Index>(s.input[i]);
    shape.kernel[i] = static_cast<Index>(s.kernel[i]);
    shape.strides[i] = static_cast<Index>(s.strides[i]);
    shape.dilations[i] = static_cast<Index>(s.dilations[i]);
    shape.pads_begin[i] = static_cast<Index>(s.pads_begin[i]);
    shape.pads_end[i] = static_cast<Index>(s.pads_end[i]);
    shape.output[i] = Divider(s.output[i]);
  }
  shape.count_include_pad = count_include_pad;
  return shape;
}

template <class T, bool kIsMax, class Index>
PreparedKernel MakePool(int ordinal, std::string name, int64_t planes, const Spatial& s, bool count_include_pad) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Pool<T, kIsMax, Index>));
  const PoolShape<Index> shape = ShapeOf<Index>(planes, s, count_include_pad);
  const int64_t input_count = planes * s.input[0] * s.input[1] * s.input[2];
  return MakeLaunchKernel(std::move(name), {BytesOf<T>(input_count), BytesOf<T>(shape.count)},
                          [shape](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            LaunchAfterPrevious(Pool<T, kIsMax, Index>, BlocksFor(shape.count), kBlockThreads, stream,
                                                shape, Elements<const T>(args, 0), Elements<T>(args, 1));
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

/// True when every position, sum and difference in one plane fits 31 bits.
bool IsSmall(const Spatial& s) {
  constexpr int64_t kBound = int64_t{1} << 29;
  int64_t area = 1;
  for (size_t i = 0; i < 3; ++i) {
    area *= s.input[i];
    const int64_t reach = s.kernel[i] * s.dilations[i];  // both below 2^30
    if (area > kBound || s.input[i] + s.pads_begin[i] + s.pads_end[i] > kBound || reach > kBound) return false;
    if (s.strides[i] > kBound || s.dilations[i] > kBound) return false;
  }
  return true;
}

/// True when one window is all of a plane.
bool IsGlobal(const Spatial& s) {
  for (size_t i = 0; i < s.input.size(); ++i) {
    if (s.output[i] != 1 || s.kernel[i] != s.input[i] || s.dilations[i] != 1 || s.pads_begin[i] != 0 ||
        s.pads_end[i] != 0) {
      return false;
    }
  }
  return true;
}

constexpr int kPack = 8;  // Neighbouring channels of one thread, where their number allows: 16 bytes of halves.

/// One place of the output for every thread, in kEach channels. Images in two dimensions, the first of the shape's
/// is 1. `units` of kEach channels make a place; count is of units.
template <class T, bool kIsMax, int kEach>
__global__ void PoolChannelsLast(const __grid_constant__ PoolShape<int32_t> s, Divider units, int32_t unit_count,
                                 int64_t count, const T* input, T* output) {
  WaitForPrevious();
  using Unit = Pack<T, kEach>;
  for (int64_t i = GridThread(); i < count; i += GridStep()) {
    int64_t unit, place[3];
    int64_t image = units.Divide(i, unit);
    for (int dim = 2; dim >= 1; --dim) image = s.output[dim].Divide(image, place[dim]);
    const Cover<int32_t> y = CoverOf(s, 1, static_cast<int32_t>(place[1]));
    const Cover<int32_t> x = CoverOf(s, 2, static_cast<int32_t>(place[2]));
    const auto* from = reinterpret_cast<const Unit*>(input) + image * s.input[1] * s.input[2] * unit_count + unit;
    float totals[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) totals[k] = kIsMax ? kLowest<float> : 0.0f;
    for (int32_t b = 0; b < y.count; ++b) {
      for (int32_t c = 0; c < x.count; ++c) {
        const int64_t at = int64_t{y.first + b * s.dilations[1]} * s.input[2] + x.first + c * s.dilations[2];
        const Unit value = from[at * unit_count];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          const auto number = static_cast<float>(value.values[k]);
          totals[k] = kIsMax ? Larger{}(totals[k], number) : totals[k] + number;
        }
      }
    }
    Unit result;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if constexpr (!kIsMax) totals[k] /= static_cast<float>(y.divisor) * static_cast<float>(x.divisor);
      result.values[k] = static_cast<T>(totals[k]);
    }
    reinterpret_cast<Unit*>(output)[i] = result;
  }
}

template <class T, bool kIsMax, int kEach>
PreparedKernel MakePoolChannelsLast(int ordinal, std::string name, int64_t planes, int64_t channels, const Spatial& s,
                                    bool count_include_pad) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, PoolChannelsLast<T, kIsMax, kEach>));
  const PoolShape<int32_t> shape = ShapeOf<int32_t>(planes, s, count_include_pad);
  const int64_t input_count = planes * s.input[0] * s.input[1] * s.input[2];
  const int64_t units = channels / kEach;
  return MakeLaunchKernel(
      std::move(name), {BytesOf<T>(input_count), BytesOf<T>(shape.count)},
      [shape, units, divider = Divider(units)](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
        if (!IsAligned(args.spans[0].data, 16) || !IsAligned(args.spans[1].data, 16)) {
          return absl::InternalError("pooling: spans do not begin on 16 bytes");
        }
        const int64_t count = shape.count / kEach;
        LaunchAfterPrevious(PoolChannelsLast<T, kIsMax, kEach>, BlocksFor(count), kBlockThreads, stream, shape, divider,
                            static_cast<int32_t>(units), count, Elements<const T>(args, 0), Elements<T>(args, 1));
        return SLUICE_CUDA_STATUS(cudaGetLastError());
      });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PreparePool(const PoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const PoolGeometry geometry, MakePoolGeometry(description));
  const bool is_max = description.kind == PoolKind::kMax;
  const std::string name = absl::StrCat(is_max ? "max pool " : "average pool ", DimsToString(description.input), " by ",
                                        DimsToString(description.kernel));
  if (description.channels_last) {
    const bool pads = description.count_include_pad && !is_max;
    if (description.input.size() != 4 || !IsHalfType(description.type)) {
      return absl::UnimplementedError("the CUDA backend pools images of FP16 and BF16 with the channels last only");
    }
    const Spatial images = PadToThree(geometry.spatial);
    const int64_t channels = description.input[1];
    if (!IsSmall(images) || channels > (1 << 30)) {
      return absl::UnimplementedError(absl::StrCat("pooling: ", DimsToString(description.input), " is too large"));
    }
    const auto prepare = [&](auto tag) {
      using T = decltype(tag);
      const bool packs = channels % kPack == 0;
      const auto make = is_max ? (packs ? MakePoolChannelsLast<T, true, kPack> : MakePoolChannelsLast<T, true, 1>)
                               : (packs ? MakePoolChannelsLast<T, false, kPack> : MakePoolChannelsLast<T, false, 1>);
      return make(ordinal_, name, geometry.planes, channels, images, pads);
    };
    return DispatchHalf(description.type, prepare, [&]() -> PreparedKernel { return prepare(__half{}); });
  }
  const Spatial spatial = PadToThree(DropUnitDims(geometry.spatial));
  const auto prepare = [&]<bool kIsMax>(auto tag, std::bool_constant<kIsMax>) -> PreparedKernel {
    using T = decltype(tag);
    if (IsGlobal(spatial)) {  // one thread for each window would walk it all
      return PrepareReduce({.kind = kIsMax ? ReduceKind::kMax : ReduceKind::kMean,
                            .type = description.type,
                            .input = {geometry.planes, spatial.input[0], spatial.input[1], spatial.input[2]},
                            .axes = {1, 2, 3}});
    }
    const bool pads = description.count_include_pad && !kIsMax;
    if (IsSmall(spatial)) return MakePool<T, kIsMax, int32_t>(ordinal_, name, geometry.planes, spatial, pads);
    return MakePool<T, kIsMax, int64_t>(ordinal_, name, geometry.planes, spatial, pads);
  };
  if (!is_max) {
    const auto average = [&](auto tag) { return prepare(tag, std::false_type{}); };
    return DispatchHalf(description.type, average, [&] {
      return DispatchType(Backend::kCuda, FloatTypes{}, description.type, "average pooling", average);
    });
  }
  const auto max = [&](auto tag) { return prepare(tag, std::true_type{}); };
  return DispatchHalf(description.type, max, [&] {
    return DispatchType(Backend::kCuda, TypeList<float, double, int8_t, uint8_t>{}, description.type, "max pooling",
                        max);
  });
}

}  // namespace sluice::gpu::cuda
