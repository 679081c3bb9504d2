// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/queue_checker.h"

#include <algorithm>

namespace sluice::sim {

using scheduler::Refusal;
using scheduler::RequestPlace;

Time QueueChecker::Limit(const Entry& entry) {
  const bool queued = entry.state == State::kQueued;
  return queued ? std::min(entry.request.deadline, entry.request.queue_deadline) : entry.request.deadline;
}

QueueChecker::Entry* QueueChecker::Find(RequestId id, Time now, const char* what) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) {
    failure_.Report(now, what, " of request ", id.value(), ", which is not there");
    return nullptr;
  }
  return &it->second;
}

void QueueChecker::LeaveQueue(const Entry& entry) {
  const GroupKey group_key{entry.request.model, entry.request.shape_bucket};
  groups_[group_key].erase(entry.key);
  if (groups_[group_key].empty()) groups_.erase(group_key);
  limits_.erase({Limit(entry), entry.request.id});
  --models_[entry.request.model].queued;
  --queued_;
  queued_bytes_ -= entry.request.bytes;
}

void QueueChecker::NoticeLimits(Time now) {
  while (!limits_.empty() && limits_.begin()->first <= now) {
    Entry& entry = entries_.find(limits_.begin()->second)->second;
    if (entry.state == State::kQueued) {
      LeaveQueue(entry);
      entry.state = State::kExpiredQueued;
      ++unreported_queued_;
    } else {
      limits_.erase(limits_.begin());
      entry.state = State::kExpiredExecuting;
    }
    ++unreported_;
  }
}

Refusal QueueChecker::ExpectedRefusal(const scheduler::QueuedRequest& request, Time now) const {
  if (draining_) return Refusal::kDraining;
  const auto model = models_.find(request.model);
  if (model == models_.end() || model->second.removed) return Refusal::kUnknownModel;
  if (request.deadline <= now) return Refusal::kDeadlinePassed;
  if (request.queue_deadline <= now) return Refusal::kQueueTimeoutPassed;
  if (queued_ + unreported_ >= options_.max_requests) return Refusal::kQueueFull;
  const uint32_t model_bound = model->second.limits.max_queue_size;
  if (model_bound > 0 && model->second.queued >= model_bound) return Refusal::kModelQueueFull;
  if (queued_bytes_ + request.bytes > options_.max_bytes) return Refusal::kBytesFull;
  return Refusal::kNone;
}

void QueueChecker::OnSubmit(const scheduler::QueuedRequest& request, scheduler::Admission admission,
                            bool had_predictions, Time now) {
  const Refusal expected = ExpectedRefusal(request, now);
  const bool by_prediction = expected == Refusal::kNone && admission.refusal == Refusal::kDeadlineUnreachable &&
                             had_predictions && !request.deadline.is_infinite();
  if (admission.refusal != expected && !by_prediction) {
    failure_.Report(now, "submission of ", request.id.value(), ": ", scheduler::RefusalName(admission.refusal),
                    " instead of ", scheduler::RefusalName(expected));
  }
  if (!admission.admitted()) return;
  const Time order = request.deadline.is_infinite() ? request.arrival + options_.default_horizon : request.deadline;
  Entry entry{.request = request, .key = {order, ++sequence_}, .state = State::kQueued};
  groups_[{request.model, request.shape_bucket}].emplace(entry.key, request.id);
  if (!Limit(entry).is_infinite()) limits_.insert({Limit(entry), request.id});
  ++models_[request.model].queued;
  ++queued_;
  queued_bytes_ += request.bytes;
  entries_.emplace(request.id, entry);
}

