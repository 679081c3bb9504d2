// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "server/metrics/histogram.h"
#include "server/metrics/server_cells.h"
#include "server/metrics/striped_counters.h"
#include "server/metrics/words.h"

namespace sluice::metrics {

/// "No device was chosen yet."
inline constexpr int kNoDevice = -1;

/// One answered request.
struct RequestRecord {
  std::optional<RequestClass> request_class;  ///< Empty when it failed before its class was known.
  int device = kNoDevice;                     ///< Index into MetricsOptions::devices.
  absl::StatusCode code = absl::StatusCode::kOk;
  /// Whether the device's standard or batch lane was in use around this request (NeighbourActivity).
  bool contended = false;
  int64_t rows = 1;
  absl::Duration duration;  ///< From the complete message to the answer handed to the transport.
  std::array<absl::Duration, kStageCount> stages = {};  ///< By Stage; read for successful requests only.
};

/// One execution: several requests when they were merged into a batch.
struct ExecutionRecord {
  int64_t rows = 1;
  absl::Duration input = {}, infer = {}, output = {};
  Time finished = {};
};

/// A count and the time it took, as ModelStatistics has them.
struct CountedTime {
  int64_t count = 0;
  int64_t nanoseconds = 0;
};

struct BatchStatistics {
  int64_t rows = 0;
  CountedTime compute_input, compute_infer, compute_output;
};

/// What ModelStatistics answers for one version of one model.
struct ModelStatistics {
  std::string name;
  std::string version;
  int64_t last_inference_ms = 0;  ///< Milliseconds since 1970; 0 before the first.
  int64_t inference_count = 0;    ///< Rows of successful requests.
  int64_t execution_count = 0;
  CountedTime success, fail, queue, compute_input, compute_infer, compute_output;
  std::vector<BatchStatistics> batch_stats;  ///< Ascending by rows; sizes that never ran are left out.
};

/// Cells shared by the versions of a model: sluice_ series have no version label. Internal to metrics/.
struct NameCells {
  NameCells(std::string name_in, size_t device_count)
      : name(std::move(name_in)), requests(kClassLabelCount * (device_count + 1)), interference(device_count) {}
  struct RequestCells {
    std::array<OnFirstUse<DurationHistogram>, 2> durations;  ///< Uncontended, contended.
    StripedCounters codes{kStatusCodeCount};
  };
  const std::string name;
  std::vector<OnFirstUse<RequestCells>> requests;           ///< By ServerCells::CellIndex.
  std::vector<OnFirstUse<DurationHistogram>> interference;  ///< By device.
};

/// Counters of one version of one model. Purpose: what a request's path calls, with everything resolved before. Bounds:
/// a fixed set of label values; batch sizes up to kMostListedRows. Ownership: by Metrics, for the process's life.
/// Threads: every method from any thread; no lock; never blocks; allocates only when a label combination first occurs.
class ModelMetrics {
 public:
  /// A batch size beyond this is not listed by itself in ModelStatistics; it is counted in the totals.
  static constexpr int64_t kMostListedRows = 8191;

  /// Use Metrics::AddModel. All references outlive this.
  ModelMetrics(ServerCells& server, NameCells& cells, std::string version);

  /// Exactly once for each request that named this model, when its answer is handed to the transport. Durations and
  /// stages are observed for successful requests; others are counted by code.
  void OnRequest(const RequestRecord& record);
  void OnExecution(const ExecutionRecord& record);
  /// How much longer a latency request was on the device than its plan alone takes; below zero counts as zero.
  void ObserveInterference(int device, absl::Duration measured, absl::Duration alone);
  /// +1 when a request is enqueued, -1 when it starts or leaves the queue otherwise.
  void AddPending(int64_t delta) { counters_.Add(kPending, delta); }
  void SetReady(bool ready) { ready_.store(ready, std::memory_order_relaxed); }
  void SetLoadDuration(absl::Duration duration) {
    load_ns_.store(absl::ToInt64Nanoseconds(duration), std::memory_order_relaxed);
  }

  /// `now` and `wall_now` are the same moment on the two clocks.
  ModelStatistics Snapshot(Time now, absl::Time wall_now) const;

  const std::string& name() const { return cells_.name; }
  const std::string& version() const { return version_; }
  bool ready() const { return ready_.load(std::memory_order_relaxed); }
  absl::Duration load_duration() const { return absl::Nanoseconds(load_ns_.load(std::memory_order_relaxed)); }
  int64_t pending() const { return std::max<int64_t>(0, counters_.Sum(kPending)); }
  int64_t failures(FailureReason reason) const {
    return counters_.Sum(kFirstFailureReason + static_cast<size_t>(reason));
  }

 private:
  enum Counter : size_t {
    kSuccess,
    kSuccessNs,
    kQueueNs,
    kInputNs,
    kInferNs,
    kOutputNs,
    kFail,
    kFailNs,
    kInferences,
    kExecutions,
    kPending,
    kFirstFailureReason,
    kCounterCount = kFirstFailureReason + kFailureReasonCount
  };
  enum BatchCounter : size_t { kBatchExecutions, kBatchInputNs, kBatchInferNs, kBatchOutputNs, kBatchCounterCount };
  struct BatchCells {
    StripedCounters counters{kBatchCounterCount};
  };

  /// Batch sizes from a power of two up to the next. A version may be loaded again with larger batches, so there is
  /// room for all of them, made when the first of a block runs.
  struct BatchBlock {
    explicit BatchBlock(size_t first_rows) : by_rows(first_rows) {}
    std::vector<OnFirstUse<BatchCells>> by_rows;  ///< Less the block's first.
  };
  static constexpr size_t kBatchBlockCount = std::bit_width(static_cast<uint64_t>(kMostListedRows));

  void OnSuccess(const RequestRecord& record, int64_t duration_ns);

  ServerCells& server_;
  NameCells& cells_;
  const std::string version_;
  StripedCounters counters_{kCounterCount};
  std::array<OnFirstUse<BatchBlock>, kBatchBlockCount> batches_;  // By floor(log2(rows)).
  std::atomic<int64_t> last_execution_ns_ = -1;
  std::atomic<int64_t> load_ns_ = 0;
  std::atomic<bool> ready_ = false;
};

}  // namespace sluice::metrics
