// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// How one ModelInfer call was answered.
struct AnsweredCall {
  /// The model that was found; null when the request named none that is served (its text came from a client and must
  /// not become a label).
  const server::ServedModel* model = nullptr;
  RequestClass request_class = RequestClass::kStandard;  ///< Standard when the request was refused before it had one.
  RequestClass wished_class = RequestClass::kStandard;   ///< What it asked for; as request_class unless demoted.
  bool over_latency_share = false;                       ///< The backend demoted it, not the model's allowed classes.
  bool submitted = false;                                ///< The backend had the request; false: refused by rpc.
  size_t device_index = 0;                               ///< The backend's choice, when submitted.
  absl::StatusCode code = absl::StatusCode::kOk;
  Time arrival;               ///< The whole message was there.
  absl::Duration duration;    ///< From arrival to the answer, before it is written.
  int64_t rows = 0;           ///< 0 when it was refused.
  size_t request_bytes = 0;   ///< Of the message.
  size_t response_bytes = 0;  ///< Of the message; 0 on errors.
  server::RequestTimings timings;
};

/// What rpc tells metrics. Methods run on I/O threads and on whatever thread answers a request; they must not block or
/// call back, and references are valid only during the call. Each call that is received is answered exactly once.
class RpcObserver {
 public:
  virtual ~RpcObserver() = default;
  /// A complete ModelInfer message is there; nothing is known of it yet.
  virtual void OnReceived() = 0;
  /// The request passed validation and goes to the backend now.
  virtual void OnAccepted(const server::InferRequest& request) = 0;
  /// Before the answer is written, so that a client that has its answer finds it counted.
  virtual void OnAnswered(const AnsweredCall& call) = 0;
  /// gRPC took the answer (`written`) or could not write it (client gone), `duration` after it was given.
  virtual void OnWritten(RequestClass request_class, absl::Duration duration, bool written) = 0;
};

}  // namespace sluice::rpc
