// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The issuing and the waiting side. host_engines.cc has the side that runs.
#include "gpu/host/host_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_relax.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sluice::gpu::host {
namespace {

// A spinning thread competes with the compute team for the same cores, so it polls only this often before it sleeps.
// About 20 us: longer than waking a thread takes.
constexpr int kSpinPolls = 2000;

int PriorityNumber(StreamPriority priority) {
  switch (priority) {
    case StreamPriority::kHigh:
      return -1;
    case StreamPriority::kDefault:
      return 0;
    case StreamPriority::kLow:
      return 1;
  }
  return 0;
}

absl::Status NeverRecorded() { return absl::FailedPreconditionError("the event was never recorded"); }

absl::Status NullHandle(absl::string_view what) { return absl::InternalError(absl::StrCat("null ", what, " handle")); }

}  // namespace

HostStreams::HostStreams(const HostDeviceOptions& options, const Clock& clock) : options_(options), clock_(clock) {
  StartThreads();
}

HostStreams::~HostStreams() {
  {
    MutexLock lock(mutex_);
    for (const std::unique_ptr<HostStream>& stream : streams_) WaitUntilIdle(stream.get());
    stopping_ = true;
    for (EngineQueue& engine : engines_) engine.work.NotifyAll();
  }
  for (Thread& thread : threads_) thread.Join();
}

absl::Status HostStreams::CheckAlive() const {
  if (lost()) return absl::UnavailableError(absl::StrCat("device lost: ", lost_reason_));
  return absl::OkStatus();
}

absl::Status HostStreams::CheckStream(const HostStream* stream) const {
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  if (stream == nullptr) return NullHandle("stream");
  if (!stream->live) return absl::InternalError("the stream was destroyed");
  if (stream->bound_thread != std::thread::id() && stream->bound_thread != std::this_thread::get_id()) {
    return absl::InternalError("a per-thread stream was used by another thread");
  }
  if (stream->capture != nullptr && stream->capture_thread != std::this_thread::get_id()) {
    return absl::InternalError("a stream that one thread captures was used by another thread");
  }
  return absl::OkStatus();
}

absl::Status HostStreams::CheckNotCapturing(const HostStream* stream) const {
  if (stream->capture == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("not possible on a stream that is being captured");
}

absl::StatusOr<HostStream*> HostStreams::CreateLocked(StreamPriority priority) {
  HostStream* stream = nullptr;
  for (const std::unique_ptr<HostStream>& candidate : streams_) {
    if (!candidate->live) stream = candidate.get();
  }
  if (stream == nullptr) {
    streams_.push_back(std::make_unique<HostStream>());
    stream = streams_.back().get();
    stream->ring.resize(options_.queue_capacity);
  }
  stream->live = true;
  stream->priority = priority;
  stream->bound_thread = std::thread::id();
  return stream;
}

absl::StatusOr<HostStream*> HostStreams::Create(StreamPriority priority) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  const auto explicit_count = std::count_if(streams_.begin(), streams_.end(), [](const auto& stream) {
    return stream->live && stream->bound_thread == std::thread::id();
  });
  if (explicit_count >= options_.max_streams) {
    return absl::ResourceExhaustedError(absl::StrCat("the host device has its ", options_.max_streams, " streams"));
  }
  return CreateLocked(priority);
}

absl::StatusOr<HostStream*> HostStreams::ThreadStream() {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  const std::thread::id self = std::this_thread::get_id();
  for (const ThreadStreamEntry& entry : thread_streams_) {
    if (entry.thread == self) return entry.stream;
  }
  if (thread_streams_.size() >= static_cast<size_t>(options_.max_thread_streams)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the host device has its ", options_.max_thread_streams, " per-thread streams"));
  }
  SLUICE_ASSIGN_OR_RETURN(HostStream * stream, CreateLocked(StreamPriority::kDefault));
  stream->bound_thread = self;
  thread_streams_.push_back({self, stream});
  return stream;
}

absl::Status HostStreams::Destroy(HostStream* stream) {
  MutexLock lock(mutex_);
  if (stream == nullptr) return NullHandle("stream");
  if (!stream->live) return absl::InternalError("the stream was destroyed before");
  if (stream->bound_thread != std::thread::id()) {
    return absl::InternalError("a per-thread stream belongs to the device and cannot be destroyed");
  }
  WaitUntilIdle(stream);
  stream->capture.reset();
  stream->live = false;
  return absl::OkStatus();
}

absl::StatusOr<int> HostStreams::ReadPriority(HostStream* stream) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  return PriorityNumber(stream->priority);
}

absl::Status HostStreams::Push(HostStream* stream, const HostEntry& entry) {
  while (stream->count == stream->ring.size() && !lost()) {
    ++stream->space_waiter_count;
    stream->space.Wait(mutex_);
    --stream->space_waiter_count;
  }
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  HostEntry& slot = stream->ring[(stream->first + stream->count) % stream->ring.size()];
  slot = entry;
  slot.sequence = next_sequence_++;
  ++stream->count;
  ++stream->issued;
  if (entry.graph != nullptr) ++entry.graph->pending;
  if (entry.timed != nullptr) {
    ++entry.timed->pending;
    entry.timed->mark = {stream, stream->issued};
  }
  if (stream->place == HostStream::Place::kNowhere) Settle(stream);
  return absl::OkStatus();
}

