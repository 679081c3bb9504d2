// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gpu/kernels/cuda_math.cuh"

namespace sluice::gpu::cuda {

// What the elementwise kernels compute with one element, or two.

// Kinds for numbers of any type. Negation and absolute value wrap.
struct Identity {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};
struct Relu {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      return x < T(0) ? T(0) : x;
    }
  }
};
struct Negative {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return -x;
    } else {
      return static_cast<T>(Wrapping<T>(0) - static_cast<Wrapping<T>>(x));
    }
  }
};
struct Absolute {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return fabs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      return x < T(0) ? Negative{}(x) : x;
    }
  }
};
struct Sign {
  template <class T>
  __device__ T operator()(T x) const {
    return x != x ? x : static_cast<T>((x > T(0)) - (x < T(0)));
  }
};
template <class T>
struct Clip {
  T low, high;
  __device__ T operator()(T x) const {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};

// Kinds for floating types; the overloads of the functions make the precision.
struct Ceil {
  template <class T>
  __device__ T operator()(T x) const {
    return ceil(x);
  }
};
struct Floor {
  template <class T>
  __device__ T operator()(T x) const {
    return floor(x);
  }
};
struct Cosine {
  template <class T>
  __device__ T operator()(T x) const {
    return cos(x);
  }
};
struct Sine {
  template <class T>
  __device__ T operator()(T x) const {
    return sin(x);
  }
};
struct ErrorFunction {
  template <class T>
  __device__ T operator()(T x) const {
    return erf(x);
  }
};
struct Exponential {
  template <class T>
  __device__ T operator()(T x) const {
    return exp(x);
  }
};
struct Logarithm {
  template <class T>
  __device__ T operator()(T x) const {
    return log(x);
  }
};
struct SquareRoot {
  template <class T>
  __device__ T operator()(T x) const {
    return sqrt(x);
  }
};
struct HyperbolicTangent {
  template <class T>
  __device__ T operator()(T x) const {
    return tanh(x);
  }
};
struct Reciprocal {
  template <class T>
  __device__ T operator()(T x) const {
    return T(1) / x;
  }
};
struct Sigmoid {
  template <class T>
  __device__ T operator()(T x) const {
    return T(1) / (T(1) + exp(-x));
  }
};
struct Gelu {
  template <class T>
  __device__ T operator()(T x) const {
    return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
  }
};
/// The same for halves, to 3e-7: erf by Abramowitz and Stegun 7.1.26, with the hardware's exponential and quotient.
/// The library's erff is exact to a digit that a half does not have, and takes longer than the memory does.
struct HalfGelu {
  __device__ float operator()(float x) const {
    const float z = fabsf(x) * 0.70710678118654752440f;
    const float t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
    const float polynomial =
        t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    const float erf_of_z = 1.0f - polynomial * __expf(-z * z);
    return 0.5f * x * (1.0f + copysignf(erf_of_z, x));
  }
};
struct GeluTanh {
  template <class T>
  __device__ T operator()(T x) const {
    return T(0.5) * x * (T(1) + tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
  }
};
template <class T>
struct HardSigmoid {
  T alpha, beta;
  __device__ T operator()(T x) const { return Clip<T>{T(0), T(1)}(alpha * x + beta); }
};
struct HardSwish {
  template <class T>
  __device__ T operator()(T x) const {
    return x * Clip<T>{T(0), T(1)}(x / T(6) + T(0.5));
  }
};
template <class T>
struct LeakyRelu {
  T alpha;
  __device__ T operator()(T x) const { return x < T(0) ? alpha * x : x; }
};

// Sum, difference and product of integers wrap: through the unsigned type that is defined.
struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Sub {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
    } else {
      return a - b;
    }
  }
};
struct Mul {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};
struct Div {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return Sub{}(T(0), a);
      }
    }
    return static_cast<T>(a / b);
  }
};
struct Mod {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return fmod(a, b);
    } else if constexpr (std::is_unsigned_v<T>) {
      return b == 0 ? T(0) : static_cast<T>(a % b);
    } else {
      if (b == 0 || b == -1) return 0;
      const T rest = static_cast<T>(a % b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    }
  }
};
struct Pow {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 == 0 ? T(1) : T(-1)) : T(0);
      using U = std::make_unsigned_t<T>;
      U result = 1, base = static_cast<U>(a);
      for (U left = static_cast<U>(b); left != 0; left >>= 1, base *= base) {
        if (left & 1) result *= base;
      }
      return static_cast<T>(result);
    } else {
      // In double: CUDA's own powf is off by up to 4 units of the last place, and powers of integers should be exact.
      return b == T(2) ? a * a : static_cast<T>(pow(static_cast<double>(a), static_cast<double>(b)));
    }
  }
};

}  // namespace sluice::gpu::cuda
