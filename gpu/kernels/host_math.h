// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Before a loop whose iterations do not depend on each other, though its spans may be the same memory (in place):
/// without it the compiler's overlap check sends in-place launches down the scalar path.
#if defined(__GNUC__) && !defined(__clang__)
#define SLUICE_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#else
#define SLUICE_INDEPENDENT_LOOP
#endif

namespace sluice::gpu::host {

// Elementary functions without branches, so that compilers vectorise loops over them (libm's do not). The float
// versions are within 3 ulp where the result is a normal number, which the tests check against double precision.

/// exp(x) as 2^n (1 + p), with p = exp(r) - 1 exact for small r: what both Exp and Tanh need.
struct ExpParts {
  int32_t n;
  float p;
};

inline ExpParts SplitExp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145751953125f;  // short enough for n * kLn2High to be exact
  constexpr float kLn2Low = 1.42860682e-6f;
  constexpr float kRoundToInt = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to the nearest integer
  const float n = (x * kLog2E + kRoundToInt) - kRoundToInt;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor series; |r| <= 0.347, so the first term left out is below 1.5e-8 of the sum.
  float q = 1.0f / 5040.0f;
  q = q * r + 1.0f / 720.0f;
  q = q * r + 1.0f / 120.0f;
  q = q * r + 1.0f / 24.0f;
  q = q * r + 1.0f / 6.0f;
  q = q * r + 0.5f;
  return {static_cast<int32_t>(n), r * r * q + r};
}

/// 2^n for n in [-126, 127].
inline float PowerOfTwo(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

inline float Exp(float x) {
  // Beyond these bounds the result is 0 or infinity anyway; a NaN must not reach the conversion to an integer.
  float bounded = x < -104.0f ? -104.0f : x;
  bounded = bounded > 89.0f ? 89.0f : bounded;
  bounded = x == x ? bounded : 0.0f;
  const ExpParts parts = SplitExp(bounded);
  // In two steps: 2^n itself may be no normal number.
  const int32_t half = parts.n >> 1;
  const float result = (1.0f + parts.p) * PowerOfTwo(half) * PowerOfTwo(parts.n - half);
  return x == x ? result : x;
}

inline float Tanh(float x) {
  // tanh(x) = e / (e + 2) with e = exp(2x) - 1; 1 to within rounding from 9.1 on.
  float bounded = x < -10.0f ? -10.0f : x;
  bounded = bounded > 10.0f ? 10.0f : bounded;
  bounded = x == x ? bounded : 0.0f;
  const ExpParts parts = SplitExp(2.0f * bounded);
  const float scale = PowerOfTwo(parts.n);
  const float e = scale * parts.p + (scale - 1.0f);
  const float result = e / (e + 2.0f);
  return x == x ? result : x;
}

inline double Exp(double x) { return std::exp(x); }
inline double Tanh(double x) { return std::tanh(x); }

template <class T>
T Sigmoid(T x) {
  return T(1) / (T(1) + Exp(-x));
}

template <class T>
T Gelu(T x) {
  return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
}

template <class T>
T GeluTanh(T x) {
  return T(0.5) * x * (T(1) + Tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}

/// Larger of two; NaN when either is, unlike std::fmax.
template <class T>
T Larger(T a, T b) {
  if constexpr (std::numeric_limits<T>::has_quiet_NaN) return (a > b || a != a) ? a : b;
  return a > b ? a : b;
}

template <class T>
T Smaller(T a, T b) {
  if constexpr (std::numeric_limits<T>::has_quiet_NaN) return (a < b || a != a) ? a : b;
  return a < b ? a : b;
}

/// x to the type, towards zero, saturating, NaN to 0.
template <class To, class From>
To SaturateToInteger(From x) {
  constexpr From kLow = static_cast<From>(std::numeric_limits<To>::lowest());
  constexpr From kHigh = static_cast<From>(std::numeric_limits<To>::max());  // may round up by one, hence >=
  if (x != x) return 0;
  if (x <= kLow) return std::numeric_limits<To>::lowest();
  if (x >= kHigh) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

}  // namespace sluice::gpu::host