absl::Status HostStreams::Issue(HostStream* stream, const HostNode& node) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  if (stream->capture != nullptr) {
    stream->capture->nodes.push_back(node);
    return absl::OkStatus();
  }
  HostEntry entry;
  entry.kind = HostEntry::Kind::kNode;
  entry.node = node;
  return Push(stream, entry);
}

absl::Status HostStreams::IssueGraph(HostStream* stream, HostGraph* graph) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  SLUICE_RETURN_IF_ERROR(CheckNotCapturing(stream));
  if (graph == nullptr) return NullHandle("graph");
  HostEntry entry;
  entry.kind = HostEntry::Kind::kGraph;
  entry.graph = graph;
  return Push(stream, entry);
}

absl::Status HostStreams::Record(HostStream* stream, HostEvent* event) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  SLUICE_RETURN_IF_ERROR(CheckNotCapturing(stream));
  if (event == nullptr) return NullHandle("event");
  event->mark = {stream, stream->issued};
  return absl::OkStatus();
}

absl::Status HostStreams::Record(HostStream* stream, HostTimedEvent* event) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  SLUICE_RETURN_IF_ERROR(CheckNotCapturing(stream));
  if (event == nullptr) return NullHandle("timed event");
  HostEntry entry;
  entry.kind = HostEntry::Kind::kTimedRecord;
  entry.timed = event;
  return Push(stream, entry);
}

absl::Status HostStreams::Wait(HostStream* stream, HostEvent* event) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  SLUICE_RETURN_IF_ERROR(CheckNotCapturing(stream));
  if (event == nullptr) return NullHandle("event");
  if (event->mark.stream == nullptr) return NeverRecorded();
  if (event->mark.stream == stream || event->mark.stream->Reached(event->mark.position)) return absl::OkStatus();
  HostEntry entry;
  entry.kind = HostEntry::Kind::kWait;
  entry.mark = event->mark;
  return Push(stream, entry);
}

absl::StatusOr<bool> HostStreams::Query(HostEvent* event) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  if (event == nullptr) return NullHandle("event");
  if (event->mark.stream == nullptr) return NeverRecorded();
  return event->mark.stream->Reached(event->mark.position);
}

absl::Status HostStreams::WaitForMark(HostMark mark) {
  HostStream& stream = *mark.stream;
  while (!stream.Reached(mark.position) && !lost()) {
    stream.nearest_wanted = std::min(stream.nearest_wanted, mark.position);
    stream.done.Wait(mutex_);
  }
  return CheckAlive();
}

absl::Status HostStreams::Synchronize(HostEvent* event) {
  HostMark mark;
  {
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(CheckAlive());
    if (event == nullptr) return NullHandle("event");
    mark = event->mark;
    if (mark.stream == nullptr) return NeverRecorded();
  }
  if (event->mode == WaitMode::kSpin) {
    for (int poll = 0; poll < kSpinPolls && !mark.stream->Reached(mark.position) && !lost(); ++poll) CpuRelax();
  }
  MutexLock lock(mutex_);
  return WaitForMark(mark);
}

absl::Status HostStreams::Synchronize(HostTimedEvent* event) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  if (event == nullptr) return NullHandle("timed event");
  if (event->mark.stream == nullptr) return NeverRecorded();
  return WaitForMark(event->mark);
}

absl::Status HostStreams::Synchronize(HostStream* stream) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  SLUICE_RETURN_IF_ERROR(CheckNotCapturing(stream));
  return WaitForMark({stream, stream->issued});
}

absl::StatusOr<absl::Duration> HostStreams::Elapsed(HostTimedEvent* start, HostTimedEvent* end) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  if (start == nullptr || end == nullptr) return NullHandle("timed event");
  for (const HostTimedEvent* event : {start, end}) {
    if (event->mark.stream == nullptr) return NeverRecorded();
    if (!event->mark.stream->Reached(event->mark.position)) {
      return absl::FailedPreconditionError("the timed event has not completed");
    }
  }
  return end->reached_at - start->reached_at;
}

absl::Status HostStreams::BeginCapture(HostStream* stream) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  if (stream->capture != nullptr) return absl::FailedPreconditionError("the stream is being captured already");
  stream->capture = std::make_unique<HostGraph>();
  stream->capture_thread = std::this_thread::get_id();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HostGraph>> HostStreams::EndCapture(HostStream* stream) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckStream(stream));
  if (stream->capture == nullptr) return absl::FailedPreconditionError("the stream is not being captured");
  return std::move(stream->capture);
}

void HostStreams::WaitUntilIdle(HostStream* stream) {
  // Not WaitForMark: it must also wait on a lost device, whose engines drop what is queued.
  while (!stream->Reached(stream->issued)) {
    stream->nearest_wanted = std::min(stream->nearest_wanted, stream->issued);
    stream->done.Wait(mutex_);
  }
}

void HostStreams::AwaitUnused(HostGraph* graph) {
  MutexLock lock(mutex_);
  while (graph->pending > 0) unused_.Wait(mutex_);
}

void HostStreams::AwaitUnused(HostTimedEvent* event) {
  MutexLock lock(mutex_);
  while (event->pending > 0) unused_.Wait(mutex_);
}

int HostStreams::live_stream_count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(streams_.begin(), streams_.end(), [](const auto& stream) {
    return stream->live && stream->bound_thread == std::thread::id();
  }));
}

}  // namespace sluice::gpu::host
