// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/words.h"

#include <array>

namespace sluice::metrics {
namespace {

constexpr std::array<absl::string_view, kStageCount> kStageNames = {"queue",   "copy_in", "h2d",    "gpu_wait",
                                                                    "compute", "d2h",     "respond"};
constexpr std::array<absl::string_view, kRejectReasonCount> kRejectReasonNames = {
    "queue_full",      "queue_bytes", "deadline",    "invalid",   "unknown_model",
    "model_not_ready", "draining",    "device_lost", "no_memory", "latency_share"};
constexpr std::array<absl::string_view, kDemotionReasonCount> kDemotionReasonNames = {"not_allowed", "latency_share"};
constexpr std::array<absl::string_view, kPhaseCount> kPhaseNames = {"admit", "queue", "executing"};
constexpr std::array<absl::string_view, kFailureReasonCount> kFailureReasonNames = {"REJECTED", "CANCELED", "BACKEND",
                                                                                    "OTHER"};
// In the order of gRPC's numbers, which are absl's.
constexpr std::array<absl::string_view, kStatusCodeCount> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

}  // namespace

absl::string_view StageName(Stage stage) { return kStageNames[static_cast<size_t>(stage)]; }
absl::string_view RejectReasonName(RejectReason reason) { return kRejectReasonNames[static_cast<size_t>(reason)]; }
absl::string_view DemotionReasonName(DemotionReason reason) {
  return kDemotionReasonNames[static_cast<size_t>(reason)];
}
absl::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
absl::string_view FailureReasonName(FailureReason reason) { return kFailureReasonNames[static_cast<size_t>(reason)]; }

FailureReason FailureReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
      return FailureReason::kCanceled;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return FailureReason::kRejected;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return FailureReason::kBackend;
    default:
      return FailureReason::kOther;
  }
}

size_t CodeIndex(absl::StatusCode code) {
  const int value = static_cast<int>(code);
  const bool known = value >= 0 && value < static_cast<int>(kStatusCodeCount);
  return static_cast<size_t>(known ? value : static_cast<int>(absl::StatusCode::kUnknown));
}

absl::string_view CodeName(size_t code) {
  return code < kStatusCodeCount ? kCodeNames[code] : kCodeNames[static_cast<size_t>(absl::StatusCode::kUnknown)];
}

absl::string_view ClassLabel(size_t class_index) {
  if (class_index >= static_cast<size_t>(kRequestClassCount)) return "_unknown";
  return RequestClassName(kRequestClasses[class_index]);
}

}  // namespace sluice::metrics
