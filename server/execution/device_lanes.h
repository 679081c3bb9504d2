// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/lane.h"
#include "gpu/launcher.h"
#include "gpu/load_turns.h"
#include "gpu/timeline.h"
#include "gpu/transfer.h"
#include "server/config.h"
#include "server/execution/executor.h"
#include "server/execution/lane_memory.h"
#include "server/execution/model_instance.h"
#include "server/infer_request.h"
#include "server/metrics/metrics.h"
#include "server/metrics/neighbour_activity.h"
#include "server/response_pool.h"
#include "server/scheduler/class_queue.h"
#include "server/scheduler/expiry.h"
#include "server/scheduler/latency_share.h"
#include "server/spin_budget.h"

namespace sluice::server {

using InferQueue = scheduler::ClassQueue<QueuedInfer>;

/// One device with everything that runs on it: gate, launcher, and for each class a lane, a queue and request threads.
/// Purpose: from Submit to the request's answer. Bounds: queues by requests and bytes, executions by slots, answers by
/// the response pool, threads by config. Ownership: owns the device; a model stays as long as whoever added it, or a
/// request in here, holds it. Threads: Submit and Cancel from any I/O thread; they take one queue's mutex, briefly.
/// Every submitted request is finished exactly once, at the latest by Stop.
class DeviceLanes {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceLanes>> Create(std::unique_ptr<gpu::Device> device, size_t device_index,
                                                             const ServerConfig& config, const Clock& clock,
                                                             metrics::Metrics& metrics, scheduler::ExpiryThread& expiry,
                                                             std::shared_ptr<ResponsePool> responses,
                                                             const SpinBudget& spin);
  ~DeviceLanes();

  gpu::Device& device() { return *device_; }
  const gpu::Device& device() const { return *device_; }

  /// Makes a prepared model runnable here. Before any request of it is submitted. One thread at a time, as the next.
  absl::Status AddModel(const std::shared_ptr<const ExecutableModel>& model,
                        const std::array<int, kRequestClassCount>& slot_counts);
  /// Forgets a model that nobody holds any more.
  void RemoveModel(ModelId id);
  /// Null when it does not run here. A short lock; any thread.
  std::shared_ptr<const ExecutableModel> FindModel(ModelId model) const;
  /// Predicted time until a request of this class submitted now would be over; for placement.
  absl::Duration PredictedDelay(RequestClass request_class) const;

  void Submit(std::shared_ptr<InferRequest> request);
  void Cancel(const std::shared_ptr<InferRequest>& request);

  /// Batch and standard requests in this device's house; decides the label `contended`.
  const metrics::NeighbourActivity& neighbours() const { return neighbours_; }

  /// How bytes move here: measured when this was created, or from the config.
  const gpu::TransferTuning& transfer_tuning() const { return transfer_tuning_; }
  /// Adds what plans need to know of the lanes they will run on.
  void CompletePlanOptions(model::PlanOptions& options) const;

  /// What happened here, while somebody records it.
  gpu::Timeline& timeline() { return *timeline_; }

  /// Appends what metrics ask for at a scrape.
  void Read(std::vector<metrics::ReadingSample>& samples);

  /// Whether request threads that may poll for work do. Off: several of these can be in one process without taking each
  /// other's CPUs, as long as only one has work.
  void SetPolling(bool polls);

  /// Refuses new requests from now on; what was admitted runs.
  void Drain();
  /// True when nothing waits and nothing executes.
  bool Idle() const;
  /// Answers what waits with UNAVAILABLE, waits for what executes, ends the threads. Idempotent.
  void Stop();

 private:
  struct LaneState {
    std::unique_ptr<InferQueue> queue;
    std::unique_ptr<LaneMemory> memory;  ///< After the queue, which it calls.
    int expiry_id = 0;
    int lowest_number = 0;  ///< Of the streams' priorities as read back; a smaller number runs first.
    int highest_number = 0;
    std::unique_ptr<gpu::Lane> lane;
    std::atomic<int64_t> slot_waits = 0;  ///< Statistics only.
    std::atomic<int64_t> slot_timeouts = 0;
    std::vector<Thread> threads;
  };