bool QueueChecker::MayWait(const GroupKey& group_key, Time now) const {
  const Model& model = models_.find(group_key.first)->second;
  if (model.executions >= model.limits.max_concurrent_executions) return true;
  const scheduler::ModelLimits& limits = model.limits;
  if (options_.request_class == RequestClass::kLatency || !limits.merges_requests || draining_) return false;
  int64_t rows = 0;
  Time oldest = Time::Infinite();
  for (const auto& [key, id] : groups_.find(group_key)->second) {
    const scheduler::QueuedRequest& request = entries_.find(id)->second.request;
    rows += request.rows;
    oldest = std::min(oldest, request.arrival);
    const auto& preferred = limits.preferred_batch_sizes;
    if (std::find(preferred.begin(), preferred.end(), rows) != preferred.end()) return false;
  }
  return rows < limits.max_batch_rows && now < oldest + limits.max_queue_delay;
}

void QueueChecker::CheckPassedOver(const scheduler::Pick* pick, Time now) {
  const GroupKey picked = pick == nullptr ? GroupKey{} : GroupKey{pick->model, pick->shape_bucket};
  const QueueKey head = pick == nullptr ? QueueKey{Time::Infinite(), 0} : groups_.find(picked)->second.begin()->first;
  for (const auto& [group_key, queue] : groups_) {
    if (group_key == picked || queue.begin()->first >= head || MayWait(group_key, now)) continue;
    failure_.Report(now, RequestClassName(options_.request_class), " request ", queue.begin()->second.value(),
                    pick == nullptr ? " was not picked though nothing holds it" : " was overtaken by a later deadline");
  }
}

void QueueChecker::CheckPickedGroup(const scheduler::Pick& pick, Time now) {
  const auto group = groups_.find({pick.model, pick.shape_bucket});
  const Model& model = models_[pick.model];
  if (group == groups_.end() || pick.requests.empty() || pick.requests.size() > group->second.size()) {
    failure_.Report(now, "picked what does not wait");
    return;
  }
  int64_t rows = 0;
  auto it = group->second.begin();
  for (const RequestId id : pick.requests) {
    if (it->second != id) failure_.Report(now, "request ", id.value(), " overtook ", it->second.value());
    rows += entries_.find(it->second)->second.request.rows;
    ++it;
  }
  if (rows != pick.rows) failure_.Report(now, "picked ", pick.rows, " rows instead of ", rows);
  if (pick.requests.size() > 1 && (!model.limits.merges_requests || rows > model.limits.max_batch_rows)) {
    failure_.Report(now, "merged ", pick.requests.size(), " requests of ", rows, " rows against the limits");
  }
  if (model.executions >= model.limits.max_concurrent_executions) failure_.Report(now, "too many executions");
}

void QueueChecker::OnPick(const std::optional<scheduler::Pick>& pick, Time now) {
  NoticeLimits(now);
  if (pick.has_value()) CheckPickedGroup(*pick, now);
  if (failure_.found()) return;
  CheckPassedOver(pick.has_value() ? &*pick : nullptr, now);
  if (!pick.has_value()) return;
  for (const RequestId id : pick->requests) {
    Entry& entry = entries_.find(id)->second;
    LeaveQueue(entry);
    entry.state = State::kExecuting;
    if (!entry.request.deadline.is_infinite()) limits_.insert({entry.request.deadline, id});
  }
  ++models_[pick->model].executions;
  ++executions_;
  executing_ += pick->requests.size();
}

