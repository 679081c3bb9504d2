// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_device.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"

namespace sluice::gpu {
namespace {

absl::Status LostError() { return absl::UnavailableError("device lost (by plan)"); }

DeviceInfo WithUuid(DeviceInfo info, const std::string& uuid) {
  if (!uuid.empty()) info.uuid = uuid;
  return info;
}

}  // namespace

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner, const std::string& uuid)
    : inner_(std::move(inner)), info_(WithUuid(inner_->info(), uuid)) {}

FaultyDevice::~FaultyDevice() {
  if (const int live = live_object_count(); live > 0) {
    ReportDestroyFailure(*this, absl::InternalError("the faulty device goes before objects made by it"));
  }
}

void FaultyDevice::FailCall(int k, absl::Status status, std::optional<DeviceMethod> method) {
  MutexLock lock(mutex_);
  failure_ = {k, method, std::move(status)};
  happened_.reset();
}

void FaultyDevice::LoseAtCall(int k) {
  MutexLock lock(mutex_);
  calls_until_loss_ = k;
  happened_.reset();
}

void FaultyDevice::Lose() {
  MutexLock lock(mutex_);
  lost_.store(true, std::memory_order_release);
  completion_allowed_.NotifyAll();
}

void FaultyDevice::ClearFaults() {
  MutexLock lock(mutex_);
  failure_ = {};
  calls_until_loss_ = 0;
}

bool FaultyDevice::fault_happened() const { return faulted_method().has_value(); }

std::optional<DeviceMethod> FaultyDevice::faulted_method() const {
  MutexLock lock(mutex_);
  return happened_;
}

void FaultyDevice::WithholdCompletion(bool withhold) {
  MutexLock lock(mutex_);
  withhold_ = withhold;
  completion_allowed_.NotifyAll();
}

void FaultyDevice::SlowDown(const Kernel* slow) {
  MutexLock lock(mutex_);
  slow_ = slow;
}

int FaultyDevice::call_count() const {
  MutexLock lock(mutex_);
  return std::accumulate(counts_.begin(), counts_.end(), 0);
}

int FaultyDevice::call_count(DeviceMethod method) const {
  MutexLock lock(mutex_);
  return counts_[static_cast<size_t>(method)];
}

int FaultyDevice::live_object_count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(streams_.size() + events_.size() + timed_events_.size() + graphs_.size() +
                          device_memory_.size() + pinned_memory_.size());
}

absl::Status FaultyDevice::Count(DeviceMethod method) {
  {
    MutexLock lock(mutex_);
    ++counts_[static_cast<size_t>(method)];
    if (calls_until_loss_ > 0 && --calls_until_loss_ == 0) {
      happened_ = method;
      lost_.store(true, std::memory_order_release);
      completion_allowed_.NotifyAll();
    }
    if (failure_.calls_left > 0 && (!failure_.method || *failure_.method == method) && --failure_.calls_left == 0) {
      happened_ = method;
      return failure_.status;
    }
  }
  if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
  // On a lost device nothing runs any more. The inner one does, so whoever learns of the loss first sees it come to
  // rest: from here on the caller may take apart what its launches used.
  Drain();
  return method != DeviceMethod::kDestroy ? LostError() : absl::OkStatus();
}

absl::Status FaultyDevice::AwaitCompletionAllowed() {
  MutexLock lock(mutex_);
  while (withhold_ && !lost_.load(std::memory_order_relaxed)) completion_allowed_.Wait(mutex_);
  return lost_.load(std::memory_order_relaxed) ? LostError() : absl::OkStatus();
}

absl::Status FaultyDevice::SlowDownBefore(StreamRef stream) {
  const Kernel* slow = nullptr;
  {
    MutexLock lock(mutex_);
    if (std::count(capturing_.begin(), capturing_.end(), stream.handle) == 0) slow = slow_;
  }
  return slow == nullptr ? absl::OkStatus() : inner_->Launch(stream, *slow, {});
}

