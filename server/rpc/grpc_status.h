// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// Longest message that goes out. gRPC percent-encodes it into a header (three bytes for one at worst), and clients
/// accept 8 KiB of headers.
inline constexpr size_t kMaxMessageBytes = 2048;

using server::kRetryPushbackUrl;

/// The only mapping from our errors to gRPC's: code by code, with the message made printable and cut.
grpc::Status ToGrpcStatus(const absl::Status& status);

/// Attaches the retry hint to an error.
void SetRetryPushback(absl::Status& status, absl::Duration delay);
/// The hint in the form of the metadata, if there is one.
std::optional<std::string> RetryPushback(const absl::Status& status);

/// The same error with the request's id before its message; unchanged when the id is empty.
absl::Status WithRequestId(const absl::Status& status, absl::string_view id);

}  // namespace sluice::rpc
