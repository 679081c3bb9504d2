// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace sluice {

/// The class of a request decides its lane, its stream's priority and whether it asks the gate.
enum class RequestClass : uint8_t { kLatency = 0, kStandard = 1, kBatch = 2 };

inline constexpr int kRequestClassCount = 3;
inline constexpr std::array<RequestClass, kRequestClassCount> kRequestClasses = {
    RequestClass::kLatency, RequestClass::kStandard, RequestClass::kBatch};

constexpr absl::string_view RequestClassName(RequestClass request_class) {
  switch (request_class) {
    case RequestClass::kLatency:
      return "latency";
    case RequestClass::kStandard:
      return "standard";
    case RequestClass::kBatch:
      return "batch";
  }
  return "standard";
}

constexpr std::optional<RequestClass> ParseRequestClass(absl::string_view name) {
  for (const RequestClass request_class : kRequestClasses) {
    if (name == RequestClassName(request_class)) return request_class;
  }
  return std::nullopt;
}

}  // namespace sluice
