// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_status.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

// Both libraries number the codes of the gRPC protocol; these pins would break the build if one did not.
static_assert(static_cast<int>(absl::StatusCode::kCancelled) == grpc::StatusCode::CANCELLED);
static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) == grpc::StatusCode::INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kDeadlineExceeded) == grpc::StatusCode::DEADLINE_EXCEEDED);
static_assert(static_cast<int>(absl::StatusCode::kNotFound) == grpc::StatusCode::NOT_FOUND);
static_assert(static_cast<int>(absl::StatusCode::kAlreadyExists) == grpc::StatusCode::ALREADY_EXISTS);
static_assert(static_cast<int>(absl::StatusCode::kResourceExhausted) == grpc::StatusCode::RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(absl::StatusCode::kFailedPrecondition) == grpc::StatusCode::FAILED_PRECONDITION);
static_assert(static_cast<int>(absl::StatusCode::kUnimplemented) == grpc::StatusCode::UNIMPLEMENTED);
static_assert(static_cast<int>(absl::StatusCode::kInternal) == grpc::StatusCode::INTERNAL);
static_assert(static_cast<int>(absl::StatusCode::kUnavailable) == grpc::StatusCode::UNAVAILABLE);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) == grpc::StatusCode::UNAUTHENTICATED);

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Printable(status.message(), kMaxMessageBytes));
}

void SetRetryPushback(absl::Status& status, absl::Duration delay) {
  status.SetPayload(kRetryPushbackUrl, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
}

std::optional<std::string> RetryPushback(const absl::Status& status) {
  const absl::optional<absl::Cord> hint = status.GetPayload(kRetryPushbackUrl);
  if (!hint.has_value()) return std::nullopt;
  // Only a number may become metadata, whoever attached it.
  int64_t milliseconds = 0;
  if (!absl::SimpleAtoi(std::string(*hint), &milliseconds)) return std::nullopt;
  return absl::StrCat(milliseconds);
}

absl::Status WithRequestId(const absl::Status& status, absl::string_view id) {
  if (status.ok() || id.empty()) return status;
  absl::Status result(status.code(), absl::StrCat("[request id: ", EscapeName(id), "] ", status.message()));
  status.ForEachPayload(
      [&result](absl::string_view url, const absl::Cord& content) { result.SetPayload(url, content); });
  return result;
}

}  // namespace sluice::rpc
