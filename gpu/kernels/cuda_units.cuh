// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace sluice::gpu::cuda {

/// The most bytes that one instruction loads or stores.
inline constexpr size_t kMaxUnitBytes = 16;

/// The largest unit (a power of two up to 16) that divides `bytes`; 16 for 0.
inline size_t UnitDividing(size_t bytes) {
  size_t unit = kMaxUnitBytes;
  while (bytes % unit != 0) unit /= 2;
  return unit;
}

/// Calls body with a value of a type of `unit_bytes` (1, 2, 4, 8 or 16).
template <class Body>
auto WithUnit(size_t unit_bytes, const Body& body) {
  switch (unit_bytes) {
    case 16:
      return body(uint4{});
    case 8:
      return body(uint64_t{});
    case 4:
      return body(uint32_t{});
    case 2:
      return body(uint16_t{});
    default:
      return body(uint8_t{});
  }
}

}  // namespace sluice::gpu::cuda
