// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_map.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"

namespace sluice::gpu::cuda {
namespace {

/// A byte that means false when 0. Not bool: other values than 0 and 1 would be undefined behaviour.
struct Truth {
  uint8_t byte;
};

/// Towards zero, saturating, NaN to 0.
template <class To, class From>
__device__ To SaturateToInteger(From x) {
  if (x != x) return 0;
  if (x <= static_cast<From>(kLowest<To>)) return kLowest<To>;
  if (x >= static_cast<From>(kHighest<To>)) return kHighest<To>;  // the bound may have been rounded up by one, hence >=
  return static_cast<To>(x);
}

template <class To>
struct ConvertTo {
  template <class From>
  __device__ To operator()(From x) const {
    if constexpr (std::is_same_v<From, To>) {
      return x;
    } else if constexpr (kIsHalf<From>) {
      return operator()(static_cast<float>(x));
    } else if constexpr (std::is_same_v<From, Truth>) {
      return operator()(static_cast<uint8_t>(x.byte != 0));
    } else if constexpr (std::is_same_v<To, Truth>) {
      return Truth{static_cast<uint8_t>(x != From(0))};
    } else if constexpr (kIsHalf<To>) {
      if constexpr (std::is_same_v<From, float>) {
        return static_cast<To>(x);
      } else {
        return static_cast<To>(static_cast<double>(x));  // Rounds once.
      }
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      return SaturateToInteger<To>(x);
    } else {
      return static_cast<To>(x);
    }
  }
};

/// Calls body with a value of the type, halves and Truth included.
template <class Body>
PreparedKernel DispatchCastType(DataType type, const Body& body) {
  if (type == DataType::kBool) return body(Truth{});
  return DispatchHalf(type, body, [&] { return DispatchType(Backend::kCuda, NumberTypes{}, type, "cast", body); });
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareCast(const CastDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.dims));
  const std::string name = absl::StrCat("cast ", WireName(description.from), " to ", WireName(description.to), " ",
                                        DimsToString(description.dims));
  return DispatchCastType(description.from, [&](auto from) -> PreparedKernel {
    using From = decltype(from);
    return DispatchCastType(description.to, [&](auto to) -> PreparedKernel {
      using To = decltype(to);
      return MakeMap<From, To>(ordinal_, name, count, ConvertTo<To>{});
    });
  });
}

}  // namespace sluice::gpu::cuda
