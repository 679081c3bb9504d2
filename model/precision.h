// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"

namespace sluice::model {

/// What a model computes in. Inputs and outputs keep the file's types, and sums are kept in FP32 at least.
enum class Precision : uint8_t {
  kFp32,  ///< As the file says, strictly.
  kTf32,  ///< Factors of products and convolutions are rounded to TF32.
  kFp16,  ///< FP32 tensors are FP16 between kernels.
  kBf16,
};

inline constexpr std::array<std::pair<Precision, absl::string_view>, 4> kPrecisionNames = {
    {{Precision::kFp32, "fp32"}, {Precision::kTf32, "tf32"}, {Precision::kFp16, "fp16"}, {Precision::kBf16, "bf16"}}};

constexpr absl::string_view NameOf(Precision precision) {
  return kPrecisionNames[static_cast<size_t>(precision)].second;
}
constexpr std::optional<Precision> ParsePrecision(absl::string_view name) {
  for (const auto& [precision, known] : kPrecisionNames) {
    if (known == name) return precision;
  }
  return std::nullopt;
}
constexpr bool IsHalf(Precision precision) { return precision == Precision::kFp16 || precision == Precision::kBf16; }

}  // namespace sluice::model
