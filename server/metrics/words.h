// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/request_class.h"

namespace sluice::metrics {

// The closed lists behind label values: a label never takes a value that a client made up.

/// Where the time of a request goes, in order.
enum class Stage : uint8_t { kQueue, kCopyIn, kH2d, kGpuWait, kCompute, kD2h, kRespond };
inline constexpr size_t kStageCount = 7;

/// Why a request was turned away before it was queued.
enum class RejectReason : uint8_t {
  kQueueFull,
  kQueueBytes,
  kDeadline,
  kInvalid,
  kUnknownModel,
  kModelNotReady,
  kDraining,
  kDeviceLost,
  kNoMemory,
  kLatencyShare
};
inline constexpr size_t kRejectReasonCount = 10;

/// Why a request runs in another class than the one it asked for.
enum class DemotionReason : uint8_t { kNotAllowed, kLatencyShare };
inline constexpr size_t kDemotionReasonCount = 2;

/// How far a request had come when it expired or was cancelled.
enum class Phase : uint8_t { kAdmit, kQueue, kExecuting };
inline constexpr size_t kPhaseCount = 3;

/// Values of the label `reason` of nv_inference_request_failure.
enum class FailureReason : uint8_t { kRejected, kCanceled, kBackend, kOther };
inline constexpr size_t kFailureReasonCount = 4;

inline constexpr size_t kStatusCodeCount = 17;
/// Classes, and one more for requests that failed before their class was known.
inline constexpr size_t kClassLabelCount = kRequestClassCount + 1;

absl::string_view StageName(Stage stage);
absl::string_view RejectReasonName(RejectReason reason);
absl::string_view DemotionReasonName(DemotionReason reason);
absl::string_view PhaseName(Phase phase);
absl::string_view FailureReasonName(FailureReason reason);
FailureReason FailureReasonOf(absl::StatusCode code);
/// gRPC's name of the code; "UNKNOWN" for numbers outside its list.
absl::string_view CodeName(size_t code);
size_t CodeIndex(absl::StatusCode code);
inline size_t ClassIndex(std::optional<RequestClass> request_class) {
  return request_class ? static_cast<size_t>(*request_class) : static_cast<size_t>(kRequestClassCount);
}
/// "_unknown" for the index past the classes.
absl::string_view ClassLabel(size_t class_index);

}  // namespace sluice::metrics
