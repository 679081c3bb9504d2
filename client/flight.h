// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/async_client.h"
#include "client/channel.h"
#include "client/types.h"

namespace sluice::client {

/// How one inference is sent.
struct FlightPlan {
  EncodedRequest request;
  std::optional<RequestClass> request_class;
  Time deadline;
  RetryPolicy retry;
  std::optional<absl::Duration> hedge_after;
};

/// One inference with its retries and its hedge. The first success is the answer and cancels what else is under way; an
/// error is the answer when nothing is under way and no attempt may follow. Bounds: RetryPolicy's attempts, and one
/// more for the hedge. Ownership: its operations keep it; `client` must outlive them, which its destructor sees to.
/// Threads: any; no lock is held while anything is started or answered.
class Flight : public std::enable_shared_from_this<Flight> {
 public:
  static std::future<absl::StatusOr<InferReply>> Start(AsyncClient& client, const Clock& clock, FlightPlan plan);

  Flight(AsyncClient& client, const Clock& clock, FlightPlan plan);

 private:
  using Operation = std::shared_ptr<AsyncClient::Operation>;

  void SendAttempt();
  void SendHedge();
  /// One more call, which has been counted.
  void Send();
  void OnAnswer(AsyncAnswer answer);
  /// Ends what is still under way, and answers.
  void Resolve(absl::StatusOr<InferReply> reply);
  /// Keeps an operation to cancel it later; cancels it at once when the answer is there already.
  void Keep(Operation operation);

  AsyncClient& client_;
  const Clock& clock_;
  const FlightPlan plan_;
  std::promise<absl::StatusOr<InferReply>> promise_;

  Mutex mutex_;
  int attempts_ ABSL_GUARDED_BY(mutex_) = 0;   // hedge not counted
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // attempts and hedge without an answer
  bool resolved_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Operation> operations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
