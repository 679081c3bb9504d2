// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/core.h"

#include <algorithm>
#include <cassert>

namespace sluice::scheduler {

SchedulerCore::SchedulerCore(const CoreOptions& options) : options_(options) {
  assert(options.max_concurrent_executions >= 1);
}

bool SchedulerCore::AddModel(ModelId model, const ModelLimits& limits) {
  const auto [it, inserted] = models_.try_emplace(model);
  if (inserted) it->second.limits = limits;
  return inserted;
}

std::vector<RequestId> SchedulerCore::RemoveModel(ModelId model) {
  std::vector<RequestId> taken;
  const auto it = models_.find(model);
  if (it == models_.end()) return taken;
  it->second.removed = true;
  for (auto group = groups_.lower_bound({.model = model}); group != groups_.end() && group->first.model == model;) {
    const GroupKey group_key = group->first;
    ++group;
    TakeGroup(group_key, taken);
  }
  if (it->second.executions == 0) models_.erase(it);
  return taken;
}

Refusal SchedulerCore::Check(const QueuedRequest& request, Time now) const {
  if (draining_) return Refusal::kDraining;
  const auto model = models_.find(request.model);
  if (model == models_.end() || model->second.removed) return Refusal::kUnknownModel;
  if (entries_.contains(request.id)) return Refusal::kDuplicateId;
  if (request.deadline <= now) return Refusal::kDeadlinePassed;
  if (request.queue_deadline <= now) return Refusal::kQueueTimeoutPassed;
  // What has expired but is not reported yet still takes memory, so it still takes room.
  if (queued_ + expired_.size() >= options_.max_requests) return Refusal::kQueueFull;
  const ModelLimits& limits = model->second.limits;
  if (limits.max_queue_size != 0 && model->second.queued >= limits.max_queue_size) return Refusal::kModelQueueFull;
  if (request.bytes > options_.max_bytes - queued_bytes_) return Refusal::kBytesFull;
  return Refusal::kNone;
}

Admission SchedulerCore::Submit(const QueuedRequest& request, Time now, const Prediction& prediction) {
  if (const Refusal refusal = Check(request, now); refusal != Refusal::kNone) return {refusal};
  Model& model = models_.find(request.model)->second;
  // TrustedNow comes last: asking it uses up the one probe of a model whose predictions are old.
  if (!MeetsDeadline(request, model, now, prediction) && model.times.TrustedNow(now)) {
    return {Refusal::kDeadlineUnreachable};
  }
  Entry entry;
  entry.request = request;
  entry.order = request.deadline.is_infinite() ? request.arrival + options_.default_horizon : request.deadline;
  entry.sequence = ++last_sequence_;
  entry.predicted = PredictedShare(request, model, prediction);
  Enqueue(entry);
  InsertExpiry(entry);
  entries_.emplace(request.id, entry);
  return {};
}

absl::Duration SchedulerCore::PredictedShare(const QueuedRequest& request, const Model& model,
                                             const Prediction& prediction) const {
  if (model.limits.merges_requests) return model.times.PredictShare(request.rows, model.limits.max_batch_rows);
  return std::max(model.times.Predict(request.rows), prediction.execution);
}

bool SchedulerCore::MeetsDeadline(const QueuedRequest& request, const Model& model, Time now,
                                  const Prediction& prediction) const {
  if (request.deadline.is_infinite()) return true;
  const int free_count = options_.max_concurrent_executions - static_cast<int>(executions_.size());
  const absl::Duration own = std::max(model.times.Predict(request.rows), prediction.execution);
  absl::Duration left = request.deadline - now;
  if (free_count <= 0 || queued_ > 0) left /= kWaitHeadroom;
  const absl::Duration latest_start = left - own - prediction.wait;
  if (latest_start < absl::ZeroDuration()) return false;

  // How much work can run before the latest start, beside what executes now; an execution over its predicted time is
  // taken to end at once.
  absl::Duration capacity = latest_start * std::max(free_count, 0);
  bool can_start = free_count > 0;
  for (const auto& [id, execution] : executions_) {
    const absl::Duration remaining = std::max(execution.started + execution.predicted - now, absl::ZeroDuration());
    if (remaining > latest_start) continue;
    can_start = true;
    capacity += latest_start - remaining;
  }
  if (!can_start) return false;
  if (queued_work_ <= capacity) return true;
  absl::Duration ahead;
  for (const auto& [group_key, group] : groups_) {
    for (const QueueKey& key : group.queue) {
      if (key.order > request.deadline) break;
      ahead += entry(key.id).predicted;
      if (ahead > capacity) return false;
    }
  }
  return true;
}

void SchedulerCore::Enqueue(const Entry& entry) {
  const GroupKey group_key = GroupKeyOf(entry);
  Group& group = groups_[group_key];
  group.model = &models_.find(entry.request.model)->second;
  if (!group.queue.empty()) heads_.erase({*group.queue.begin(), group_key});
  group.queue.insert(KeyOf(entry));
  heads_.insert({*group.queue.begin(), group_key});
  group.changed = true;
  if (!group.starved_since.is_infinite()) group.starved_until = std::min(group.starved_until, StarvesAt(group, entry));
  ++group.model->queued;
  ++queued_;
  queued_bytes_ += entry.request.bytes;
  queued_work_ += entry.predicted;
  next_pick_ = Time::Zero();
}

void SchedulerCore::Unqueue(const Entry& entry) {
  const auto it = groups_.find(GroupKeyOf(entry));
  Group& group = it->second;
  heads_.erase({*group.queue.begin(), it->first});
  group.queue.erase(KeyOf(entry));
  group.changed = true;
  --group.model->queued;
  --queued_;
  queued_bytes_ -= entry.request.bytes;
  queued_work_ -= entry.predicted;
  if (group.queue.empty()) {
    if (!group.starved_since.is_infinite()) starved_.erase(it->first);
    groups_.erase(it);
  } else {
    heads_.insert({*group.queue.begin(), it->first});
  }
}

std::optional<Pick> SchedulerCore::PickNext(Time now, Reserve reserve) {
  CollectExpired(now);
  next_pick_ = Time::Infinite();
  for (const auto& [head, group_key] : heads_) {
    Group& group = groups_.find(group_key)->second;
    if (group.model->executions >= group.model->limits.max_concurrent_executions) continue;
    if (group.changed || group.hold_until <= now) {
      Candidate candidate = Examine(group, now);
      if (candidate.hold_until <= now) {
        if (ReserveMemory(group_key, group, now, reserve, candidate)) return Start(group_key, candidate, now);
        continue;  // it is looked at again at every call, and blocks nothing behind it
      }
      group.hold_until = candidate.hold_until;
      group.changed = false;
    }
    next_pick_ = std::min(next_pick_, group.hold_until);
  }
  return std::nullopt;
}

bool SchedulerCore::ReserveMemory(const GroupKey& group_key, Group& group, Time now, Reserve reserve,
                                  Candidate& candidate) {
  if (!group_key.needs_memory) return true;
  for (size_t count = candidate.count; count > 0; count /= 2) {
    Candidate fewer{.count = count};
    auto key = group.queue.begin();
    for (size_t i = 0; i < count; ++i, ++key) {
      const QueuedRequest& request = entry(key->id).request;
      fewer.rows += request.rows;
      fewer.response_bytes += request.response_bytes;
    }
    if (!reserve(fewer.response_bytes)) continue;
    candidate = fewer;
    if (!group.starved_since.is_infinite()) starved_.erase(group_key);
    group.starved_since = group.starved_until = Time::Infinite();
    return true;
  }
  if (group.starved_since.is_infinite() && options_.response_wait != absl::InfiniteDuration()) {
    group.starved_since = now;
    group.starved_until = now + options_.response_wait;
    starved_.insert(group_key);
  }
  return false;
}

SchedulerCore::Candidate SchedulerCore::Examine(const Group& group, Time now) const {
  const int64_t head_rows = entry(group.queue.begin()->id).request.rows;
  const ModelLimits& limits = group.model->limits;
  if (!limits.merges_requests || head_rows >= limits.max_batch_rows) return {1, head_rows, Time::Zero()};
  return ExamineMerged(group, now);
}

SchedulerCore::Candidate SchedulerCore::ExamineMerged(const Group& group, Time now) const {
  const ModelLimits& limits = group.model->limits;
  const std::vector<int64_t>& preferred = limits.preferred_batch_sizes;
  const int64_t largest_preferred =
      preferred.empty() ? limits.max_batch_rows : *std::max_element(preferred.begin(), preferred.end());
  Candidate all;             // Everything that fits.
  Candidate preferred_size;  // The largest beginning of `all` that has a preferred size.
  bool full = false;
  Time oldest = Time::Infinite(), earliest_queue_limit = Time::Infinite(), earliest_deadline = Time::Infinite();
  for (const QueueKey& key : group.queue) {
    const QueuedRequest& request = entry(key.id).request;
    full = all.count == kMaxMergedRequests || (all.count > 0 && all.rows + request.rows > limits.max_batch_rows);
    if (full) break;
    // The next one would go past every preferred size: what came before it is as good as it gets.
    if (all.count > 0 && preferred_size.count == 0 && all.rows + request.rows > largest_preferred) preferred_size = all;
    ++all.count;
    all.rows += request.rows;
    if (std::find(preferred.begin(), preferred.end(), all.rows) != preferred.end()) preferred_size = all;
    oldest = std::min(oldest, request.arrival);
    earliest_queue_limit = std::min(earliest_queue_limit, request.queue_deadline);
    earliest_deadline = std::min(earliest_deadline, request.deadline);
  }
  if (options_.request_class == RequestClass::kLatency) return all;
  const bool may_wait = limits.max_queue_delay > absl::ZeroDuration() && !draining_;
  if (may_wait && oldest + limits.max_queue_delay <= now) return all;
  if (preferred_size.count > 0) return preferred_size;
  if (!may_wait || full || all.rows >= largest_preferred) return all;
  // Waiting for company must not make a request late.
  const Time latest_start = std::min(earliest_queue_limit, earliest_deadline - group.model->times.Predict(all.rows));
  all.hold_until = std::min(oldest + limits.max_queue_delay, latest_start - kHoldMargin);
  return all;
}

Pick SchedulerCore::Start(GroupKey group_key, const Candidate& candidate, Time now) {
  Pick pick{.execution = ExecutionId(++last_execution_),
            .model = group_key.model,
            .shape_bucket = group_key.shape_bucket,
            .requests = {},
            .rows = candidate.rows,
            .response_bytes = candidate.response_bytes};
  Model& model = models_.find(group_key.model)->second;
  pick.requests.reserve(candidate.count);
  for (size_t i = 0; i < candidate.count; ++i) {
    Entry& first = entries_.find(groups_.find(group_key)->second.queue.begin()->id)->second;
    EraseExpiry(first);
    Unqueue(first);
    first.state = State::kExecuting;
    InsertExpiry(first);
    pick.requests.push_back(first.request.id);
  }
  ++model.executions;
  executing_requests_ += candidate.count;
  executions_.emplace(pick.execution, Execution{.model = pick.model,
                                                .requests = pick.requests,
                                                .rows = pick.rows,
                                                .started = now,
                                                .predicted = model.times.Predict(pick.rows)});
  next_pick_ = Time::Zero();
  return pick;
}

std::vector<RequestId> SchedulerCore::OnCompleted(ExecutionId execution, Time now,
                                                  std::optional<absl::Duration> measured) {
  std::vector<RequestId> unanswered;
  const auto it = executions_.find(execution);
  if (it == executions_.end()) return unanswered;
  for (const RequestId id : it->second.requests) {
    const auto found = entries_.find(id);
    if (found->second.state == State::kExecuting) unanswered.push_back(id);
    EraseExpiry(found->second);
    entries_.erase(found);
  }
  executing_requests_ -= it->second.requests.size();
  const auto model = models_.find(it->second.model);
  // Cut short because nobody waits for it any more: it takes at least as long as it ran. If only those counted that end
  // in time, a prediction that is too low would never be corrected once it makes all of them late.
  const absl::Duration ran = now - it->second.started;
  if (!measured.has_value() && unanswered.empty() && ran > it->second.predicted) measured = ran;
  if (measured.has_value()) model->second.times.Add(it->second.rows, *measured, now);
  --model->second.executions;
  if (model->second.removed && model->second.executions == 0) models_.erase(model);
  executions_.erase(it);
  next_pick_ = Time::Zero();
  return unanswered;
}

Time SchedulerCore::LimitOf(const Entry& entry) {
  switch (entry.state) {
    case State::kQueued:
      return std::min(entry.request.deadline, entry.request.queue_deadline);
    case State::kExecuting:
      return entry.request.deadline;
    case State::kReported:
      return Time::Infinite();
  }
  return Time::Infinite();
}

void SchedulerCore::InsertExpiry(const Entry& entry) {
  const Time limit = LimitOf(entry);
  if (!limit.is_infinite()) expiry_.insert({limit, entry.request.id});
}

void SchedulerCore::EraseExpiry(const Entry& entry) { expiry_.erase({LimitOf(entry), entry.request.id}); }

void SchedulerCore::CollectExpired(Time now) {
  while (!expiry_.empty() && expiry_.begin()->first <= now) {
    const auto it = entries_.find(expiry_.begin()->second);
    Entry& entry = it->second;
    expiry_.erase(expiry_.begin());
    const bool queued = entry.state == State::kQueued;
    // The limit that came first names the reason, however late it is noticed.
    const bool queue_limit = queued && entry.request.queue_deadline < entry.request.deadline;
    expired_.push_back({.id = entry.request.id,
                        .place = queued ? RequestPlace::kQueued : RequestPlace::kExecuting,
                        .reason = queue_limit ? ExpiryReason::kQueueTimeout : ExpiryReason::kDeadline});
    if (queued) {
      Unqueue(entry);
      entries_.erase(it);
    } else {
      entry.state = State::kReported;
    }
  }
  CollectStarved(now);
}

void SchedulerCore::CollectStarved(Time now) {
  for (auto it = starved_.begin(); it != starved_.end();) {
    Group& group = groups_.find(*it)->second;
    ++it;  // the group may go below
    if (group.starved_until > now) continue;
    std::vector<RequestId> given_up;
    group.starved_until = Time::Infinite();
    for (const QueueKey& key : group.queue) {
      const Time limit = StarvesAt(group, entry(key.id));
      if (limit <= now) {
        given_up.push_back(key.id);
      } else {
        group.starved_until = std::min(group.starved_until, limit);
      }
    }
    for (const RequestId id : given_up) {
      const auto found = entries_.find(id);
      expired_.push_back({.id = id, .place = RequestPlace::kQueued, .reason = ExpiryReason::kResponseWait});
      EraseExpiry(found->second);
      Unqueue(found->second);
      entries_.erase(found);
    }
  }
}

std::vector<Expired> SchedulerCore::Expire(Time now) {
  CollectExpired(now);
  std::vector<Expired> reported;
  reported.swap(expired_);
  return reported;
}

RequestPlace SchedulerCore::Cancel(RequestId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.state == State::kReported) return RequestPlace::kUnknown;
  EraseExpiry(it->second);
  if (it->second.state == State::kExecuting) {
    it->second.state = State::kReported;
    return RequestPlace::kExecuting;
  }
  Unqueue(it->second);
  entries_.erase(it);
  return RequestPlace::kQueued;
}

