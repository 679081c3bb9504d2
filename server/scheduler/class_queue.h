// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/cpu_relax.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "server/scheduler/core.h"
#include "server/scheduler/expiry.h"
#include "server/scheduler/response_memory.h"
#include "server/scheduler/types.h"

namespace sluice::scheduler {

/// The waiting line of one class on one device: SchedulerCore with the requests themselves, a lock, and the wait of the
/// request threads. Purpose: hand requests from the threads that submit to those that execute.
/// Bounds: the core's; every call is O(log n) but Take, which waits, and those that empty the queue.
/// Ownership: `Request` is a handle that copies (a shared_ptr). Submit takes it and gives it back when it refuses. The
/// queue keeps a copy from admission until the request leaves, also while it executes, so that Expire and Cancel can
/// hand it out to be answered. Each admitted request is handed out to be answered exactly once: by Cancel, Expire,
/// RemoveModel, Stop or OnCompleted; the copies that Take returns are for execution.
/// Threads and blocking: any method from any thread; only Take blocks. No handle is destroyed and nothing foreign is
/// called while the lock is held. Errors: as values.
template <class Request>
class ClassQueue {
 public:
  static_assert(std::is_copy_constructible_v<Request>);

  struct Submission {
    Admission admission;
    std::optional<Request> refused;  ///< The request again, when it was not admitted.
  };
  struct Execution {
    Pick pick;
    std::vector<Request> requests;  ///< In the order of pick.requests.
  };
  struct Cancellation {
    RequestPlace place = RequestPlace::kUnknown;
    std::optional<Request> request;  ///< Unless kUnknown. If it executes, its execution goes on.
  };
  struct Expiry {
    Expired expired;
    Request request;
  };

  /// `clock` and `expiry_thread` (may be null: then the caller runs Expire) outlive the queue. The caller registers the
  /// queue's NextExpiry and Expire with the thread. `memory` (null: there always is some) is asked while requests are
  /// taken, and outlives every Take.
  ClassQueue(const CoreOptions& options, const Clock& clock, ExpiryThread* expiry_thread,
             ResponseMemory* memory = nullptr)
      : clock_(clock), expiry_thread_(expiry_thread), memory_(memory), core_(options) {}
  ClassQueue(const ClassQueue&) = delete;
  ClassQueue& operator=(const ClassQueue&) = delete;
  ~ClassQueue() { Stop(); }

  bool AddModel(ModelId model, const ModelLimits& limits) {
    MutexLock lock(mutex_);
    return core_.AddModel(model, limits);
  }
  /// Its waiting requests, to be answered. Executions that run go on.
  std::vector<Request> RemoveModel(ModelId model) {
    MutexLock lock(mutex_);
    return Withdraw(core_.RemoveModel(model));
  }

  Submission Submit(Request request, const QueuedRequest& facts, const Prediction& prediction = {});

  /// Waits for an execution, asleep or `polls`, which takes a CPU. Nothing after Stop. Each one is ended by
  /// OnCompleted, and owns the response memory that its pick names.
  std::optional<Execution> Take(bool polls = false);

  /// There may be response memory again for what waits for it.
  void MemoryFreed() {
    {
      MutexLock lock(mutex_);
      Changed();
    }
    WakeOne();
  }

  /// Ends an execution. `measured` is its duration, nothing when it failed. Returns the requests that nobody has been
  /// told to answer yet: those the caller answers with their results.
  std::vector<Request> OnCompleted(ExecutionId execution, std::optional<absl::Duration> measured);

  Cancellation Cancel(RequestId id);

  /// Requests whose limit has passed, to be answered with ExpiryStatus.
  std::vector<Expiry> Expire(Time now);
  Time NextExpiry() {
    MutexLock lock(mutex_);
    return core_.NextExpiry();
  }

  /// Refuses new requests; those that wait still run, at once. Ending it after Stop has no effect.
  void SetDraining(bool draining) {
    {
      MutexLock lock(mutex_);
      core_.SetDraining(draining || stopped_);
      Changed();
    }
    changed_.NotifyAll();
  }
  /// Whether a Take that may poll does, from now on; those that wait go on in the other way.
  void SetPolling(bool may_poll) {
    {
      MutexLock lock(mutex_);
      may_poll_ = may_poll;
      Changed();
    }
    changed_.NotifyAll();
  }
  /// Ends every Take and empties the queue; returns what waited, to be answered. Executions that run still end with
  /// OnCompleted. Idempotent: the second time nothing is left.
  std::vector<Request> Stop();

  CoreCounts counts() {
    MutexLock lock(mutex_);
    return core_.counts();
  }
  absl::Duration PredictedDelay() {
    MutexLock lock(mutex_);
    return core_.PredictedDelay(clock_.Now());
  }

 private:
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { changes_.fetch_add(1, std::memory_order_seq_cst); }
  /// Wakes a thread that sleeps, unless one polls: it has seen the change already, and wakes another when it leaves
  /// with work while more waits.
  void WakeOne() {
    if (polling_.load(std::memory_order_seq_cst) == 0) changed_.NotifyOne();
  }
  void Sleep(uint64_t seen, Time until) {
    MutexLock lock(mutex_);
    if (changes_.load(std::memory_order_relaxed) == seen) changed_.WaitUntil(mutex_, until);
  }
  void Poll(uint64_t seen, Time until) {
    const MonotonicClock wait_clock;
    // Raised before the first look: a change that is not seen here comes from a thread that sees somebody polls, or
    // notifies in vain.
    polling_.fetch_add(1, std::memory_order_seq_cst);
    while (changes_.load(std::memory_order_seq_cst) == seen && wait_clock.Now() < until) CpuRelax();
    polling_.fetch_sub(1, std::memory_order_seq_cst);
  }

