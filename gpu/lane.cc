// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/lane.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_relax.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gpu/launcher.h"

namespace sluice::gpu {
namespace {

// How long a stop flag may go unseen while the gate is closed and nothing runs.
constexpr absl::Duration kStopPoll = absl::Milliseconds(2);
constexpr int kMaxLatencyStreams = 64;
// Looks at an end stamp between two questions to the driver, which alone knows of errors: some tens of microseconds.
constexpr int kLooksPerQuery = 1024;

absl::StatusOr<StageTimes> ReadStageTimes(Device& device, const Execution& execution) {
  const Slot& slot = *execution.slot;
  StageTimes times;
  times.submitted = execution.submitted;
  const StampPage& stamps = slot.stamps();
  const auto between = [](uint64_t from, uint64_t to) {
    return absl::Nanoseconds(std::max<int64_t>(static_cast<int64_t>(to - from), 0));
  };
  times.compute = between(stamps.first_kernel, stamps.last_kernel);
  times.compute_start = device.StampToTime(stamps.first_kernel);
  // Clocks of host and device agree to some microseconds only.
  if (slot.graph_copies) {
    times.h2d = between(stamps.copy_in_start, stamps.first_kernel);
    times.d2h = between(stamps.last_kernel, stamps.copy_out_end);
    times.h2d_start = device.StampToTime(stamps.copy_in_start);
    times.d2h_start = times.compute_start + times.compute;
    times.copy_clock = SpanClock::kDevice;
    times.gpu_wait = std::max(times.h2d_start - execution.submitted, absl::ZeroDuration());
    return times;
  }
  SLUICE_ASSIGN_OR_RETURN(times.h2d, device.Elapsed(slot.h2d_start, slot.h2d_end));
  SLUICE_ASSIGN_OR_RETURN(times.d2h, device.Elapsed(slot.d2h_start, slot.d2h_end));
  times.gpu_wait = std::max(times.compute_start - execution.submitted - times.h2d, absl::ZeroDuration());
  // Events say how long a copy took, not when. Progress noted when it was begun; a latency copy is issued at once.
  times.h2d_start = std::max(execution.submitted, execution.progress.copy_in_at());
  times.d2h_start = std::max(times.compute_start + times.compute, execution.progress.copy_out_at());
  return times;
}

/// Waits for what was issued, then answers for the execution.
absl::StatusOr<StageTimes> Conclude(Device& device, const Execution& execution) {
  absl::Status awaited;
  if (execution.stream && !execution.seen_over) {
    awaited = AwaitDone(device, execution.stream, *execution.slot, execution.done_recorded);
  }
  SLUICE_RETURN_IF_ERROR(execution.status);
  SLUICE_RETURN_IF_ERROR(awaited);
  return ReadStageTimes(device, execution);
}

/// Streams that threads issue to in turn, one thread to a stream at a time.
class StreamRotation {
 public:
  explicit StreamRotation(std::vector<Stream> streams) : streams_(std::move(streams)), taken_(streams_.size()) {}
  size_t Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (true) {
      for (size_t i = 0; i < streams_.size(); ++i) {
        const size_t index = (next_ + i) % streams_.size();
        if (taken_[index]) continue;
        taken_[index] = true;
        next_ = index + 1;
        return index;
      }
      returned_.Wait(mutex_);
    }
  }
  void Return(size_t index) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      taken_[index] = false;
    }
    returned_.NotifyOne();
  }
  StreamRef stream(size_t index) const { return streams_[index]; }
  const std::vector<Stream>& streams() const { return streams_; }

 private:
  const std::vector<Stream> streams_;
  Mutex mutex_;
  CondVar returned_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LatencyLane final : public Lane {
 public:
  LatencyLane(Device& device, Gate& gate, const Clock& clock, std::vector<Stream> streams, const LaneOptions& options)
      : Lane(RequestClass::kLatency),
        device_(device),
        gate_(gate),
        clock_(clock),
        timeline_(options.timeline),
        most_polling_(options.polling_threads),
        streams_(std::move(streams)) {}

  void Begin(Execution& execution) override {
    execution.submitted = clock_.Now();
    const size_t index = streams_.Take();
    execution.stream = streams_.stream(index);
    execution.done_recorded = false;
    execution.seen_over = false;
    execution.status = Issue(execution);
    if (!execution.status.ok()) {
      execution.done_recorded = device_.Record(execution.stream, execution.slot->done).ok();
    }
    streams_.Return(index);
  }

  absl::StatusOr<StageTimes> Finish(Execution& execution) override {
    if (execution.status.ok()) {
      execution.status = AwaitGraph(execution);
      if (execution.status.ok()) ReleaseToken(execution);
    }
    absl::StatusOr<StageTimes> times = Conclude(device_, execution);
    ReleaseToken(execution);
    if (timeline_ != nullptr && timeline_->recording() && times.ok()) RecordGraph(execution, *times);
    return times;
  }

  absl::StatusOr<std::vector<int>> ReadPriorities() override {
    std::vector<int> priorities;
    for (const Stream& stream : streams_.streams()) {
      SLUICE_ASSIGN_OR_RETURN(const int priority, device_.ReadPriority(stream));
      priorities.push_back(priority);
    }
    return priorities;
  }

 private:
  absl::Status Issue(Execution& execution) {
    const StreamRef stream = execution.stream;
    const Slot& slot = *execution.slot;
    if (slot.graph_copies) {
      slot.end_stamp().store(0, std::memory_order_relaxed);  // A launch orders it before all that the device does.
      gate_.EnterDevice(execution.token);
      execution.entered_device = true;
      SLUICE_RETURN_IF_ERROR(device_.LaunchGraph(stream, slot.graph));
      SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.done));
      execution.done_recorded = true;
      return absl::OkStatus();
    }
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.h2d_start));
    SLUICE_RETURN_IF_ERROR(CopyInputs(device_, stream, slot));
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.h2d_end));
    gate_.EnterDevice(execution.token);
    execution.entered_device = true;
    SLUICE_RETURN_IF_ERROR(device_.LaunchGraph(stream, slot.graph));
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.kernels_done));
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.d2h_start));
    SLUICE_RETURN_IF_ERROR(CopyOutputs(device_, stream, slot));
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.d2h_end));
    SLUICE_RETURN_IF_ERROR(device_.Record(stream, slot.done));
    execution.done_recorded = true;
    return absl::OkStatus();
  }

  /// Until the gate may reopen, which is after the last kernel: before a copy out by engine, after one by kernel.
  absl::Status AwaitGraph(Execution& execution) {
    const Slot& slot = *execution.slot;
    const EventRef event = slot.graph_copies ? slot.done : slot.kernels_done;
    absl::StatusOr<bool> over = false;
    if (polling_.fetch_add(1, std::memory_order_relaxed) < most_polling_) over = Poll(slot, event);
    polling_.fetch_sub(1, std::memory_order_relaxed);
    SLUICE_RETURN_IF_ERROR(over.status());
    execution.seen_over = *over && slot.graph_copies;
    return *over ? absl::OkStatus() : device_.Synchronize(event);
  }

  /// Where the graph itself stamps its end, the stamp is what is looked at: a question to the driver takes locks that
  /// the launcher wants for every unit, and an event comes some microseconds after the last byte.
  absl::StatusOr<bool> Poll(const Slot& slot, EventRef event) {
    while (true) {
      for (int looks = slot.graph_copies ? kLooksPerQuery : 0; looks > 0; --looks) {
        if (slot.end_stamp().load(std::memory_order_acquire) != 0) return true;
        CpuRelax();
      }
      absl::StatusOr<bool> over = device_.Query(event);
      if (!over.ok() || *over) return over;
      CpuRelax();
    }
  }

  void RecordGraph(const Execution& execution, const StageTimes& times) {
    const bool copies = execution.slot->graph_copies;
    TimelineRecord record;
    record.start = copies ? times.h2d_start : times.compute_start;
    record.end = copies ? times.d2h_start + times.d2h : times.compute_start + times.compute;
    record.request = execution.request;
    record.track = reinterpret_cast<uintptr_t>(execution.stream.handle);  // any thread issues to it
    record.kind = SpanKind::kGraph;
    record.request_class = RequestClass::kLatency;
    record.clock = SpanClock::kDevice;
    timeline_->Add(record);
  }

  void ReleaseToken(Execution& execution) {
    gate_.Release(std::exchange(execution.token, {}), std::exchange(execution.entered_device, false));
  }

  Device& device_;
  Gate& gate_;
  const Clock& clock_;
  Timeline* const timeline_;
  const int most_polling_;
  std::atomic<int> polling_ = 0;
  StreamRotation streams_;
};