  DeviceLanes(std::unique_ptr<gpu::Device> device, size_t device_index, const ServerConfig& config, const Clock& clock,
              metrics::Metrics& metrics);
  static size_t Index(RequestClass request_class) { return static_cast<size_t>(request_class); }
  absl::Status CreateLanes(const ServerConfig& config, scheduler::ExpiryThread& expiry, const SpinBudget& spin);
  int ThreadCount(RequestClass request_class) const {
    return request_class == RequestClass::kLatency ? latency_threads_ : request_threads_;
  }
  absl::Status CheckPriorities() const;
  absl::Status OutcomeStatus(const ExecutionOutcome& outcome) const;
  std::vector<std::shared_ptr<const ExecutableModel>> Models() const;
  void StartThreads(const SpinBudget& spin);
  void RunRequestThread(RequestClass request_class, bool polls);
  void Expire(RequestClass request_class, Time now);
  /// Takes what a latency request needs of the class's share. Without room, and with other work there, it is given a
  /// lower class; false when it has been refused instead.
  bool AdmitToLatencyClass(InferRequest& request, absl::Duration predicted, QueuedInfer& queued);
  void AnswerEarly(QueuedInfer& queued, scheduler::RequestPlace place, absl::Status status);
  void CountStarted(const QueuedInfer& queued);
  void Leave(const QueuedInfer& queued);
  void LeaveNeighbours(const QueuedInfer& queued);
  void GiveBackMerged(const InferQueue::Execution& execution, const ExecutionOutcome& outcome);
  void Answer(const InferQueue::Execution& execution, const std::vector<QueuedInfer>& unanswered,
              ExecutionOutcome& outcome, Time device_end);
  void ReadClasses(std::span<const std::shared_ptr<const ExecutableModel>> models,
                   std::vector<metrics::ReadingSample>& samples);
  /// All slots of a class, and how many of them are free.
  static std::pair<size_t, size_t> CountSlots(std::span<const std::shared_ptr<const ExecutableModel>> models,
                                              RequestClass request_class);
  void Record(const ExecutableModel& model, RequestClass request_class, const ExecutionOutcome& outcome);

  // Constant after Create.
  const std::unique_ptr<gpu::Device> device_;
  const size_t device_index_;
  const Clock& clock_;
  metrics::Metrics& metrics_;
  std::unique_ptr<gpu::Timeline> timeline_;  ///< Before everything that records into it.
  std::unique_ptr<gpu::Gate> gate_;
  std::unique_ptr<gpu::LoadTurns> load_turns_;
  std::unique_ptr<gpu::Launcher> launcher_;
  std::shared_ptr<ResponsePool> responses_;
  absl::Duration slot_wait_;
  scheduler::ExpiryThread* expiry_ = nullptr;
  size_t queue_limit_ = 0;
  bool strict_class_ = false;
  gpu::TransferTuning transfer_tuning_;
  bool latency_polls_ = false;  ///< Every latency thread polls while its work is on the device.
  int request_threads_ = 0;
  int latency_threads_ = 0;
  bool launcher_polls_ = false;
  bool standard_polls_ = false;

  struct Entry {
    std::weak_ptr<const ExecutableModel> model;
    bool latency_capable = false;
  };
  mutable Mutex models_mutex_;
  absl::flat_hash_map<ModelId, Entry> models_ ABSL_GUARDED_BY(models_mutex_);

  // Self-synchronised.
  scheduler::LatencyShare latency_share_;
  metrics::NeighbourActivity neighbours_;
  metrics::NeighbourActivity others_;  ///< The same without demoted requests, which must not demote more of their kind.
  std::atomic<bool> stopped_ = false;

  std::array<LaneState, kRequestClassCount> lanes_;  // threads last
};

}  // namespace sluice::server
