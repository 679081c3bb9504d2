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
#include "gpu/kernels/cuda_elementwise.cuh"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_map.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu::cuda {
namespace {

struct Not {
  __device__ uint8_t operator()(uint8_t x) const { return x == 0; }
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