class StandardLane final : public Lane {
 public:
  StandardLane(Device& device, Gate& gate, const Clock& clock, const LaneOptions& options)
      : Lane(RequestClass::kStandard), device_(device), gate_(gate), clock_(clock) {
    context_.device = &device;
    context_.gate = &gate;
    context_.clock = &clock;
    context_.request_class = RequestClass::kStandard;
    context_.timeline = options.timeline;
    context_.chunk_bytes = options.chunk_bytes;
  }

  void Begin(Execution& execution) override {
    execution.submitted = clock_.Now();
    execution.stream = {};
    absl::StatusOr<StreamRef> stream = device_.ThreadStream();
    execution.status = stream.status();
    if (!stream.ok()) return;
    execution.stream = *stream;
    execution.progress.Start(context_, *execution.slot, *stream, execution.stop, execution.request);
    IssueAll(execution.progress, execution.stop != nullptr);
  }

  absl::StatusOr<StageTimes> Finish(Execution& execution) override {
    if (execution.stream) {
      while (!execution.progress.over()) {
        if (execution.progress.Reap()) continue;
        device_.Synchronize(execution.progress.blocking_event()).IgnoreError();  // The next look finds what is wrong.
      }
      execution.status = execution.progress.status();
      execution.done_recorded = execution.progress.done_recorded();
    }
    return Conclude(device_, execution);
  }

