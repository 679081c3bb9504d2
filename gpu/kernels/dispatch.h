// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "gpu/kernel.h"

namespace sluice::gpu {

// From a DataType to a C++ type, when kernels are prepared.

template <class... Types>
struct TypeList {};

using FloatTypes = TypeList<float, double>;
using NumberTypes = TypeList<float, double, int32_t, int64_t, int8_t, uint8_t>;

template <class T>
constexpr DataType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFp32;
  if constexpr (std::is_same_v<T, double>) return DataType::kFp64;
  if constexpr (std::is_same_v<T, int8_t>) return DataType::kInt8;
  if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUint8;
  if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
  return DataType::kInvalid;
}

/// "the host backend has no cast for BYTES".
inline absl::Status LacksType(Backend backend, absl::string_view what, DataType type) {
  return absl::UnimplementedError(absl::StrCat("the ", backend == Backend::kHost ? "host" : "CUDA", " backend has no ",
                                               what, " for ", WireName(type)));
}

/// Calls body with a value of the C++ type of `type`; UNIMPLEMENTED when `Types` has it not.
template <class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchType(Backend backend, TypeList<>, DataType type, absl::string_view what,
                                                     const Body&) {
  return LacksType(backend, what, type);
}
template <class First, class... Rest, class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchType(Backend backend, TypeList<First, Rest...>, DataType type,
                                                     absl::string_view what, const Body& body) {
  if (TypeOf<First>() == type) return body(First{});
  return DispatchType(backend, TypeList<Rest...>{}, type, what, body);
}

/// The same by size alone, for kernels that only move elements: body gets an unsigned integer of that size.
/// INVALID_ARGUMENT for types of no fixed size.
template <class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchSize(DataType type, absl::string_view what, const Body& body) {
  switch (ElementBytes(type)) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": elements of type ", WireName(type), " have no fixed size"));
  }
}

}  // namespace sluice::gpu