void QueueChecker::OnExpired(const std::vector<scheduler::Expired>& expired, Time now) {
  NoticeLimits(now);
  for (const scheduler::Expired& one : expired) {
    Entry* entry = Find(one.id, now, "expiry");
    if (entry == nullptr) return;
    const bool queued = entry->state == State::kExpiredQueued;
    if (!queued && entry->state != State::kExpiredExecuting) {
      failure_.Report(now, "request ", one.id.value(), " expired without a reason or twice");
    }
    if (one.place != (queued ? RequestPlace::kQueued : RequestPlace::kExecuting)) {
      failure_.Report(now, "request ", one.id.value(), " expired in another place");
    }
    const scheduler::QueuedRequest& request = entry->request;
    const bool by_queue_limit = queued && request.queue_deadline < request.deadline;
    if ((one.reason == scheduler::ExpiryReason::kQueueTimeout) != by_queue_limit) {
      failure_.Report(now, "request ", one.id.value(), " expired for the wrong reason");
    }
    const Time limit = by_queue_limit ? request.queue_deadline : request.deadline;
    if (now - std::max(limit, last_jump_) > absl::Milliseconds(5)) {
      failure_.Report(now, "request ", one.id.value(), " expired more than 5 ms late");
    }
    --unreported_;
    if (queued) {
      --unreported_queued_;
      entries_.erase(one.id);
    } else {
      entry->state = State::kReported;
    }
  }
  if (unreported_ != 0) failure_.Report(now, unreported_, " expired requests were not reported");
}

void QueueChecker::OnCancel(RequestId id, RequestPlace place, Time now) {
  const auto it = entries_.find(id);
  RequestPlace expected = RequestPlace::kUnknown;
  if (it != entries_.end() && it->second.state == State::kQueued) expected = RequestPlace::kQueued;
  if (it != entries_.end() && it->second.state == State::kExecuting) expected = RequestPlace::kExecuting;
  if (place != expected) {
    failure_.Report(now, "cancel of ", id.value(), " found it in place ", static_cast<int>(place), " instead of ",
                    static_cast<int>(expected));
  }
  if (expected == RequestPlace::kQueued) {
    LeaveQueue(it->second);
    entries_.erase(it);
  } else if (expected == RequestPlace::kExecuting) {
    limits_.erase({Limit(it->second), id});
    it->second.state = State::kReported;
  }
}

void QueueChecker::OnCompleted(const scheduler::Pick& pick, const std::vector<RequestId>& unanswered, Time now) {
  std::vector<RequestId> expected;
  for (const RequestId id : pick.requests) {
    Entry* entry = Find(id, now, "completion");
    if (entry == nullptr) return;
    if (entry->state == State::kExecuting) {
      expected.push_back(id);
      limits_.erase({Limit(*entry), id});
    }
    // One that has expired but is not reported stays until it is.
    if (entry->state != State::kExpiredExecuting) entries_.erase(id);
  }
  if (unanswered != expected) {
    failure_.Report(now, unanswered.size(), " requests are left to answer instead of ", expected.size());
  }
  --models_[pick.model].executions;
  --executions_;
  executing_ -= pick.requests.size();
}

void QueueChecker::OnTaken(const std::vector<RequestId>& taken, Time now) {
  for (const RequestId id : taken) {
    Entry* entry = Find(id, now, "removal");
    if (entry == nullptr) return;
    if (entry->state != State::kQueued) failure_.Report(now, "removed ", id.value(), ", which did not wait");
    LeaveQueue(*entry);
    entries_.erase(id);
  }
}

void QueueChecker::OnModelRemoved(ModelId model, const std::vector<RequestId>& taken, Time now) {
  OnTaken(taken, now);
  models_[model].removed = true;
  if (models_[model].queued != 0) failure_.Report(now, "requests of a removed model still wait");
}

void QueueChecker::CheckCounts(const scheduler::CoreCounts& counts, Time now) {
  if (counts.queued != queued_ || counts.queued_bytes != queued_bytes_ || counts.executing_requests != executing_ ||
      counts.executions != executions_ || counts.expired_unreported != unreported_) {
    failure_.Report(now, "counts of ", RequestClassName(options_.request_class), " are wrong: ", counts.queued,
                    " waiting instead of ", queued_, ", ", counts.executing_requests, " executing instead of ",
                    executing_);
  }
  if (counts.queued + unreported_queued_ > options_.max_requests || counts.queued_bytes > options_.max_bytes) {
    failure_.Report(now, "the bounds of the queue are exceeded");
  }
}

}  // namespace sluice::sim