absl::Status FaultyDevice::Follow(StreamRef stream) {
  {
    MutexLock lock(mutex_);
    if (last_issued_.count(stream.handle) > 0) return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(Event event, inner_->CreateEvent(WaitMode::kBlock));
  MutexLock lock(mutex_);
  last_issued_.insert_or_assign(stream.handle, std::move(event));
  return absl::OkStatus();
}

absl::Status FaultyDevice::Issued(StreamRef stream) {
  EventRef event;
  {
    MutexLock lock(mutex_);
    if (std::count(capturing_.begin(), capturing_.end(), stream.handle) > 0) return absl::OkStatus();
    if (const auto found = last_issued_.find(stream.handle); found != last_issued_.end()) event = found->second.view();
  }
  return event ? inner_->Record(stream, event) : absl::OkStatus();
}

void FaultyDevice::Drain() {
  std::vector<EventRef> events;
  {
    MutexLock lock(mutex_);
    for (const auto& [stream, event] : last_issued_) events.push_back(event);
  }
  for (const EventRef event : events) inner_->Synchronize(event).IgnoreError();  // Some were never recorded.
}

template <class View>
absl::StatusOr<Owned<View>> FaultyDevice::Keep(Owners<View>& owners, const void* key,
                                               absl::StatusOr<Owned<View>> made) {
  if (!made.ok()) return std::move(made).status();
  const View view = made->view();
  MutexLock lock(mutex_);
  owners.insert_or_assign(key, *std::move(made));
  return Owned<View>(this, view);
}

template <class View>
absl::Status FaultyDevice::Drop(Owners<View>& owners, const void* key, View view) {
  const absl::Status planned = Count(DeviceMethod::kDestroy);
  Owned<View> owner;
  {
    MutexLock lock(mutex_);
    const auto found = owners.find(key);
    if (found != owners.end() && found->second.view() == view) {
      owner = std::move(found->second);
      owners.erase(found);
    }
  }
  if (!owner) return inner_->Destroy(view);  // Not made here: the inner device says what that is.
  return planned;
}

absl::StatusOr<Stream> FaultyDevice::CreateStream(StreamPriority priority) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kCreateStream));
  absl::StatusOr<Stream> made = inner_->CreateStream(priority);
  if (made.ok()) SLUICE_RETURN_IF_ERROR(Follow(*made));
  const void* key = made.ok() ? made->view().handle : nullptr;
  return Keep(streams_, key, std::move(made));
}

absl::StatusOr<StreamRef> FaultyDevice::ThreadStream() {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kThreadStream));
  SLUICE_ASSIGN_OR_RETURN(const StreamRef stream, inner_->ThreadStream());
  SLUICE_RETURN_IF_ERROR(Follow(stream));
  return stream;
}

absl::StatusOr<int> FaultyDevice::ReadPriority(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kReadPriority));
  if (const std::optional<int> forced = forced_priority_.load(std::memory_order_relaxed); forced) return *forced;
  return inner_->ReadPriority(stream);
}

absl::StatusOr<Event> FaultyDevice::CreateEvent(WaitMode mode) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kCreateEvent));
  absl::StatusOr<Event> made = inner_->CreateEvent(mode);
  const void* key = made.ok() ? made->view().handle : nullptr;
  return Keep(events_, key, std::move(made));
}

absl::StatusOr<TimedEvent> FaultyDevice::CreateTimedEvent() {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kCreateTimedEvent));
  absl::StatusOr<TimedEvent> made = inner_->CreateTimedEvent();
  const void* key = made.ok() ? made->view().handle : nullptr;
  return Keep(timed_events_, key, std::move(made));
}

absl::StatusOr<DeviceBuffer> FaultyDevice::AllocateDevice(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kAllocateDevice));
  absl::StatusOr<DeviceBuffer> made = inner_->AllocateDevice(size_bytes, kind);
  const void* key = made.ok() ? made->view().data : nullptr;
  return Keep(device_memory_, key, std::move(made));
}

absl::StatusOr<PinnedBuffer> FaultyDevice::AllocatePinned(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kAllocatePinned));
  absl::StatusOr<PinnedBuffer> made = inner_->AllocatePinned(size_bytes, kind);
  const void* key = made.ok() ? made->view().data : nullptr;
  return Keep(pinned_memory_, key, std::move(made));
}

