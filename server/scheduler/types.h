// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/request_class.h"
#include "base/strong_id.h"

/// What goes into and comes out of a scheduler core: plain values.
namespace sluice::scheduler {

/// One execution: the requests of one model and shape bucket that run together. Never reused by a core; 0 is none.
using ExecutionId = StrongId<struct ExecutionIdTag>;

/// What the scheduler knows of a request.
struct QueuedRequest {
  RequestId id = {};
  ModelId model = {};
  uint32_t shape_bucket = 0;  ///< Requests of different buckets never share an execution.
  int64_t rows = 1;
  size_t bytes = 0;
  size_t response_bytes = 0;  ///< Of response memory, reserved when its execution starts; 0: it needs none.
  Time arrival = {};
  Time deadline = Time::Infinite();        ///< Runs to the end of the execution.
  Time queue_deadline = Time::Infinite();  ///< Runs until the execution starts.
};

/// The rules of one model in one class.
struct ModelLimits {
  uint32_t max_queue_size = 0;   ///< Requests of this model that may wait; 0: only the class's bound.
  int64_t max_batch_rows = 1;    ///< Where merging stops. A request with more rows than this runs alone.
  bool merges_requests = false;  ///< Off: one request per execution.
  /// How long the oldest request waits for company. The latency class ignores this and the preferred sizes.
  absl::Duration max_queue_delay = absl::ZeroDuration();
  std::vector<int64_t> preferred_batch_sizes = {};  ///< In rows. Empty: max_batch_rows is preferred.
  int max_concurrent_executions = 1;                ///< As many as the model has slots in this class.
};

/// Bounds of one core.
struct CoreOptions {
  RequestClass request_class = RequestClass::kStandard;
  size_t max_requests = 1024;            ///< Waiting, all models together.
  size_t max_bytes = size_t{256} << 20;  ///< Of waiting requests.
  /// A request without a deadline is ordered as if it had arrival + this.
  absl::Duration default_horizon = absl::Seconds(60);
  /// A request whose group gets no response memory for this long is given up.
  absl::Duration response_wait = absl::InfiniteDuration();
  /// How many executions may run at once; predictions of waiting divide by it.
  int max_concurrent_executions = 1;
};

/// What the caller knows beyond this core; zero is unknown. Added to (wait) or used in place of a smaller (execution)
/// own prediction.
struct Prediction {
  absl::Duration wait = absl::ZeroDuration();
  absl::Duration execution = absl::ZeroDuration();
};

enum class Refusal : uint8_t {
  kNone,
  kQueueFull,            ///< The class's bound in requests.
  kModelQueueFull,       ///< The model's max_queue_size.
  kBytesFull,            ///< The class's bound in bytes.
  kDeadlinePassed,       ///< The deadline is over already.
  kDeadlineUnreachable,  ///< It would be over before the predicted end.
  kQueueTimeoutPassed,   ///< The queue limit is over already.
  kUnknownModel,
  kDraining,
  kDuplicateId,  ///< Our bug: an id that is still known.
};

/// The word for a metric's label.
absl::string_view RefusalName(Refusal refusal);
/// The client's answer; OK for kNone.
absl::Status RefusalStatus(Refusal refusal);

struct Admission {
  Refusal refusal = Refusal::kNone;
  bool admitted() const { return refusal == Refusal::kNone; }
};

/// One execution that may start now.
struct Pick {
  ExecutionId execution = {};
  ModelId model = {};
  uint32_t shape_bucket = 0;
  std::vector<RequestId> requests = {};  ///< Earliest deadline first; at most SchedulerCore::kMaxMergedRequests.
  int64_t rows = 0;
  size_t response_bytes = 0;  ///< Reserved for them all.
};

enum class RequestPlace : uint8_t { kUnknown, kQueued, kExecuting };
enum class ExpiryReason : uint8_t { kQueueTimeout, kDeadline, kResponseWait };

struct Expired {
  RequestId id = {};
  RequestPlace place = RequestPlace::kQueued;
  ExpiryReason reason = ExpiryReason::kDeadline;
};

/// The client's answer: UNAVAILABLE with Triton's token, or DEADLINE_EXCEEDED.
absl::Status ExpiryStatus(ExpiryReason reason);

struct CoreCounts {
  size_t queued = 0;
  size_t queued_bytes = 0;
  size_t executing_requests = 0;
  size_t executions = 0;
  size_t expired_unreported = 0;  ///< Left the queue; the next Expire reports them.
};

}  // namespace sluice::scheduler