void SchedulerCore::TakeGroup(const GroupKey& group_key, std::vector<RequestId>& taken) {
  for (auto it = groups_.find(group_key); it != groups_.end(); it = groups_.find(group_key)) {
    const auto found = entries_.find(it->second.queue.begin()->id);
    taken.push_back(found->first);
    EraseExpiry(found->second);
    Unqueue(found->second);
    entries_.erase(found);
  }
}

std::vector<RequestId> SchedulerCore::TakeQueued() {
  std::vector<RequestId> taken;
  taken.reserve(queued_);
  while (!groups_.empty()) {
    const GroupKey group_key = groups_.begin()->first;
    TakeGroup(group_key, taken);
  }
  return taken;
}

void SchedulerCore::SetDraining(bool draining) {
  draining_ = draining;
  for (auto& [group_key, group] : groups_) group.changed = true;
  next_pick_ = Time::Zero();
}

Time SchedulerCore::NextExpiry() const {
  if (!expired_.empty()) return Time::Zero();
  Time next = expiry_.empty() ? Time::Infinite() : expiry_.begin()->first;
  for (const GroupKey& group_key : starved_) next = std::min(next, groups_.find(group_key)->second.starved_until);
  return next;
}

Time SchedulerCore::NextPick() const { return queued_ == 0 ? Time::Infinite() : next_pick_; }

absl::Duration SchedulerCore::PredictedDelay(Time now) const {
  absl::Duration work = queued_work_;
  for (const auto& [id, execution] : executions_) {
    work += std::max(execution.started + execution.predicted - now, absl::ZeroDuration());
  }
  return work / options_.max_concurrent_executions;
}

absl::Duration SchedulerCore::PredictedExecution(ModelId model, int64_t rows) const {
  const auto it = models_.find(model);
  return it == models_.end() ? absl::ZeroDuration() : it->second.times.Predict(rows);
}

CoreCounts SchedulerCore::counts() const {
  return {.queued = queued_,
          .queued_bytes = queued_bytes_,
          .executing_requests = executing_requests_,
          .executions = executions_.size(),
          .expired_unreported = expired_.size()};
}

size_t SchedulerCore::queued_count(ModelId model) const {
  const auto it = models_.find(model);
  return it == models_.end() ? 0 : it->second.queued;
}

}  // namespace sluice::scheduler
