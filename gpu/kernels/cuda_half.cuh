// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "base/data_type.h"
#include "gpu/kernels/dispatch.h"

namespace sluice::gpu::cuda {

// FP16 and BF16: what is stored and moved. All that is computed with them is computed in float, and rounded once.

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

/// The type in which elements of T are computed.
template <class T>
using Compute = std::conditional_t<kIsHalf<T>, float, T>;

constexpr bool IsHalfType(DataType type) { return type == DataType::kFp16 || type == DataType::kBf16; }

/// Calls body with a value of the half type; `otherwise` says what happens for other types.
template <class Body, class Otherwise>
auto DispatchHalf(DataType type, const Body& body, const Otherwise& otherwise) -> decltype(body(__half{})) {
  if (type == DataType::kFp16) return body(__half{});
  if (type == DataType::kBf16) return body(__nv_bfloat16{});
  return otherwise();
}

}  // namespace sluice::gpu::cuda
