// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/types.h"

namespace sluice::scheduler {

absl::string_view RefusalName(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kQueueFull:
      return "queue_full";
    case Refusal::kModelQueueFull:
      return "model_queue_full";
    case Refusal::kBytesFull:
      return "bytes_full";
    case Refusal::kDeadlinePassed:
    case Refusal::kDeadlineUnreachable:
      return "deadline";
    case Refusal::kQueueTimeoutPassed:
      return "queue_timeout";
    case Refusal::kUnknownModel:
      return "unknown_model";
    case Refusal::kDraining:
      return "draining";
    case Refusal::kDuplicateId:
      return "duplicate_id";
  }
  return "unknown";
}

absl::Status RefusalStatus(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return absl::OkStatus();
    case Refusal::kQueueFull:
      return absl::UnavailableError("Exceeds maximum queue size of the class on this device");
    case Refusal::kModelQueueFull:
      return absl::UnavailableError("Exceeds maximum queue size of the model");
    case Refusal::kBytesFull:
      return absl::ResourceExhaustedError("waiting requests hold as many bytes as --queue-bytes allows");
    case Refusal::kDeadlinePassed:
      return absl::DeadlineExceededError("the deadline had passed when the request was complete");
    case Refusal::kDeadlineUnreachable:
      return absl::DeadlineExceededError("the deadline is earlier than the predicted end of the request");
    case Refusal::kQueueTimeoutPassed:
      return ExpiryStatus(ExpiryReason::kQueueTimeout);
    case Refusal::kUnknownModel:
      return absl::UnavailableError("the model is not ready on this device");
    case Refusal::kDraining:
      return absl::UnavailableError("the server is shutting down");
    case Refusal::kDuplicateId:
      return absl::InternalError("a request with this id is already known to the scheduler");
  }
  return absl::InternalError("unknown refusal");
}

absl::Status ExpiryStatus(ExpiryReason reason) {
  switch (reason) {
    case ExpiryReason::kQueueTimeout:
      return absl::UnavailableError("Request timeout expired");
    case ExpiryReason::kDeadline:
      return absl::DeadlineExceededError("the deadline passed before the request was finished");
    case ExpiryReason::kResponseWait:
      return absl::UnavailableError(
          "Request timeout expired: all response memory (--response-pool-bytes) is held by responses that their "
          "clients "
          "have not read, for longer than --response-wait-ms");
  }
  return absl::InternalError("unknown expiry");
}

}  // namespace sluice::scheduler
