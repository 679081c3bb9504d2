// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

/// What one output position's window covers in one dimension.
struct Cover {
  int64_t first;    ///< Position in the input of the first kernel element that is inside it.
  int64_t count;    ///< Kernel elements inside the input.
  int64_t divisor;  ///< Elements that count for the mean.
};

Cover CoverOf(const Spatial& s, size_t dim, int64_t o, bool count_include_pad) {
  const int64_t start = o * s.strides[dim] - s.pads_begin[dim];
  const int64_t kernel = s.kernel[dim], dilation = s.dilations[dim], length = s.input[dim];
  if (start >= 0 && start + (kernel - 1) * dilation < length) return {start, kernel, kernel};
  const auto elements_below = [&](int64_t bound) {
    return bound <= start ? 0 : std::min(kernel, (bound - start + dilation - 1) / dilation);
  };
  const int64_t before = elements_below(0);
  const int64_t count = elements_below(length) - before;
  // Rounded up, a window may reach beyond even the pads; that part never counts.
  return {start + before * dilation, count, count_include_pad ? elements_below(length + s.pads_end[dim]) : count};
}

template <class T, bool kIsMax>
Result PoolKernel(std::string name, const PoolDescription& d, const Spatial& spatial) {
  const Spatial s = PadToThree(spatial);
  const int64_t planes = d.input[0] * d.input[1];
  // From one element of a plane to the next, and the planes of one image that lie between.
  const int64_t step = d.channels_last ? d.input[1] : 1;
  const bool count_include_pad = !kIsMax && d.count_include_pad;
  return MakeLoopKernel(std::move(name), [planes, step, s, count_include_pad](const KernelArgs& args) {
    using Total = std::conditional_t<kIsMax, T, double>;
    const T* input = Elements<T>(args, 0);
    T* output = Elements<T>(args, 1);
    const int64_t in_area = s.input[0] * s.input[1] * s.input[2];
    const int64_t out_area = s.output[0] * s.output[1] * s.output[2];
    ParallelRanges(planes, out_area * s.kernel[0] * s.kernel[1] * s.kernel[2], [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const T* from = input + (plane / step * step) * in_area + plane % step;
        T* to = output + (plane / step * step) * out_area + plane % step;
        for (int64_t oz = 0; oz < s.output[0]; ++oz) {
          const Cover z = CoverOf(s, 0, oz, count_include_pad);
          for (int64_t oy = 0; oy < s.output[1]; ++oy) {
            const Cover y = CoverOf(s, 1, oy, count_include_pad);
            for (int64_t ox = 0; ox < s.output[2]; ++ox) {
              const Cover x = CoverOf(s, 2, ox, count_include_pad);
              Total total = kIsMax ? static_cast<Total>(std::numeric_limits<T>::lowest()) : Total(0);
              if constexpr (kIsMax && std::is_floating_point_v<T>) total = -std::numeric_limits<T>::infinity();
              for (int64_t i = 0; i < z.count; ++i) {
                for (int64_t j = 0; j < y.count; ++j) {
                  const T* row = from + (((z.first + i * s.dilations[0]) * s.input[1] + y.first + j * s.dilations[1]) *
                                             s.input[2] +
                                         x.first) *
                                            step;
                  for (int64_t k = 0; k < x.count; ++k) {
                    const T value = row[k * s.dilations[2] * step];
                    if constexpr (kIsMax) {
                      total = Larger(total, value);
                    } else {
                      total += static_cast<double>(value);
                    }
                  }
                }
              }
              if constexpr (kIsMax) {
                *to = total;
              } else {
                *to = static_cast<T>(total / static_cast<double>(z.divisor * y.divisor * x.divisor));
              }
              to += step;
            }
          }
        }
      }
    });
  });
}

}  // namespace

Result PlainPool(const PoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const PoolGeometry geometry, MakePoolGeometry(description));
  const bool is_max = description.kind == PoolKind::kMax;
  const Spatial spatial = DropUnitDims(geometry.spatial);
  const std::string name = absl::StrCat(is_max ? "max pool " : "average pool ", DimsToString(description.input), " by ",
                                        DimsToString(description.kernel));
  if (!is_max) {
    return DispatchType(FloatTypes{}, description.type, "average pooling",
                        [&](auto tag) { return PoolKernel<decltype(tag), false>(name, description, spatial); });
  }
  return DispatchType(TypeList<float, double, int8_t, uint8_t>{}, description.type, "max pooling",
                      [&](auto tag) { return PoolKernel<decltype(tag), true>(name, description, spatial); });
}

Result PlainGlobalPool(const GlobalPoolDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const ReduceDescription reduce, MakeGlobalPoolReduce(description));
  if (description.type != DataType::kFp32 && description.type != DataType::kFp64) {
    return LacksType(Backend::kHost, "global pooling", description.type);
  }
  return PlainReduce(reduce);
}

}  // namespace sluice::gpu::host