  absl::StatusOr<std::vector<int>> ReadPriorities() override {
    SLUICE_ASSIGN_OR_RETURN(const StreamRef stream, device_.ThreadStream());
    SLUICE_ASSIGN_OR_RETURN(const int priority, device_.ReadPriority(stream));
    return std::vector<int>{priority};
  }

 private:
  void IssueAll(Progress& progress, bool stoppable) {
    std::optional<GateWaiter> waiter;  // Made when first needed: an open gate costs nothing.
    bool waiting = false;
    bool armed = false;
    while (!progress.issued_all()) {
      progress.Reap();
      const Step step = progress.Advance();
      // Counted as waiting until something else than the gate is in the way, not only until the next grant: between
      // two units no batch unit shall slip in.
      if (step.kind != StepKind::kIssued && waiting != (step.kind == StepKind::kRefused)) {
        waiting = !waiting;
        gate_.SetStandardWaiting(waiting ? 1 : -1);
      }
      if (step.kind == StepKind::kIssued || step.kind == StepKind::kEnded) {
        armed = false;
      } else if (const EventRef event = progress.blocking_event(); event) {
        device_.Synchronize(event).IgnoreError();  // The next look finds what is wrong.
      } else if (!armed) {
        if (!waiter) waiter.emplace(gate_);
        waiter->Arm();
        armed = true;
      } else {
        const Time now = clock_.Now();
        waiter->WaitUntil(now, stoppable ? std::min(step.retry_at, now + kStopPoll) : step.retry_at);
        armed = false;
      }
    }
    if (waiting) gate_.SetStandardWaiting(-1);
  }

  Device& device_;
  Gate& gate_;
  const Clock& clock_;
  LaneContext context_;
};

class BatchLane final : public Lane {
 public:
  BatchLane(Device& device, Launcher& launcher, const Clock& clock)
      : Lane(RequestClass::kBatch), device_(device), launcher_(launcher), clock_(clock) {}

  void Begin(Execution& execution) override {
    execution.submitted = clock_.Now();
    execution.stream = {};
    execution.status = absl::OkStatus();
    execution.progress = Progress();
    launcher_.Submit(execution);
  }

  absl::StatusOr<StageTimes> Finish(Execution& execution) override {
    launcher_.Await(execution);
    if (execution.progress.started()) {
      execution.stream = execution.progress.stream();
      execution.done_recorded = execution.progress.done_recorded();
    }
    return Conclude(device_, execution);
  }

  absl::StatusOr<std::vector<int>> ReadPriorities() override { return launcher_.ReadPriorities(); }

 private:
  Device& device_;
  Launcher& launcher_;
  const Clock& clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Lane>> Lane::Create(RequestClass request_class, Device& device, Gate& gate,
                                                   Launcher& launcher, const Clock& clock, const LaneOptions& options) {
  switch (request_class) {
    case RequestClass::kStandard:
      return std::make_unique<StandardLane>(device, gate, clock, options);
    case RequestClass::kBatch:
      return std::make_unique<BatchLane>(device, launcher, clock);
    case RequestClass::kLatency:
      break;
  }
  if (options.latency_streams < 1 || options.latency_streams > kMaxLatencyStreams) {
    return absl::InvalidArgumentError(
        absl::StrCat("latency streams must be 1 to ", kMaxLatencyStreams, ", got ", options.latency_streams));
  }
  std::vector<Stream> streams;
  for (int i = 0; i < options.latency_streams; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Stream stream, device.CreateStream(StreamPriority::kHigh));
    streams.push_back(std::move(stream));
  }
  return std::make_unique<LatencyLane>(device, gate, clock, std::move(streams), options);
}

}  // namespace sluice::gpu
