// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/errors.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::client {
namespace {

constexpr absl::string_view kPushbackPayload = "sluice/retry-pushback-ms";
constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  // The two enums have the same numbers; a number outside them becomes UNKNOWN in absl.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  absl::Status result = FromGrpc(status);
  if (result.ok()) return result;
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto found = trailers.find(kPushbackTrailer); found != trailers.end()) {
    result.SetPayload(kPushbackPayload, absl::Cord(absl::string_view(found->second.data(), found->second.size())));
  }
  return result;
}

std::optional<absl::Duration> RetryPushback(const absl::Status& status) {
  const auto payload = status.GetPayload(kPushbackPayload);
  if (!payload.has_value()) return std::nullopt;
  int64_t milliseconds = 0;
  // A value that is no number means "do not retry", as gRPC's retry design has it.
  if (!absl::SimpleAtoi(std::string(*payload), &milliseconds)) return absl::Milliseconds(-1);
  return absl::Milliseconds(milliseconds);
}

bool IsRetryable(const absl::Status& status) {
  const std::optional<absl::Duration> pushback = RetryPushback(status);
  if (pushback.has_value() && *pushback < absl::ZeroDuration()) return false;
  if (status.code() == absl::StatusCode::kUnavailable) return true;
  return status.code() == absl::StatusCode::kResourceExhausted && pushback.has_value();
}

std::optional<Time> NextAttempt(const RetryPolicy& policy, int attempt, const absl::Status& status, Time now,
                                Time deadline) {
  if (attempt >= policy.max_attempts || !IsRetryable(status)) return std::nullopt;
  absl::Duration wait = policy.first_wait;
  for (int i = 1; i < attempt; ++i) wait = std::min(wait * 2, policy.longest_wait);
  const Time again = now + RetryPushback(status).value_or(wait);
  if (again >= deadline) return std::nullopt;
  return again;
}

std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

}  // namespace sluice::client
