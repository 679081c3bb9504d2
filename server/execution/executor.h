// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "gpu/lane.h"
#include "gpu/timeline.h"
#include "server/execution/model_instance.h"
#include "server/infer_request.h"
#include "server/metrics/model_metrics.h"
#include "server/response_pool.h"

namespace sluice::server {

/// A model instance as request threads see it.
struct ExecutableModel {
  std::unique_ptr<ModelInstance> instance;
  metrics::ModelMetrics* metrics = nullptr;
};

/// What waits in a class queue: the request, what runs it, which stays as long as this does, and, for the latency
/// class, its token at the gate.
struct QueuedInfer {
  std::shared_ptr<InferRequest> request;
  std::shared_ptr<const ExecutableModel> model = nullptr;
  gpu::GateToken token = {};
  absl::Duration latency_share = {};  ///< Taken of LatencyShare.
  bool demoted = false;               ///< It asked for the latency class, which had no room.
};

/// The outcome of one execution. `results` has one entry per request, in order, when `status` is OK.
struct ExecutionOutcome {
  absl::Status status;
  /// Empty, or one per request, in order: what its shared memory refused, whatever `status` is. Others go on.
  std::vector<absl::Status> failures;
  std::vector<InferResult> results;
  int64_t rows = 0;
  absl::Duration profile;      ///< What the plans used take alone.
  absl::Duration device_time;  ///< From the first Begin to the last Finish; for the scheduler's predictions.
  Time device_end;             ///< When the last copy out was over; zero when nothing ran to its end.
  int slot_waits = 0;          ///< Times it found every slot taken and held none itself.
  bool slot_timeout = false;   ///< The reason of `status`: no slot within the bound.
};

/// Where executions of one class run. All of it outlives them.
struct ExecutionPlace {
  gpu::Lane& lane;
  gpu::Gate& gate;
  const Clock& clock;
  gpu::Timeline& timeline;
  absl::Duration slot_wait;  ///< The longest wait for another execution's slot.
};

/// What a request's outputs take of the response pool, by the shapes its model was prepared for.
size_t PooledResponseBytes(const ModelInstance& instance, const InferRequest& request);

/// Whether each output that goes to shared memory has room there. INVALID_ARGUMENT with Triton's words; here and not in
/// rpc, because only a prepared model tells the sizes of all outputs.
absl::Status CheckOutputRegions(const ModelInstance& instance, const InferRequest& request);

/// Runs the requests of one execution, together, through the slots of their model: copies rows in, runs the lane,
/// copies rows out, each once, from the slot's pinned memory into the request's own response, or shared memory.
/// Micro-batches overlap as far as slots allow: while one computes, the next is copied in. `reservation` has room for
/// PooledResponseBytes of all requests. Threads: on the request thread that took the execution; waits for slots, within
/// a bound, and for its own last events, nothing else. Errors: UNAVAILABLE when no slot came in time. Afterwards no
/// slot is held, every token is released, and the requests are not yet answered. Their stages up to here are in the
/// timeline if it records.
ExecutionOutcome RunExecution(const ExecutableModel& model, const ExecutionPlace& place,
                              const std::vector<QueuedInfer>& requests, Time taken, ResponseReservation reservation);

}  // namespace sluice::server
