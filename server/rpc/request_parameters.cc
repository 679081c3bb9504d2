// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/request_parameters.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

absl::string_view KindName(const ParameterValue& value) {
  static constexpr absl::string_view kNames[] = {"no value", "bool", "int64", "string", "double", "uint64"};
  return kNames[value.index()];
}

absl::Status WrongKind(absl::string_view key, absl::string_view expected, const ParameterValue& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", Quote(key), ": expected ", expected, ", got ", KindName(value)));
}

absl::StatusOr<bool> ReadBool(absl::string_view key, const ParameterValue& value) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return WrongKind(key, "bool", value);
  return *flag;
}

absl::StatusOr<uint64_t> ReadPriority(absl::string_view key, const ParameterValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr) return WrongKind(key, "int64 or uint64", value);
  if (*number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("parameter 'priority': expected 0 or more, got ", *number));
  }
  return static_cast<uint64_t>(*number);
}

absl::StatusOr<absl::Duration> ReadTimeout(absl::string_view key, const ParameterValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr) return WrongKind(key, "int64 (microseconds)", value);
  if (*number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter 'timeout': expected 0 or more microseconds, got ", *number));
  }
  return absl::Microseconds(*number);
}

/// Clients send the neutral values of these on ordinary requests; only a real sequence is refused.
absl::Status CheckSequence(absl::string_view key, const ParameterValue& value) {
  bool neutral = false;
  if (key == "sequence_id") {
    const auto* number = std::get_if<int64_t>(&value);
    const auto* text = std::get_if<std::string>(&value);
    if (number == nullptr && text == nullptr) return WrongKind(key, "int64 or string", value);
    neutral = number != nullptr ? *number == 0 : text->empty();
  } else {
    SLUICE_ASSIGN_OR_RETURN(const bool flag, ReadBool(key, value));
    neutral = !flag;
  }
  if (neutral) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("parameter ", Quote(key), ": sequences are not served"));
}

absl::Status CheckOther(absl::string_view key, const ParameterValue& value) {
  if (key == "headers" || key == "binary_data_output") {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", Quote(key), ": the name is reserved"));
  }
  if (absl::StartsWith(key, "triton_") || absl::StartsWith(key, "sluice_")) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quote(key), " is not known; names beginning triton_ ", "and sluice_ are reserved"));
  }
  if (std::holds_alternative<std::monostate>(value) || std::holds_alternative<uint64_t>(value)) {
    return WrongKind(key, "bool, int64, string or double", value);
  }
  return absl::OkStatus();
}

/// The parameters of shared memory as they came.
struct RegionParameters {
  const std::string* region = nullptr;
  std::optional<uint64_t> byte_size;
  std::optional<uint64_t> offset;
};

absl::Status ReadRegionParameter(absl::string_view key, const ParameterValue& value, RegionParameters& place) {
  if (key == kSharedMemoryRegion) {
    place.region = std::get_if<std::string>(&value);
    return place.region != nullptr ? absl::OkStatus() : WrongKind(key, "string", value);
  }
  if (key != kSharedMemoryByteSize && key != kSharedMemoryOffset) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", Quote(key), " is not known"));
  }
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr) return WrongKind(key, "int64 (bytes)", value);
  if (*number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quote(key), ": expected 0 or more bytes, got ", *number));
  }
  (key == kSharedMemoryOffset ? place.offset : place.byte_size) = static_cast<uint64_t>(*number);
  return absl::OkStatus();
}

absl::StatusOr<server::SharedMemorySlice> FindRegion(const RegionParameters& place,
                                                     const server::SharedMemoryRegions* regions) {
  if (place.region == nullptr) {
    if (!place.byte_size.has_value() && !place.offset.has_value()) return server::SharedMemorySlice();
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quote(place.byte_size.has_value() ? kSharedMemoryByteSize : kSharedMemoryOffset),
                     ": expected ", Quote(kSharedMemoryRegion), " beside it, got none"));
  }
  if (!place.byte_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", Quote(kSharedMemoryRegion), ": expected ",
                                                   Quote(kSharedMemoryByteSize), " beside it, got none"));
  }
  return regions->Find(*place.region, place.offset.value_or(0), *place.byte_size);
}

}  // namespace

absl::StatusOr<RequestParameters> ReadRequestParameters(const Parameters& parameters) {
  RequestParameters result;
  for (const auto& [key, value] : parameters) {
    if (key == "priority") {
      SLUICE_ASSIGN_OR_RETURN(result.priority, ReadPriority(key, value));
    } else if (key == "timeout") {
      SLUICE_ASSIGN_OR_RETURN(result.timeout, ReadTimeout(key, value));
    } else if (key == "sluice_timings") {
      SLUICE_ASSIGN_OR_RETURN(result.timings, ReadBool(key, value));
    } else if (key == "triton_enable_empty_final_response") {
      // Means something on streams only; C++ clients send it with every request.
      SLUICE_RETURN_IF_ERROR(ReadBool(key, value).status());
    } else if (key == "sequence_id" || key == "sequence_start" || key == "sequence_end") {
      SLUICE_RETURN_IF_ERROR(CheckSequence(key, value));
    } else {
      SLUICE_RETURN_IF_ERROR(CheckOther(key, value));
    }
  }
  return result;
}

absl::StatusOr<server::SharedMemorySlice> ReadTensorParameters(const Parameters& parameters,
                                                               const server::SharedMemoryRegions* regions,
                                                               absl::string_view where) {
  const auto named = [where](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
  };
  RegionParameters place;
  for (const auto& [key, value] : parameters) {
    const bool of_shared_memory = absl::StartsWith(key, "shared_memory_");
    if (of_shared_memory && regions == nullptr) {
      return named(absl::UnimplementedError(absl::StrCat(
          "parameter ", Quote(key), ": shared memory is not served (--shared-memory); send the data in the message")));
    }
    if (key == "classification") return named(absl::UnimplementedError("parameter 'classification' is not served"));
    const absl::Status status = of_shared_memory ? ReadRegionParameter(key, value, place) : CheckOther(key, value);
    if (!status.ok()) return named(status);
  }
  absl::StatusOr<server::SharedMemorySlice> slice = FindRegion(place, regions);
  if (!slice.ok()) return named(slice.status());
  return slice;
}

}  // namespace sluice::rpc
