// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

/// IEEE half precision, which g++ 12 does not have as a type in C++.
struct Half {
  uint16_t bits;
};
/// A byte that means false when 0. Not bool: other values than 0 and 1 would be undefined behaviour.
struct Truth {
  uint8_t byte;
};

float ToFloat(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t exponent = (half.bits >> 10) & 0x1fu;
  const uint32_t mantissa = half.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

Half ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};   // NaN
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to 65536 or more: infinity
  if (magnitude <
      0x38800000u) {  // below 2^-14: subnormal; adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<uint16_t>(sign | ((magnitude + 0xfffu + odd - 0x38000000u) >> 13))};
}

/// Double to half must round once: float in between is rounded to odd, which keeps what the second rounding needs.
Half ToHalf(double value) {
  float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back != value && back == back && std::abs(value) < 65536.0) {
    uint32_t bits = std::bit_cast<uint32_t>(nearest);
    if (std::abs(back) > std::abs(value)) --bits;  // truncate, then set the sticky bit
    nearest = std::bit_cast<float>(bits | 1u);
  }
  return ToHalf(nearest);
}

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