  Request Withdraw(RequestId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto node = requests_.extract(id);
    return std::move(node.mapped());
  }
  std::vector<Request> Withdraw(const std::vector<RequestId>& ids) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Request> withdrawn;
    withdrawn.reserve(ids.size());
    for (const RequestId id : ids) withdrawn.push_back(Withdraw(id));
    return withdrawn;
  }

  const Clock& clock_;
  ExpiryThread* const expiry_thread_;
  ResponseMemory* const memory_;
  Mutex mutex_;
  CondVar changed_;  ///< Something may be picked that could not be before, or the queue stopped.
  SchedulerCore core_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<RequestId, Request> requests_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool may_poll_ ABSL_GUARDED_BY(mutex_) = true;
  std::atomic<uint64_t> changes_ = 0;  ///< Raised under the lock with every change that changed_ stands for.
  std::atomic<int> polling_ = 0;       ///< Threads in Poll.
};

template <class Request>
typename ClassQueue<Request>::Submission ClassQueue<Request>::Submit(Request request, const QueuedRequest& facts,
                                                                     const Prediction& prediction) {
  Admission admission;
  {
    MutexLock lock(mutex_);
    // The clock is read under the lock, so that the core sees time in order.
    admission = core_.Submit(facts, clock_.Now(), prediction);
    if (admission.admitted()) {
      requests_.emplace(facts.id, std::move(request));
      Changed();
    }
  }
  if (!admission.admitted()) return {admission, std::move(request)};
  WakeOne();
  const Time limit = std::min(facts.deadline, facts.queue_deadline);
  if (expiry_thread_ != nullptr && !limit.is_infinite()) expiry_thread_->Poke(limit);
  return {admission, std::nullopt};
}

template <class Request>
std::optional<typename ClassQueue<Request>::Execution> ClassQueue<Request>::Take(bool polls) {
  const MonotonicClock wait_clock;
  const auto reserve = [this](size_t size_bytes) { return memory_ == nullptr || memory_->TryReserve(size_bytes); };
  while (true) {
    Execution execution;
    bool picked = false;
    bool more_waits = false;
    Time poke = Time::Infinite();
    uint64_t seen = 0;
    bool may_poll = true;
    Time until;
    {
      MutexLock lock(mutex_);
      if (stopped_) return std::nullopt;
      const Time now = clock_.Now();
      if (std::optional<Pick> pick = core_.PickNext(now, reserve); pick.has_value()) {
        picked = true;
        execution.pick = *std::move(pick);
        execution.requests.reserve(execution.pick.requests.size());
        for (const RequestId id : execution.pick.requests) execution.requests.push_back(requests_.find(id)->second);
        more_waits = core_.counts().queued > 0;
      }
      // Submit announces limits of requests; that a group starves shows here first.
      const Time next_expiry = core_.NextExpiry();
      if (next_expiry <= now) {
        poke = Time::Zero();
      } else if (core_.starved()) {
        poke = next_expiry;
      }
      const Time next = core_.NextPick();
      until = next.is_infinite() ? next : wait_clock.Now() + (next - now);
      seen = changes_.load(std::memory_order_relaxed);
      may_poll = may_poll_;
    }
    if (!poke.is_infinite() && expiry_thread_ != nullptr) expiry_thread_->Poke(poke);
    // Whoever leaves with work hands the watch over what still waits to another thread.
    if (more_waits) changed_.NotifyOne();
    if (picked) return execution;
    polls&& may_poll ? Poll(seen, until) : Sleep(seen, until);
  }
}

template <class Request>
std::vector<Request> ClassQueue<Request>::OnCompleted(ExecutionId execution, std::optional<absl::Duration> measured) {
  std::vector<Request> unanswered;
  bool more_waits = false;
  {
    MutexLock lock(mutex_);
    unanswered = Withdraw(core_.OnCompleted(execution, clock_.Now(), measured));
    more_waits = core_.counts().queued > 0;
    if (more_waits) Changed();
  }
  if (more_waits) WakeOne();
  return unanswered;
}

template <class Request>
typename ClassQueue<Request>::Cancellation ClassQueue<Request>::Cancel(RequestId id) {
  MutexLock lock(mutex_);
  const RequestPlace place = core_.Cancel(id);
  if (place == RequestPlace::kUnknown) return {};
  return {place, Withdraw(id)};
}

template <class Request>
std::vector<typename ClassQueue<Request>::Expiry> ClassQueue<Request>::Expire(Time now) {
  std::vector<Expiry> expiries;
  MutexLock lock(mutex_);
  for (const Expired& expired : core_.Expire(now)) expiries.push_back({expired, Withdraw(expired.id)});
  return expiries;
}

template <class Request>
std::vector<Request> ClassQueue<Request>::Stop() {
  std::vector<Request> waiting;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    core_.SetDraining(true);
    Changed();
    waiting = Withdraw(core_.TakeQueued());
  }
  changed_.NotifyAll();
  return waiting;
}

}  // namespace sluice::scheduler
