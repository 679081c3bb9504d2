// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/progress.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace sluice::gpu {
namespace {
constexpr absl::Duration kLeastShare = absl::Microseconds(1);  // As the gate reserves for a unit nobody has measured.
}  // namespace

void UnitMeter::Add(absl::Duration measured) {
  const int64_t ns = absl::ToInt64Nanoseconds(measured);
  if (count_.fetch_add(1, std::memory_order_relaxed) == 0) least_ns_.store(ns, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  int64_t old = least_ns_.load(std::memory_order_relaxed);
  while (ns < old && !least_ns_.compare_exchange_weak(old, ns, std::memory_order_relaxed)) {
  }
  old = most_ns_.load(std::memory_order_relaxed);
  while (ns > old && !most_ns_.compare_exchange_weak(old, ns, std::memory_order_relaxed)) {
  }
}

UnitTimes UnitMeter::times() const {
  const uint64_t count = count_.load(std::memory_order_relaxed);
  if (count == 0) return {};
  return {.count = count,
          .least = absl::Nanoseconds(least_ns_.load(std::memory_order_relaxed)),
          .average = absl::Nanoseconds(sum_ns_.load(std::memory_order_relaxed) / static_cast<int64_t>(count)),
          .most = absl::Nanoseconds(most_ns_.load(std::memory_order_relaxed))};
}

void Progress::Start(LaneContext& context, Slot& slot, StreamRef stream, const std::atomic<bool>* stop,
                     uint64_t request) {
  *this = Progress();
  context_ = &context;
  slot_ = &slot;
  stream_ = stream;
  stop_ = stop;
  request_ = request;
  track_ = TrackOf(stream.handle);
  if (Recording()) copy_in_at_ = context.clock->Now();
  const bool unified = context.device->info().unified_memory;
  if (!unified) chunks_ = ChunkCursor(slot.inputs, context.chunk_bytes);
  if (slot.unit_done.size() != slot.units.size() || slot.unit_graphs.size() != slot.units.size() ||
      slot.copy_done.empty() != unified) {
    return End(absl::InternalError("the slot was prepared for another class"));
  }
  if (absl::Status status = context.device->Record(stream, slot.h2d_start); !status.ok()) End(std::move(status));
}

Step Progress::Advance() {
  if (phase_ < Phase::kKernelsRunning && stop_ != nullptr && stop_->load(std::memory_order_acquire)) {
    return EndWith(absl::CancelledError("stopped between units"));
  }
  const bool unified = context_->device->info().unified_memory;
  switch (phase_) {
    case Phase::kCopyIn:
      if (!chunks_.done()) return IssueChunk(Engine::kHostToDevice);
      if (absl::Status status = RecordInputs(); !status.ok()) return EndWith(std::move(status));
      phase_ = unified ? Phase::kUnits : Phase::kInputsArriving;
      return {.kind = StepKind::kIssued};
    case Phase::kInputsArriving:
      return Seen(slot_->inputs_arrived, Phase::kUnits);
    case Phase::kUnits:
      if (next_unit_ < slot_->units.size()) return IssueUnit();
      if (absl::Status status = context_->device->Record(stream_, slot_->kernels_done); !status.ok()) {
        return EndWith(std::move(status));
      }
      // Chunks out ask the gate when they can run at once, not behind units; without copies nothing asks.
      phase_ = Phase::kKernelsRunning;
      if (!unified) return {.kind = StepKind::kIssued};
      [[fallthrough]];
    case Phase::kKernelsRunning:
      if (!unified) {
        if (Step step = Seen(slot_->kernels_done, Phase::kCopyOut); step.kind != StepKind::kIssued) return step;
        chunks_ = ChunkCursor(slot_->outputs, context_->chunk_bytes);
        chunk_index_ = 0;
      }
      if (absl::Status status = context_->device->Record(stream_, slot_->d2h_start); !status.ok()) {
        return EndWith(std::move(status));
      }
      phase_ = Phase::kCopyOut;
      if (Recording()) copy_out_at_ = context_->clock->Now();
      return {.kind = StepKind::kIssued};
    case Phase::kCopyOut:
      if (!chunks_.done()) return IssueChunk(Engine::kDeviceToHost);
      if (absl::Status status = RecordDone(); !status.ok()) return EndWith(std::move(status));
      phase_ = Phase::kEnding;
      return {.kind = StepKind::kIssued};
    case Phase::kEnding:
      break;
  }
  return {.kind = StepKind::kEnded};
}

absl::Status Progress::RecordInputs() {
  SLUICE_RETURN_IF_ERROR(context_->device->Record(stream_, slot_->h2d_end));
  return context_->device->Record(stream_, slot_->inputs_arrived);
}

absl::Status Progress::RecordDone() {
  SLUICE_RETURN_IF_ERROR(context_->device->Record(stream_, slot_->d2h_end));
  SLUICE_RETURN_IF_ERROR(context_->device->Record(stream_, slot_->done));
  done_recorded_ = true;
  return absl::OkStatus();
}

Step Progress::Seen(EventRef event, Phase next) {
  absl::StatusOr<bool> seen = context_->device->Query(event);
  if (!seen.ok()) return EndWith(seen.status());
  if (!*seen) return {.kind = StepKind::kWaiting};
  phase_ = next;
  return {.kind = StepKind::kIssued};
}

Grant Progress::Ask(Mark& wanted) {
  wanted.issued_at = context_->clock->Now();
  const Grant grant =
      context_->gate->TryGrant(wanted.engine, context_->request_class, wanted.predicted, wanted.issued_at);
  if (!grant.granted) return grant;
  wanted.latency_entries = context_->gate->latency_entries();
  wanted.undisturbed = context_->gate->latency_on_device() == 0;
  mark(in_flight_++) = wanted;
  return grant;
}

Step Progress::IssueChunk(Engine engine) {
  if (in_flight_ >= slot_->copy_done.size()) return {.kind = StepKind::kWaiting};
  ChunkCursor rest = chunks_;
  const Chunk chunk = rest.Next();
  const size_t size_bytes = chunk.pinned.size_bytes;
  Mark wanted;
  wanted.engine = engine;
  wanted.size_bytes = size_bytes;
  wanted.index = static_cast<uint32_t>(chunk_index_);
  wanted.predicted = context_->copy_times.Predicted(engine, size_bytes);
  const Grant grant = Ask(wanted);
  if (!grant.granted) return {.kind = StepKind::kRefused, .retry_at = grant.retry_at};
  Device& device = *context_->device;
  absl::Status status = engine == Engine::kHostToDevice ? device.CopyToDevice(stream_, chunk.pinned, chunk.device)
                                                        : device.CopyToHost(stream_, chunk.device, chunk.pinned);
  if (!status.ok()) {
    TakeBackNewest();
    return EndWith(std::move(status));
  }
  const EventRef event = slot_->copy_done[chunk_index_ % slot_->copy_done.size()];
  if (status = device.Record(stream_, event); !status.ok()) return EndWith(std::move(status));
  mark(in_flight_ - 1).event = event;
  chunks_ = rest;
  ++chunk_index_;
  return {.kind = StepKind::kIssued};
}

Step Progress::IssueUnit() {
  if (in_flight_ == kMaxInFlight) return {.kind = StepKind::kWaiting};
  const Unit& unit = slot_->units[next_unit_];
  Mark wanted;
  wanted.index = static_cast<uint32_t>(next_unit_);
  wanted.average = unit.predicted;
  if (unit.predicted != nullptr) wanted.predicted = unit.predicted->value();
  const Grant grant = Ask(wanted);
  if (!grant.granted) return {.kind = StepKind::kRefused, .retry_at = grant.retry_at};
  Device& device = *context_->device;
  const GraphRef graph = slot_->unit_graphs[next_unit_];
  if (graph) {
    if (absl::Status status = device.LaunchGraph(stream_, graph); !status.ok()) {
      TakeBackNewest();
      return EndWith(std::move(status));
    }
  }
  for (size_t i = 0; !graph && i < unit.launch_count; ++i) {
    const BoundLaunch& launch = slot_->launches[unit.first_launch + i];
    if (absl::Status status = device.Launch(stream_, *launch.kernel, launch.args); !status.ok()) {
      if (i == 0) TakeBackNewest();
      return EndWith(std::move(status));
    }
  }
  const EventRef event = slot_->unit_done[next_unit_];
  if (absl::Status status = device.Record(stream_, event); !status.ok()) return EndWith(std::move(status));
  mark(in_flight_ - 1).event = event;
  ++next_unit_;
  return {.kind = StepKind::kIssued};
}

void Progress::TakeBackNewest() {
  const Mark& newest = mark(--in_flight_);
  context_->gate->Complete(newest.engine, context_->request_class, newest.predicted, absl::ZeroDuration(),
                           context_->clock->Now());
}

Step Progress::EndWith(absl::Status status) {
  End(std::move(status));
  return {.kind = StepKind::kEnded};
}

void Progress::End(absl::Status status) {
  if (phase_ == Phase::kEnding) return;
  phase_ = Phase::kEnding;
  status_ = std::move(status);
  done_recorded_ = context_->device->Record(stream_, slot_->done).ok();
  if (!done_recorded_) {
    AwaitAll();
    return;
  }
  for (size_t age = 0; age < in_flight_; ++age) {
    if (!mark(age).event) mark(age).event = slot_->done;
  }
}

/// The device no longer answers questions about single events: waits for everything and returns the grants. What is
/// wrong is in status_ already.
void Progress::AwaitAll() {
  AwaitDone(*context_->device, stream_, *slot_, done_recorded_).IgnoreError();
  for (; in_flight_ > 0; --in_flight_, ++first_) {
    const Mark& oldest = mark(0);
    context_->gate->Complete(oldest.engine, context_->request_class, oldest.predicted,
                             std::max(oldest.predicted, kLeastShare), context_->clock->Now());
  }
}

bool Progress::Reap() {
  size_t over = 0;
  while (over < in_flight_) {
    absl::StatusOr<bool> seen = context_->device->Query(mark(over).event);
    if (!seen.ok()) {
      if (phase_ == Phase::kEnding && status_.ok()) status_ = seen.status();
      End(seen.status());
      AwaitAll();
      return true;
    }
    if (!*seen) break;
    ++over;
  }
  if (over == 0) return false;
  // A copy out only follows when all kernels are over, so marks of two engines are rarely met here; they are measured
  // apart.
  while (over > 0) {
    size_t run = 1;
    while (run < over && mark(run).engine == mark(0).engine) ++run;
    CompleteOldest(run);
    over -= run;
  }
  return true;
}

void Progress::CompleteOldest(size_t count) {
  Gate& gate = *context_->gate;
  const Engine engine = mark(0).engine;
  const Time now = context_->clock->Now();
  // Several that ended between two looks share the time by what was predicted for each.
  const absl::Duration elapsed =
      std::max(now - std::max(mark(0).issued_at, gate.last_completion(engine)), absl::ZeroDuration());
  // One that began on an idle engine was also waited for while it was launched, which is no part of what it takes when
  // it follows another: it may lower what is predicted, not raise it. Else a late start would be learnt, and the
  // successor granted later still.
  const bool followed = gate.last_completion(engine) >= mark(0).issued_at;
  absl::Duration predicted;
  bool undisturbed = true;
  const bool recording = Recording();
  Time begun = now - elapsed;
  for (size_t age = 0; age < count; ++age) {
    predicted += std::max(mark(age).predicted, kLeastShare);
    undisturbed = undisturbed && mark(age).undisturbed && mark(age).latency_entries == gate.latency_entries();
  }
  for (; count > 0; --count, --in_flight_, ++first_) {
    const Mark& oldest = mark(0);
    const absl::Duration weight = std::max(oldest.predicted, kLeastShare);
    const absl::Duration share = elapsed * (absl::ToDoubleSeconds(weight) / absl::ToDoubleSeconds(predicted));
    // Latency work between issue and end would be counted as the unit's own.
    const absl::Duration measured = undisturbed ? share : weight;
    if (recording) {
      RecordOldest(begun, std::min(begun + share, now), undisturbed ? measured : absl::ZeroDuration());
      begun = std::min(begun + share, now);
    }
    gate.Complete(engine, context_->request_class, oldest.predicted, std::max(measured, absl::Nanoseconds(1)), now);
    if (!undisturbed) continue;
    context_->meters[static_cast<size_t>(engine)].Add(measured);
    const bool known = oldest.predicted > absl::ZeroDuration();
    const absl::Duration learnt = followed || !known ? measured : std::min(measured, oldest.predicted);
    if (oldest.average != nullptr) oldest.average->Add(learnt);
    if (oldest.size_bytes > 0) context_->copy_times.Add(engine, oldest.size_bytes, learnt);
  }
}

/// What the host saw: the end is when it looked, and several that ended between two looks share the time.
void Progress::RecordOldest(Time start, Time end, absl::Duration measured) const {
  const Mark& oldest = mark(0);
  TimelineRecord record;
  record.start = start;
  record.end = end;
  record.request = request_;
  record.track = track_;
  record.predicted = oldest.predicted;
  record.measured = measured;
  record.amount = oldest.size_bytes;
  record.index = oldest.index;
  record.kind = oldest.engine == Engine::kCompute        ? SpanKind::kUnit
                : oldest.engine == Engine::kHostToDevice ? SpanKind::kChunkIn
                                                         : SpanKind::kChunkOut;
  record.request_class = context_->request_class;
  context_->timeline->Add(record);
}

EventRef Progress::blocking_event() const {
  if (in_flight_ > 0) return mark(0).event;
  switch (phase_) {
    case Phase::kInputsArriving:
      return slot_->inputs_arrived;
    case Phase::kKernelsRunning:
      return slot_->kernels_done;
    default:
      return {};
  }
}

absl::Status AwaitDone(Device& device, StreamRef stream, const Slot& slot, bool done_recorded) {
  absl::Status first;
  if (done_recorded) {
    first = device.Synchronize(slot.done);
    if (first.ok()) return first;
  }
  const absl::Status second = device.Synchronize(stream);
  return first.ok() ? second : first;
}

}  // namespace sluice::gpu
