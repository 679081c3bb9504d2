// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/half.h"
#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {

inline std::vector<uint16_t> HalfBits(DataType type, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(HalfFromFloat(type, value));
  return bits;
}

inline std::vector<float> FromHalfBits(DataType type, const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(type == DataType::kFp16 ? FloatFromFp16(b) : FloatFromBf16(b));
  return values;
}

/// The values as they are in `type`: themselves for FP32.
inline std::vector<float> RoundedTo(DataType type, const std::vector<float>& values) {
  return type == DataType::kFp32 ? values : FromHalfBits(type, HalfBits(type, values));
}

/// A span of such values.
inline GuardedBuffer BufferOf(DataType type, const std::vector<float>& values) {
  return type == DataType::kFp32 ? GuardedBuffer::Of(values) : GuardedBuffer::Of(HalfBits(type, values));
}

/// Spans of such values, in order.
template <class... Values>
std::vector<GuardedBuffer> BuffersOf(DataType type, const Values&... values) {
  std::vector<GuardedBuffer> result;
  (result.push_back(BufferOf(type, values)), ...);
  return result;
}

/// RunKernel for an output of any of the three types.
inline std::vector<float> RunKernelOf(DataType type, const absl::StatusOr<std::unique_ptr<Kernel>>& kernel,
                                      const std::vector<GuardedBuffer>& inputs, size_t output_count) {
  if (type == DataType::kFp32) return RunKernel<float>(kernel, inputs, output_count);
  return FromHalfBits(type, RunKernel<uint16_t>(kernel, inputs, output_count));
}

/// Two roundings to the type of a number near 1.
inline double RoundingOf(DataType type) {
  return type == DataType::kFp32 ? 1e-6 : type == DataType::kFp16 ? 0x1p-10 : 0x1p-7;
}

inline std::vector<double> Doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace sluice::gpu
