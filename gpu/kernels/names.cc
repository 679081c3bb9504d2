// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/names.h"

#include <cstddef>

namespace sluice::gpu {

const char* NameOf(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::kAbs:
      return "abs";
    case UnaryKind::kCeil:
      return "ceil";
    case UnaryKind::kClip:
      return "clip";
    case UnaryKind::kCos:
      return "cos";
    case UnaryKind::kErf:
      return "erf";
    case UnaryKind::kExp:
      return "exp";
    case UnaryKind::kFloor:
      return "floor";
    case UnaryKind::kGelu:
      return "gelu";
    case UnaryKind::kGeluTanh:
      return "gelu (tanh)";
    case UnaryKind::kHardSigmoid:
      return "hard sigmoid";
    case UnaryKind::kHardSwish:
      return "hard swish";
    case UnaryKind::kIdentity:
      return "identity";
    case UnaryKind::kLeakyRelu:
      return "leaky relu";
    case UnaryKind::kLog:
      return "log";
    case UnaryKind::kNeg:
      return "neg";
    case UnaryKind::kNot:
      return "not";
    case UnaryKind::kReciprocal:
      return "reciprocal";
    case UnaryKind::kRelu:
      return "relu";
    case UnaryKind::kSigmoid:
      return "sigmoid";
    case UnaryKind::kSign:
      return "sign";
    case UnaryKind::kSin:
      return "sin";
    case UnaryKind::kSqrt:
      return "sqrt";
    case UnaryKind::kTanh:
      return "tanh";
  }
  return "unary";
}

const char* NameOf(BinaryKind kind) {
  static constexpr const char* kNames[] = {
      "add",  "sub",           "mul", "div", "pow", "max", "min", "mod", "equal", "greater", "greater or equal",
      "less", "less or equal", "and", "or",  "xor"};
  return kNames[static_cast<size_t>(kind)];
}

const char* NameOf(ReduceKind kind) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min", "prod", "sum of squares", "l1 norm", "l2 norm"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace sluice::gpu
