// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "base/half.h"
#include "base/status_macros.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

/// IEEE half precision.
struct Half {
  uint16_t bits;
};
/// A byte that means false when 0. Not bool: other values than 0 and 1 would be undefined behaviour.
struct Truth {
  uint8_t byte;
};

float ToFloat(Half half) { return FloatFromFp16(half.bits); }
Half ToHalf(float value) { return {Fp16FromFloat(value)}; }
Half ToHalf(double value) { return {Fp16FromDouble(value)}; }

template <class To, class From>
To Convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<From, Half>) {
    return Convert<To>(ToFloat(x));
  } else if constexpr (std::is_same_v<From, Truth>) {
    return Convert<To>(static_cast<uint8_t>(x.byte != 0));
  } else if constexpr (std::is_same_v<To, Truth>) {
    return Truth{static_cast<uint8_t>(x != From(0))};
  } else if constexpr (std::is_same_v<To, Half>) {
    if constexpr (std::is_floating_point_v<From>) {
      return ToHalf(x);
    } else {
      return ToHalf(static_cast<double>(x));
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return SaturateToInteger<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
Result CastKernel(std::string name, int64_t count) {
  return MakeLoopKernel(std::move(name), [count](const KernelArgs& args) {
    const From* input = Elements<From>(args, 0);
    To* output = Elements<To>(args, 1);
    ParallelRanges(count, 1, [=](int64_t begin, int64_t end) {
      SLUICE_INDEPENDENT_LOOP
      for (int64_t i = begin; i < end; ++i) output[i] = Convert<To>(input[i]);
    });
  });
}

/// Calls body with a value of the type, Half and Truth included.
template <class Body>
Result DispatchCastType(DataType type, const Body& body) {
  if (type == DataType::kFp16) return body(Half{});
  if (type == DataType::kBool) return body(Truth{});
  return DispatchType(NumberTypes{}, type, "cast", body);
}

}  // namespace

Result PlainCast(const CastDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(description.dims));
  const std::string name = absl::StrCat("cast ", WireName(description.from), " to ", WireName(description.to), " ",
                                        DimsToString(description.dims));
  return DispatchCastType(description.from, [&](auto from) -> Result {
    return DispatchCastType(description.to,
                            [&](auto to) { return CastKernel<decltype(from), decltype(to)>(name, count); });
  });
}

}  // namespace sluice::gpu::host
