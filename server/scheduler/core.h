// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "server/scheduler/execution_times.h"
#include "server/scheduler/types.h"

namespace sluice::scheduler {

/// Decides what one class on one device runs next (DESIGN.md 7). Purpose: a pure state machine; it is told the time and
/// what happened, and answers with values. Order: earliest deadline first. A model whose executions are all running,
/// or that still waits for company, is passed over and blocks no other. So are requests for whose responses there is no
/// memory: they wait here, at most CoreOptions::response_wait from when their group was first passed over.
/// Bounds: CoreOptions; memory grows with requests waiting and executing, nothing else. Submit, Cancel and each request
/// picked cost O(log n) in the requests held; admission by prediction may walk the requests ahead of the new one.
/// Ownership: holds ids and numbers only.
/// Threads and blocking: none of its own, no lock, no clock, no I/O; one caller at a time. `now` never goes back.
/// Errors: refusals and unknown ids are values.
///
/// Every admitted request leaves in exactly one of these ways: Cancel, Expire, RemoveModel, TakeQueued, or among the
/// ids that OnCompleted returns. Until OnCompleted, one that executes may leave by Cancel or Expire once.
class SchedulerCore {
 public:
  static constexpr size_t kMaxMergedRequests = 256;
  /// A request that waits for company is let go this long before waiting would make it late: the resolution of expiry.
  static constexpr absl::Duration kHoldMargin = absl::Milliseconds(5);
  /// A deadline must leave this many times the predicted time to a request that has to wait. With none to spare every
  /// request that waits would be just in time, and one execution a little longer than predicted make all of them late.
  static constexpr double kWaitHeadroom = 1.2;
  /// Takes response memory, or says that there is none; called once for an execution that starts.
  using Reserve = absl::FunctionRef<bool(size_t size_bytes)>;

  explicit SchedulerCore(const CoreOptions& options);

  /// False when the id is known already.
  bool AddModel(ModelId model, const ModelLimits& limits);
  /// Forgets the model; returns its waiting requests. What executes goes on and is completed as usual.
  std::vector<RequestId> RemoveModel(ModelId model);

  Admission Submit(const QueuedRequest& request, Time now, const Prediction& prediction = {});

  /// The execution to start now, or nothing. Requests whose limit has passed are never picked: Expire reports them.
  /// `reserve` is asked for an execution's response memory; fewer requests are merged when there is not enough for all.
  std::optional<Pick> PickNext(Time now, Reserve reserve);
  std::optional<Pick> PickNext(Time now) {
    return PickNext(now, [](size_t) { return true; });
  }

  /// An execution is over. `measured` (nothing when it failed or was cut short) corrects the predictions; so does the
  /// time of one that was cut short because all its requests had left, if it ran for longer than predicted. Returns its
  /// requests that neither Cancel nor Expire has reported; empty for an unknown id.
  std::vector<RequestId> OnCompleted(ExecutionId execution, Time now, std::optional<absl::Duration> measured);

  /// Requests whose limit has passed, each reported once. An executing one stays part of its execution.
  std::vector<Expired> Expire(Time now);

  /// Where the request was. A waiting one is gone; an executing one will not be reported again. kUnknown when it has
  /// left, or was reported already.
  RequestPlace Cancel(RequestId id);

  /// Refuses all submissions; what waits still runs, without waiting for company.
  void SetDraining(bool draining);
  /// Empties the queue.
  std::vector<RequestId> TakeQueued();

  /// When Expire next has something to report, if nothing changes before; Zero for at once, Infinite for never.
  Time NextExpiry() const;
  /// When PickNext next has something that now still waits for company, if nothing changes before. Zero when something
  /// has changed since PickNext last returned nothing: call it first.
  Time NextPick() const;
  /// Something waits for response memory: PickNext may have something as soon as memory is given back.
  bool starved() const { return !starved_.empty(); }
  Time NextWakeup() const { return std::min(NextExpiry(), NextPick()); }

  /// Predicted time until all that waits and executes is over; zero while nothing has been measured.
  absl::Duration PredictedDelay(Time now) const;
  /// Predicted time of one execution; zero when nothing is known.
  absl::Duration PredictedExecution(ModelId model, int64_t rows) const;

  CoreCounts counts() const;
  size_t queued_count(ModelId model) const;
  const CoreOptions& options() const { return options_; }

