// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/launcher.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {
// How long a stop flag may go unseen while the gate is closed and nothing runs.
constexpr absl::Duration kStopPoll = absl::Milliseconds(2);
constexpr int kMaxStreams = 16;
}  // namespace

Launcher::Launcher(Device& device, Gate& gate, const Clock& clock, const LauncherOptions& options)
    : device_(device), gate_(gate), clock_(clock), options_(options), waiter_(gate) {
  context_.device = &device;
  context_.gate = &gate;
  context_.clock = &clock;
  context_.request_class = RequestClass::kBatch;
  context_.timeline = options.timeline;
  context_.chunk_bytes = options.chunk_bytes;
}

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::Create(Device& device, Gate& gate, const Clock& clock,
                                                           const LauncherOptions& options) {
  if (options.stream_count < 1 || options.stream_count > kMaxStreams) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch streams must be 1 to ", kMaxStreams, ", got ", options.stream_count));
  }
  std::unique_ptr<Launcher> launcher(new Launcher(device, gate, clock, options));
  for (int i = 0; i < options.stream_count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Stream stream, device.CreateStream(StreamPriority::kLow));
    launcher->streams_.push_back(std::move(stream));
  }
  launcher->stream_taken_.resize(launcher->streams_.size());
  launcher->active_.reserve(launcher->streams_.size());
  launcher->thread_ = Thread("launcher", [self = launcher.get()] { self->Run(); });
  return launcher;
}

void Launcher::Submit(Execution& execution) {
  execution.settled = false;
  execution.next = nullptr;
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      execution.status = absl::UnavailableError("the batch launcher has stopped");
      execution.settled = true;
      return;
    }
    (last_queued_ == nullptr ? first_queued_ : last_queued_->next) = &execution;
    last_queued_ = &execution;
  }
  waiter_.Notify();
}

void Launcher::Await(Execution& execution) {
  MutexLock lock(mutex_);
  while (!execution.settled) settled_.Wait(mutex_);
}

void Launcher::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  waiter_.Notify();
  if (thread_.joinable()) thread_.Join();
}

LauncherCounters Launcher::counters() const {
  LauncherCounters counters;
  counters.executions = executions_.load(std::memory_order_relaxed);
  counters.yields = yields_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kEngineCount; ++i) counters.engines[i] = context_.meters[i].times();
  return counters;
}

absl::StatusOr<std::vector<int>> Launcher::ReadPriorities() const {
  std::vector<int> priorities;
  for (const Stream& stream : streams_) {
    SLUICE_ASSIGN_OR_RETURN(const int priority, device_.ReadPriority(stream));
    priorities.push_back(priority);
  }
  return priorities;
}

void Launcher::Run() {
  while (TakeSubmitted()) {
    if (active_.empty()) {
      waiter_.WaitUntil(clock_.Now(), Time::Infinite());
      continue;
    }
    const bool moved = AdvanceAll();
    SettleOver();
    ReportPending();
    if (moved) {
      armed_ = false;
    } else if (!active_.empty()) {
      Block();
    }
  }
}

bool Launcher::TakeSubmitted() {
  while (true) {
    Execution* execution = nullptr;
    bool refused = false;
    {
      MutexLock lock(mutex_);
      draining_ = stopping_;
      if (first_queued_ == nullptr) return !(draining_ && active_.empty());
      if (!draining_ && active_.size() == streams_.size()) return true;
      execution = first_queued_;
      first_queued_ = execution->next;
      if (first_queued_ == nullptr) last_queued_ = nullptr;
      if (draining_) {
        execution->status = absl::UnavailableError("the batch launcher has stopped");
        execution->settled = true;
        refused = true;
      }
    }
    if (refused) {
      settled_.NotifyAll();
    } else {
      Activate(*execution);
    }
  }
}

void Launcher::Activate(Execution& execution) {
  while (stream_taken_[next_stream_]) next_stream_ = (next_stream_ + 1) % streams_.size();
  const size_t index = std::exchange(next_stream_, (next_stream_ + 1) % streams_.size());
  stream_taken_[index] = true;
  active_.push_back({.execution = &execution, .stream_index = index});
  executions_.fetch_add(1, std::memory_order_relaxed);
  execution.progress.Start(context_, *execution.slot, streams_[index], execution.stop, execution.request);
}

bool Launcher::AdvanceAll() {
  bool moved = false;
  retry_at_ = Time::Infinite();
  // All grants that are over go back before anything new is asked for.
  for (const Active& active : active_) moved |= active.execution->progress.Reap();
  ReportPending();
  // In turn, one step each: units in flight are then of several streams and fill the pauses between each other's, which
  // in one stream follow each other a few microseconds apart. Who is refused keeps its turn.
  for (size_t offset = 0; offset < active_.size();) {
    const size_t index = (turn_ + offset) % active_.size();
    Progress& progress = active_[index].execution->progress;
    const Step step = progress.Advance();
    if (step.kind == StepKind::kIssued) {
      moved = true;
      turn_ = index + 1;
      offset = 0;
      continue;
    }
    if (step.kind == StepKind::kRefused) retry_at_ = std::min(retry_at_, step.retry_at);
    moved |= progress.over();
    ++offset;
  }
  return moved;
}

void Launcher::SettleOver() {
  bool settled = false;
  for (auto it = active_.begin(); it != active_.end();) {
    Execution& execution = *it->execution;
    if (!execution.progress.over()) {
      ++it;
      continue;
    }
    stream_taken_[it->stream_index] = false;
    it = active_.erase(it);
    MutexLock lock(mutex_);
    execution.status = execution.progress.status();
    execution.settled = true;
    settled = true;
  }
  if (settled) settled_.NotifyAll();
}

void Launcher::ReportPending() {
  const bool pending = std::any_of(active_.begin(), active_.end(),
                                   [](const Active& active) { return !active.execution->progress.issued_all(); });
  if (pending == pending_) return;
  pending_ = pending;
  gate_.SetBatchPending(pending, clock_.Now());
}

void Launcher::Block() {
  if (options_.spin) {
    std::this_thread::yield();
    return;
  }
  for (const Active& active : active_) {
    const EventRef event = active.execution->progress.blocking_event();
    if (!event) continue;
    // What is wrong, if anything, is found by the next look at this event.
    device_.Synchronize(event).IgnoreError();
    return;
  }
  // Nothing in flight: the gate is closed.
  if (draining_) {
    for (const Active& active : active_) {
      active.execution->progress.End(absl::UnavailableError("the batch launcher has stopped"));
    }
    return;
  }
  if (!armed_) {
    waiter_.Arm();
    armed_ = true;
    return;
  }
  armed_ = false;
  yields_.fetch_add(1, std::memory_order_relaxed);
  const Time now = clock_.Now();
  const bool stoppable = std::any_of(active_.begin(), active_.end(),
                                     [](const Active& active) { return active.execution->stop != nullptr; });
  waiter_.WaitUntil(now, stoppable ? std::min(retry_at_, now + kStopPoll) : retry_at_);
}

}  // namespace sluice::gpu
