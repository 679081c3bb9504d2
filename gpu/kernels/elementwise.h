// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// One input, one output of the same shape and type.
enum class UnaryKind : uint8_t {
  kAbs,
  kCeil,
  kClip,  ///< min(max(x, low), high); an infinite or absent bound does nothing.
  kCos,
  kErf,
  kExp,
  kFloor,
  kGelu,         ///< 0.5 x (1 + erf(x / sqrt(2)))
  kGeluTanh,     ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kHardSigmoid,  ///< max(0, min(1, alpha x + beta))
  kHardSwish,    ///< x max(0, min(1, x / 6 + 0.5))
  kIdentity,
  kLeakyRelu,  ///< x < 0 ? alpha x : x
  kLog,
  kNeg,
  kNot,  ///< BOOL only, and the only kind but kIdentity for BOOL.
  kReciprocal,
  kRelu,
  kSigmoid,
  kSign,
  kSin,
  kSqrt,
  kTanh,
};

/// Spans: input, output; they may be the same memory. Types: FP32 and FP64 for all kinds but kNot; INT8, UINT8, INT32
/// and INT64 for kAbs, kClip, kIdentity, kNeg (signed), kRelu, kSign (signed).
struct UnaryDescription {
  UnaryKind kind = UnaryKind::kIdentity;
  DataType type = DataType::kFp32;
  Dims dims = {};
  float alpha = 0.0f;  ///< kLeakyRelu, kHardSigmoid.
  float beta = 0.0f;   ///< kHardSigmoid.
  double low = 0.0;    ///< kClip; bounds are converted to the type, saturating.
  double high = 0.0;   ///< kClip.
};

/// Converts between BOOL, UINT8, INT8, INT32, INT64, FP16, FP32 and FP64. To BOOL: x != 0. From a floating type to an
/// integer: towards zero, saturating, NaN to 0. Between integers: the low bits. To FP16: nearest, ties to even.
///
/// Spans: input, output; they must not overlap.
struct CastDescription {
  DataType from = DataType::kFp32;
  DataType to = DataType::kFp32;
  Dims dims = {};
};

enum class BinaryKind : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,  ///< Integers truncate towards zero; division by zero gives 0, and lowest / -1 gives lowest.
  kPow,  ///< FP32, FP64, INT32, INT64.
  kMax,  ///< Floating: NaN when either is NaN. Likewise kMin.
  kMin,
  kMod,    ///< The sign of the divisor for integers (ONNX fmod = 0), of the dividend for floating types (fmod = 1).
  kEqual,  ///< Result is BOOL, here and for the other comparisons.
  kGreater,
  kGreaterOrEqual,
  kLess,
  kLessOrEqual,
  kAnd,  ///< BOOL only, and with kOr, kXor and kEqual the only kinds for BOOL.
  kOr,
  kXor,
};

constexpr bool IsComparison(BinaryKind kind) { return kind >= BinaryKind::kEqual && kind <= BinaryKind::kLessOrEqual; }

/// output = a (kind) b with numpy broadcasting, then the activation (arithmetic kinds on floating types only).
///
/// Spans: a, b, output. An operand of the output's own shape may share its memory, if the output type is the same.
/// Types: FP32, FP64, INT8, UINT8, INT32, INT64, BOOL; both operands have the same.
struct BinaryDescription {
  BinaryKind kind = BinaryKind::kAdd;
  DataType type = DataType::kFp32;
  Dims a = {};
  Dims b = {};
  Activation activation = Activation::kNone;
};

/// output = condition ? x : y, broadcast. Condition is BOOL; x and y are any fixed-size type.
///
/// Spans: condition, x, y, output; they must not overlap.
struct WhereDescription {
  DataType type = DataType::kFp32;
  Dims condition = {};
  Dims x = {};
  Dims y = {};
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareUnary(Device& device, const UnaryDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareCast(Device& device, const CastDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareBinary(Device& device, const BinaryDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareWhere(Device& device, const WhereDescription& description);

}  // namespace sluice::gpu
