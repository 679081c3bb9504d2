// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/data_type.h"

namespace sluice {

// FP16 and BF16 as bits, which g++ 12 does not have as types in C++. To the nearest, ties to even; NaN stays NaN.

inline float FloatFromFp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

inline uint16_t Fp16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more: infinity
  if (magnitude <
      0x38800000u) {  // below 2^-14: subnormal; adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude + 0xfffu + odd - 0x38000000u) >> 13));
}

/// From double must round once: float in between is rounded to odd, which keeps what the second rounding needs.
inline uint16_t Fp16FromDouble(double value) {
  float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back != value && back == back && std::abs(value) < 65536.0) {
    uint32_t bits = std::bit_cast<uint32_t>(nearest);
    if (std::abs(back) > std::abs(value)) --bits;  // truncate, then set the sticky bit
    nearest = std::bit_cast<float>(bits | 1u);
  }
  return Fp16FromFloat(nearest);
}

inline float FloatFromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Of `type`, which is FP16 or BF16.
inline uint16_t HalfFromFloat(DataType type, float value) {
  return type == DataType::kFp16 ? Fp16FromFloat(value) : Bf16FromFloat(value);
}

}  // namespace sluice
