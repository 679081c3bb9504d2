// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "server/scheduler/types.h"
#include "tests/sim/failure.h"

namespace sluice::sim {

/// Books of one scheduler core, kept from what goes in and comes out, and compared with every answer: bounds, order,
/// who may share an execution, who may wait, limits noticed in time, and counts. Written without looking at how the
/// core does it. Single-threaded.
class QueueChecker {
 public:
  QueueChecker(const scheduler::CoreOptions& options, Failure& failure) : options_(options), failure_(failure) {}

  void OnModelAdded(ModelId model, const scheduler::ModelLimits& limits) { models_[model].limits = limits; }
  void OnModelRemoved(ModelId model, const std::vector<RequestId>& taken, Time now);
  void OnSubmit(const scheduler::QueuedRequest& request, scheduler::Admission admission, bool had_predictions,
                Time now);
  void OnPick(const std::optional<scheduler::Pick>& pick, Time now);
  void OnExpired(const std::vector<scheduler::Expired>& expired, Time now);
  void OnCancel(RequestId id, scheduler::RequestPlace place, Time now);
  void OnCompleted(const scheduler::Pick& pick, const std::vector<RequestId>& unanswered, Time now);
  void OnDraining() { draining_ = true; }
  void OnTaken(const std::vector<RequestId>& taken, Time now);
  void OnJump(Time now) { last_jump_ = now; }
  void CheckCounts(const scheduler::CoreCounts& counts, Time now);

 private:
  enum class State : uint8_t { kQueued, kExpiredQueued, kExecuting, kExpiredExecuting, kReported };
  using GroupKey = std::pair<ModelId, uint32_t>;
  using QueueKey = std::pair<Time, uint64_t>;  ///< Order, then sequence of submission.
  struct Model {
    scheduler::ModelLimits limits;
    size_t queued = 0;
    int executions = 0;
    bool removed = false;
  };
  struct Entry {
    scheduler::QueuedRequest request;
    QueueKey key;
    State state = State::kQueued;
  };

  /// The core notices limits when it is asked to pick or expire; so do these books.
  void NoticeLimits(Time now);
  void LeaveQueue(const Entry& entry);
  Entry* Find(RequestId id, Time now, const char* what);
  void CheckPickedGroup(const scheduler::Pick& pick, Time now);
  void CheckPassedOver(const scheduler::Pick* pick, Time now);
  bool MayWait(const GroupKey& group_key, Time now) const;
  scheduler::Refusal ExpectedRefusal(const scheduler::QueuedRequest& request, Time now) const;
  static Time Limit(const Entry& entry);

  const scheduler::CoreOptions options_;
  Failure& failure_;
  std::map<ModelId, Model> models_;
  absl::flat_hash_map<RequestId, Entry> entries_;
  std::map<GroupKey, std::map<QueueKey, RequestId>> groups_;
  std::set<std::pair<Time, RequestId>> limits_;
  size_t queued_ = 0, queued_bytes_ = 0, unreported_ = 0, unreported_queued_ = 0, executing_ = 0, executions_ = 0;
  uint64_t sequence_ = 0;
  bool draining_ = false;
  Time last_jump_;
};

}  // namespace sluice::sim
