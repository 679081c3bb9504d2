// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace sluice::client {

/// The gRPC status of a finished call as absl::Status with the same code and message. A server's
/// `grpc-retry-pushback-ms` trailer is kept beside it (RetryPushback). Call only after the call has finished.
absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);
absl::Status FromGrpc(const grpc::Status& status);

/// What the server said about retrying: nothing, "do not" (negative), or how long to wait.
std::optional<absl::Duration> RetryPushback(const absl::Status& status);

/// Whether the same inference may succeed when it is sent again: UNAVAILABLE (queue full, draining, connection lost)
/// unless the server said not to, and RESOURCE_EXHAUSTED when the server said when. Inference has no side effects, so
/// sending twice is safe.
bool IsRetryable(const absl::Status& status);

/// When the attempt after number `attempt` (from 1), which failed with `status` at `now`, should be sent, if at all:
/// after the server's push-back, else after a wait that doubles; never when that would be after the deadline, where the
/// attempt could only hide this error.
std::optional<Time> NextAttempt(const RetryPolicy& policy, int attempt, const absl::Status& status, Time now,
                                Time deadline);

/// "DEADLINE_EXCEEDED" and so on: the names gRPC uses.
std::string CodeName(absl::StatusCode code);

}  // namespace sluice::client
