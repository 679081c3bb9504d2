// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <type_traits>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_elementwise.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/names.h"

namespace sluice::gpu::host {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class From, class To, class Function>
std::unique_ptr<Kernel> Map(std::string name, int64_t count, Function function) {
  return MakeLoopKernel(std::move(name), [count, function](const KernelArgs& args) {
    const From* input = Elements<From>(args, 0);
    To* output = Elements<To>(args, 1);
    ParallelRanges(count, 1, [=](int64_t begin, int64_t end) {
      SLUICE_INDEPENDENT_LOOP
      for (int64_t i = begin; i < end; ++i) output[i] = function(input[i]);
    });
  });
}

template <class Use>
using UseResult = std::invoke_result_t<const Use&, std::identity>;

/// Calls use(function) with the function that `d` names, of kinds that exist for integers too; UNIMPLEMENTED for
/// others. Negation and absolute value wrap, through the unsigned type, so that the lowest value is not undefined
/// behaviour.
template <class T, class Use>
UseResult<Use> UseNumberFunction(const UnaryDescription& d, const Use& use) {
  switch (d.kind) {
    case UnaryKind::kIdentity:
      return use([](T x) { return x; });
    case UnaryKind::kRelu:
      return use([](T x) { return x < T(0) ? T(0) : x; });
    case UnaryKind::kAbs:
      return use([](T x) {
        if constexpr (std::is_floating_point_v<T>) {
          return std::abs(x);
        } else {
          using U = std::make_unsigned_t<T>;
          return x < T(0) ? static_cast<T>(U(0) - static_cast<U>(x)) : x;
        }
      });
    case UnaryKind::kClip: {
      T low, high;
      if constexpr (std::is_floating_point_v<T>) {
        low = static_cast<T>(d.low);
        high = static_cast<T>(d.high);
      } else {
        low = SaturateToInteger<T>(d.low);
        high = SaturateToInteger<T>(d.high);
      }
      return use([low, high](T x) {
        const T raised = x < low ? low : x;
        return raised > high ? high : raised;
      });
    }
    case UnaryKind::kNeg:
      if constexpr (std::is_floating_point_v<T>) return use([](T x) { return -x; });
      if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
        using U = std::make_unsigned_t<T>;
        return use([](T x) { return static_cast<T>(U(0) - static_cast<U>(x)); });
      }
      break;
    case UnaryKind::kSign:
      if constexpr (std::is_signed_v<T>) {
        return use([](T x) { return x != x ? x : T((x > T(0)) - (x < T(0))); });
      }
      break;
    default:
      break;
  }
  return LacksType(Backend::kHost, NameOf(d.kind), TypeOf<T>());
}

/// The same with the kinds that exist for floating types only.
template <class T, class Use>
UseResult<Use> UseFloatFunction(const UnaryDescription& d, const Use& use) {
  const T alpha = static_cast<T>(d.alpha);
  const T beta = static_cast<T>(d.beta);
  switch (d.kind) {
    case UnaryKind::kCeil:
      return use([](T x) { return std::ceil(x); });
    case UnaryKind::kCos:
      return use([](T x) { return std::cos(x); });
    case UnaryKind::kErf:
      return use([](T x) { return std::erf(x); });
    case UnaryKind::kExp:
      return use([](T x) { return Exp(x); });
    case UnaryKind::kFloor:
      return use([](T x) { return std::floor(x); });
    case UnaryKind::kGelu:
      return use([](T x) { return Gelu(x); });
    case UnaryKind::kGeluTanh:
      return use([](T x) { return GeluTanh(x); });
    case UnaryKind::kHardSigmoid:
      return use([alpha, beta](T x) {
        const T y = alpha * x + beta;
        const T raised = y < T(0) ? T(0) : y;
        return raised > T(1) ? T(1) : raised;
      });
    case UnaryKind::kHardSwish:
      return use([](T x) {
        const T y = x / T(6) + T(0.5);
        const T raised = y < T(0) ? T(0) : y;
        return x * (raised > T(1) ? T(1) : raised);
      });
    case UnaryKind::kLeakyRelu:
      return use([alpha](T x) { return x < T(0) ? alpha * x : x; });
    case UnaryKind::kLog:
      return use([](T x) { return std::log(x); });
    case UnaryKind::kReciprocal:
      return use([](T x) { return T(1) / x; });
    case UnaryKind::kSigmoid:
      return use([](T x) { return Sigmoid(x); });
    case UnaryKind::kSin:
      return use([](T x) { return std::sin(x); });
    case UnaryKind::kSqrt:
      return use([](T x) { return std::sqrt(x); });
    case UnaryKind::kTanh:
      return use([](T x) { return Tanh(x); });
    default:
      return UseNumberFunction<T>(d, use);
  }
}

}  // namespace

Result PlainUnary(const UnaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, CheckUnary(description));
  const std::string name = absl::StrCat(NameOf(description.kind), " ", DimsToString(description.dims));
  if (description.type == DataType::kBool) {
    // Bytes, not bool: a file may hold other values than 0 and 1, and a bool that is neither is undefined behaviour.
    if (description.kind == UnaryKind::kNot) {
      return Map<uint8_t, uint8_t>(name, count, [](uint8_t x) { return static_cast<uint8_t>(x == 0); });
    }
    if (description.kind == UnaryKind::kIdentity) {
      return Map<uint8_t, uint8_t>(name, count, [](uint8_t x) { return x; });
    }
  }
  return DispatchType(NumberTypes{}, description.type, NameOf(description.kind), [&](auto tag) -> Result {
    using T = decltype(tag);
    const auto map = [&](auto function) -> Result { return Map<T, T>(name, count, function); };
    if constexpr (std::is_floating_point_v<T>) {
      return UseFloatFunction<T>(description, map);
    } else {
      return UseNumberFunction<T>(description, map);
    }
  });
}

absl::StatusOr<UnaryRow> FloatUnaryRow(const UnaryDescription& description) {
  return UseFloatFunction<float>(description, [](auto function) -> absl::StatusOr<UnaryRow> {
    return UnaryRow([function](const float* input, float* output, int64_t count) {
      SLUICE_INDEPENDENT_LOOP
      for (int64_t i = 0; i < count; ++i) output[i] = function(input[i]);
    });
  });
}

}  // namespace sluice::gpu::host
