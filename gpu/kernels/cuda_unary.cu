// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
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
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu::cuda {
namespace {

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
struct Not {
  __device__ uint8_t operator()(uint8_t x) const { return x == 0; }
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

template <class T>
Clip<T> ClipOf(const UnaryDescription& d) {
  if constexpr (std::is_floating_point_v<T>) {
    return {static_cast<T>(d.low), static_cast<T>(d.high)};
  } else {
    return {host::SaturateToInteger<T>(d.low), host::SaturateToInteger<T>(d.high)};
  }
}

/// Computes in float what is stored in half.
template <class T, class Function>
struct Rounded {
  Function function;
  __device__ T operator()(T x) const { return static_cast<T>(function(static_cast<Compute<T>>(x))); }
};

template <class T, class Function>
PreparedKernel MakeElementwise(int ordinal, const std::string& name, int64_t count, Function function) {
  if constexpr (kIsHalf<T>) {
    return MakeMap<T, T>(ordinal, name, count, Rounded<T, Function>{function});
  } else {
    return MakeMap<T, T>(ordinal, name, count, function);
  }
}

template <class T>
PreparedKernel NumberKernel(int ordinal, const std::string& name, int64_t count, const UnaryDescription& d) {
  switch (d.kind) {
    case UnaryKind::kIdentity:
      return MakeElementwise<T>(ordinal, name, count, Identity{});
    case UnaryKind::kRelu:
      return MakeElementwise<T>(ordinal, name, count, Relu{});
    case UnaryKind::kAbs:
      return MakeElementwise<T>(ordinal, name, count, Absolute{});
    case UnaryKind::kClip:
      return MakeElementwise<T>(ordinal, name, count, ClipOf<Compute<T>>(d));
    case UnaryKind::kNeg:
      if constexpr (std::is_signed_v<Compute<T>>) return MakeElementwise<T>(ordinal, name, count, Negative{});
      break;
    case UnaryKind::kSign:
      if constexpr (std::is_signed_v<Compute<T>>) return MakeElementwise<T>(ordinal, name, count, Sign{});
      break;
    default:
      break;
  }
  return LacksType(Backend::kCuda, NameOf(d.kind), d.type);
}

template <class T>
PreparedKernel FloatKernel(int ordinal, const std::string& name, int64_t count, const UnaryDescription& d) {
  using C = Compute<T>;
  const C alpha = static_cast<C>(d.alpha);
  const C beta = static_cast<C>(d.beta);
  switch (d.kind) {
    case UnaryKind::kCeil:
      return MakeElementwise<T>(ordinal, name, count, Ceil{});
    case UnaryKind::kCos:
      return MakeElementwise<T>(ordinal, name, count, Cosine{});
    case UnaryKind::kErf:
      return MakeElementwise<T>(ordinal, name, count, ErrorFunction{});
    case UnaryKind::kExp:
      return MakeElementwise<T>(ordinal, name, count, Exponential{});
    case UnaryKind::kFloor:
      return MakeElementwise<T>(ordinal, name, count, Floor{});
    case UnaryKind::kGelu:
      if constexpr (kIsHalf<T>) return MakeElementwise<T>(ordinal, name, count, HalfGelu{});
      return MakeElementwise<T>(ordinal, name, count, Gelu{});
    case UnaryKind::kGeluTanh:
      return MakeElementwise<T>(ordinal, name, count, GeluTanh{});
    case UnaryKind::kHardSigmoid:
      return MakeElementwise<T>(ordinal, name, count, HardSigmoid<C>{alpha, beta});
    case UnaryKind::kHardSwish:
      return MakeElementwise<T>(ordinal, name, count, HardSwish{});
    case UnaryKind::kLeakyRelu:
      return MakeElementwise<T>(ordinal, name, count, LeakyRelu<C>{alpha});
    case UnaryKind::kLog:
      return MakeElementwise<T>(ordinal, name, count, Logarithm{});
    case UnaryKind::kReciprocal:
      return MakeElementwise<T>(ordinal, name, count, Reciprocal{});
    case UnaryKind::kSigmoid:
      return MakeElementwise<T>(ordinal, name, count, Sigmoid{});
    case UnaryKind::kSin:
      return MakeElementwise<T>(ordinal, name, count, Sine{});
    case UnaryKind::kSqrt:
      return MakeElementwise<T>(ordinal, name, count, SquareRoot{});
    case UnaryKind::kTanh:
      return MakeElementwise<T>(ordinal, name, count, HyperbolicTangent{});
    default:
      return NumberKernel<T>(ordinal, name, count, d);
  }
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareUnary(const UnaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, CheckUnary(description));
  const std::string name = absl::StrCat(NameOf(description.kind), " ", DimsToString(description.dims));
  if (description.type == DataType::kBool) {
    // Bytes, not bool: a file may hold other values than 0 and 1.
    if (description.kind == UnaryKind::kNot) return MakeMap<uint8_t, uint8_t>(ordinal_, name, count, Not{});
    if (description.kind == UnaryKind::kIdentity) return MakeMap<uint8_t, uint8_t>(ordinal_, name, count, Identity{});
  }
  const auto prepare = [&](auto tag) -> PreparedKernel {
    using T = decltype(tag);
    if constexpr (std::is_floating_point_v<Compute<T>>) {
      return FloatKernel<T>(ordinal_, name, count, description);
    } else {
      return NumberKernel<T>(ordinal_, name, count, description);
    }
  };
  return DispatchHalf(description.type, prepare, [&] {
    return DispatchType(Backend::kCuda, NumberTypes{}, description.type, NameOf(description.kind), prepare);
  });
}

}  // namespace sluice::gpu::cuda