 private:
  struct Model {
    ModelLimits limits;
    ExecutionTimes times;
    size_t queued = 0;
    int executions = 0;
    bool removed = false;
  };
  enum class State : uint8_t { kQueued, kExecuting, kReported };
  struct Entry {
    QueuedRequest request;
    Time order;                ///< Deadline, or arrival + horizon.
    uint64_t sequence = 0;     ///< Breaks ties in the order of submission.
    absl::Duration predicted;  ///< Its share of predicted work.
    State state = State::kQueued;
  };
  struct QueueKey {
    Time order;
    uint64_t sequence;
    RequestId id;
    friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
  };
  /// Waiting requests that may share an execution.
  struct Group {
    Model* model = nullptr;
    std::set<QueueKey> queue;
    Time hold_until = Time::Zero();  ///< No pick before; valid unless `changed`.
    bool changed = true;
    Time starved_since = Time::Infinite();  ///< It was first passed over for want of response memory.
    Time starved_until = Time::Infinite();  ///< Then the first of its requests is given up, or later.
  };
  struct GroupKey {
    ModelId model;
    uint32_t shape_bucket = 0;
    bool needs_memory = false;  ///< Apart, so that small responses never wait for memory behind large ones.
    friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
  };
  struct Execution {
    ModelId model;
    std::vector<RequestId> requests;
    int64_t rows = 0;
    Time started;
    absl::Duration predicted;
  };
  /// The first requests of a group that would run together, and until when they wait instead.
  struct Candidate {
    size_t count = 0;
    int64_t rows = 0;
    Time hold_until = Time::Zero();
    size_t response_bytes = 0;  ///< Reserved.
  };

  Refusal Check(const QueuedRequest& request, Time now) const;
  bool MeetsDeadline(const QueuedRequest& request, const Model& model, Time now, const Prediction& prediction) const;
  absl::Duration PredictedShare(const QueuedRequest& request, const Model& model, const Prediction& prediction) const;
  Candidate Examine(const Group& group, Time now) const;
  Candidate ExamineMerged(const Group& group, Time now) const;
  /// Takes the response memory of as many of the candidate's first requests as it can, which it then is; or notes that
  /// the group starves.
  bool ReserveMemory(const GroupKey& group_key, Group& group, Time now, Reserve reserve, Candidate& candidate);
  Pick Start(GroupKey group_key, const Candidate& candidate, Time now);
  void Enqueue(const Entry& entry);
  /// Takes the entry out of its group and the counts; the entry itself stays.
  void Unqueue(const Entry& entry);
  void InsertExpiry(const Entry& entry);
  void EraseExpiry(const Entry& entry);
  /// Moves everything whose limit has passed to expired_.
  void CollectExpired(Time now);
  void CollectStarved(Time now);
  /// When a request of a starved group is given up.
  Time StarvesAt(const Group& group, const Entry& entry) const {
    return std::max(entry.request.arrival, group.starved_since) + options_.response_wait;
  }
  void TakeGroup(const GroupKey& group_key, std::vector<RequestId>& taken);
  const Entry& entry(RequestId id) const { return entries_.find(id)->second; }

  static Time LimitOf(const Entry& entry);
  static QueueKey KeyOf(const Entry& entry) { return {entry.order, entry.sequence, entry.request.id}; }
  static GroupKey GroupKeyOf(const Entry& entry) {
    return {entry.request.model, entry.request.shape_bucket, entry.request.response_bytes > 0};
  }

  const CoreOptions options_;
  std::map<ModelId, Model> models_;
  std::map<GroupKey, Group> groups_;               ///< Only those with requests.
  std::set<GroupKey> starved_;                     ///< Groups that wait for response memory.
  std::set<std::pair<QueueKey, GroupKey>> heads_;  ///< The first request of each group.
  absl::flat_hash_map<RequestId, Entry> entries_;  ///< Waiting and executing.
  std::set<std::pair<Time, RequestId>> expiry_;    ///< By the limit that applies now.
  std::vector<Expired> expired_;                   ///< Found by PickNext, reported by the next Expire.
  std::map<ExecutionId, Execution> executions_;
  size_t queued_ = 0;
  size_t queued_bytes_ = 0;
  size_t executing_requests_ = 0;
  absl::Duration queued_work_;
  Time next_pick_ = Time::Infinite();
  uint64_t last_sequence_ = 0;
  uint64_t last_execution_ = 0;
  bool draining_ = false;
};

}  // namespace sluice::scheduler