absl::Status FaultyDevice::CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kCopyToDevice));
  SLUICE_RETURN_IF_ERROR(inner_->CopyToDevice(stream, source, destination));
  return Issued(stream);
}

absl::Status FaultyDevice::CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kCopyToHost));
  SLUICE_RETURN_IF_ERROR(inner_->CopyToHost(stream, source, destination));
  return Issued(stream);
}

absl::Status FaultyDevice::Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kLaunch));
  SLUICE_RETURN_IF_ERROR(SlowDownBefore(stream));
  SLUICE_RETURN_IF_ERROR(inner_->Launch(stream, kernel, args));
  return Issued(stream);
}

absl::Status FaultyDevice::LaunchGraph(StreamRef stream, GraphRef graph) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kLaunchGraph));
  SLUICE_RETURN_IF_ERROR(SlowDownBefore(stream));
  SLUICE_RETURN_IF_ERROR(inner_->LaunchGraph(stream, graph));
  return Issued(stream);
}

absl::Status FaultyDevice::Record(StreamRef stream, EventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kRecord));
  return inner_->Record(stream, event);
}

absl::Status FaultyDevice::Record(StreamRef stream, TimedEventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kRecord));
  return inner_->Record(stream, event);
}

absl::Status FaultyDevice::Wait(StreamRef stream, EventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kWait));
  return inner_->Wait(stream, event);
}

absl::StatusOr<bool> FaultyDevice::Query(EventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kQuery));
  SLUICE_ASSIGN_OR_RETURN(const bool done, inner_->Query(event));
  MutexLock lock(mutex_);
  return done && !withhold_;
}

absl::Status FaultyDevice::Synchronize(EventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kSynchronize));
  SLUICE_RETURN_IF_ERROR(inner_->Synchronize(event));
  return AwaitCompletionAllowed();
}

absl::Status FaultyDevice::Synchronize(TimedEventRef event) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kSynchronize));
  SLUICE_RETURN_IF_ERROR(inner_->Synchronize(event));
  return AwaitCompletionAllowed();
}

absl::Status FaultyDevice::Synchronize(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kSynchronize));
  SLUICE_RETURN_IF_ERROR(inner_->Synchronize(stream));
  return AwaitCompletionAllowed();
}

absl::StatusOr<absl::Duration> FaultyDevice::Elapsed(TimedEventRef start, TimedEventRef end) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kElapsed));
  return inner_->Elapsed(start, end);
}

absl::Status FaultyDevice::BeginCapture(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kBeginCapture));
  SLUICE_RETURN_IF_ERROR(inner_->BeginCapture(stream));
  MutexLock lock(mutex_);
  capturing_.push_back(stream.handle);
  return absl::OkStatus();
}

absl::StatusOr<Graph> FaultyDevice::EndCapture(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(Count(DeviceMethod::kEndCapture));
  absl::StatusOr<Graph> made = inner_->EndCapture(stream);
  if (made.ok()) {
    MutexLock lock(mutex_);
    std::erase(capturing_, stream.handle);
  }
  const void* key = made.ok() ? made->view().handle : nullptr;
  return Keep(graphs_, key, std::move(made));
}

absl::Status FaultyDevice::Destroy(StreamRef stream) {
  {
    MutexLock lock(mutex_);
    std::erase(capturing_, stream.handle);
  }
  return Drop(streams_, stream.handle, stream);
}
absl::Status FaultyDevice::Destroy(EventRef event) { return Drop(events_, event.handle, event); }
absl::Status FaultyDevice::Destroy(TimedEventRef event) { return Drop(timed_events_, event.handle, event); }
absl::Status FaultyDevice::Destroy(GraphRef graph) { return Drop(graphs_, graph.handle, graph); }
absl::Status FaultyDevice::Destroy(DeviceSpan memory) { return Drop(device_memory_, memory.data, memory); }
absl::Status FaultyDevice::Destroy(PinnedSpan memory) { return Drop(pinned_memory_, memory.data, memory); }

}  // namespace sluice::gpu
