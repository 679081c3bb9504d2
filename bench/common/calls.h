// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "base/thread.h"
#include "bench/common/house.h"
#include "gpu/device.h"
#include "server/infer_request.h"

namespace sluice::bench {

/// The inputs of a request, which any number of requests may read at once.
class Payload {
 public:
  /// All rows are one row's bytes, in ordinary memory: reading them takes hardly any memory bandwidth.
  static Payload Repeated(const HouseModel& model, int64_t rows);
  /// Each row has bytes of its own, in page-locked memory. RESOURCE_EXHAUSTED when there is too little of it.
  static absl::StatusOr<Payload> Pinned(const HouseModel& model, int64_t rows, gpu::Device& device);

  int64_t rows() const { return rows_; }
  size_t bytes() const { return bytes_; }
  const std::vector<server::RequestInput>& inputs() const { return inputs_; }

 private:
  Payload(const HouseModel& model, int64_t rows);

  int64_t rows_ = 1;
  size_t bytes_ = 0;
  std::vector<size_t> row_bytes_;  ///< Of each input.
  std::vector<server::RequestInput> inputs_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<gpu::PinnedBuffer> pinned_;
};

/// What a stream of requests sends. The payload must outlive the requests.
struct CallSpec {
  HouseModel model;
  const Payload* payload = nullptr;
  RequestClass request_class = RequestClass::kBatch;
  bool wants_outputs = true;  ///< Else they are copied out of the device but not into an answer.
};

/// What became of one request.
struct Sample {
  absl::Status status = absl::UnknownError("not answered");
  Time intended, submitted, answered;
  server::RequestTimings timings;
  absl::Duration server() const { return answered - submitted; }
  absl::Duration device() const { return timings.h2d + timings.compute + timings.d2h; }
};

/// Sends one request and waits for its answer. Errors: the request's.
absl::StatusOr<Sample> CallOnce(House& house, const CallSpec& spec);

/// The answers of an open loop to requests that were meant to start after the warm-up.
struct OpenLoopResult {
  std::vector<Sample> samples;
  uint64_t submitted = 0;  ///< Warm-up included, as is `answered`.
  uint64_t answered = 0;
};

/// Sends a request at start + each offset of `schedule` (ascending), whatever became of those before, and waits for all
/// answers. On the calling thread, which polls for the next start if the house has a CPU for that. Errors: the first of
/// a request; DEADLINE_EXCEEDED when answers are missing 30 s after the last start.
absl::StatusOr<OpenLoopResult> RunOpenLoop(House& house, const CallSpec& spec, Time start,
                                           const std::vector<absl::Duration>& schedule, absl::Duration warmup);

/// Keeps `concurrency` requests in flight, a thread each, from construction to Stop. Threads: one owner.
class ClosedLoop {
 public:
  ClosedLoop(House& house, const CallSpec& spec, int concurrency);
  ~ClosedLoop() { Stop().IgnoreError(); }
  ClosedLoop(const ClosedLoop&) = delete;
  ClosedLoop& operator=(const ClosedLoop&) = delete;

  /// Waits for what is in flight. The first error of a request. Idempotent.
  absl::Status Stop();
  /// Rows a second between the first and the last answer in [from, to]: a request that lies across an end of a window
  /// counts neither too much nor too little. 0 with less than two. After Stop.
  double RowsPerSecond(Time from, Time to) const;
  uint64_t submitted() const { return submitted_.load(std::memory_order_relaxed); }
  uint64_t answered() const { return answers_.size(); }  ///< After Stop.

 private:
  void Run(absl::Status& status, std::vector<Time>& answers);

  House& house_;
  const CallSpec spec_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> submitted_ = 0;
  std::vector<absl::Status> statuses_;        ///< One a thread.
  std::vector<std::vector<Time>> by_thread_;  ///< When its requests were answered.
  std::vector<Time> answers_;                 ///< All of them, ascending, after Stop.
  std::vector<Thread> threads_;
};

}  // namespace sluice::bench
