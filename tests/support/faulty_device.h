// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gpu/device.h"
#include "gpu/kernel.h"

namespace sluice::gpu {

enum class DeviceMethod : uint8_t {
  kCreateStream,
  kThreadStream,
  kReadPriority,
  kCreateEvent,
  kCreateTimedEvent,
  kAllocateDevice,
  kAllocatePinned,
  kCopyToDevice,
  kCopyToHost,
  kLaunch,
  kLaunchGraph,
  kRecord,
  kWait,
  kQuery,
  kSynchronize,
  kElapsed,
  kBeginCapture,
  kEndCapture,
  kDestroy,
};
inline constexpr int kDeviceMethodCount = static_cast<int>(DeviceMethod::kDestroy) + 1;

/// A device that forwards every call to another one and misbehaves when told.
///
/// Fault model: any call can fail before it does anything (a failed destroy destroys all the same, as real ones do as
/// far as anybody can tell); kernels can be slow; events can stay incomplete until the device is lost; the device can
/// be lost at any call. Not modelled: wrong results. Bounds: one planned failure and one planned loss at a time.
/// Ownership: owns the inner device and, for each object made through it, the inner owner; so live_object_count() is
/// what has not been destroyed. Threads: any. Errors: the inner device's, the planned ones, and UNAVAILABLE for every
/// call but Destroy once lost.
class FaultyDevice final : public Device {
 public:
  /// With a `uuid` the device says that it is that GPU.
  explicit FaultyDevice(std::unique_ptr<Device> inner, const std::string& uuid = {});
  ~FaultyDevice() override;

  /// The `k`-th counted call from now on (1 is the next), of `method` or of any, returns `status`, once.
  void FailCall(int k, absl::Status status, std::optional<DeviceMethod> method = std::nullopt);
  /// The device is lost at the `k`-th call from now on, which already fails.
  void LoseAtCall(int k);
  void Lose();
  /// Forgets planned failures and losses that have not happened.
  void ClearFaults();
  /// True when the planned failure or loss has happened.
  bool fault_happened() const;
  /// The method of the call that it happened in.
  std::optional<DeviceMethod> faulted_method() const;

  /// While on, no event completes: Query says no and Synchronize blocks, until off or lost.
  void WithholdCompletion(bool withhold);
  /// Each launch outside captures is preceded by `slow`, a kernel prepared for this device, on the same stream; null
  /// for none. The kernel must outlive its use.
  void SlowDown(const Kernel* slow);

  /// Every stream reads back this priority: a device that ignores what was asked for.
  void ForcePriority(int number) { forced_priority_.store(number, std::memory_order_relaxed); }

  /// Calls counted so far: all but info, lost, kernels, the budgets and StampToTime.
  int call_count() const;
  int call_count(DeviceMethod method) const;
  /// Streams, events, graphs and buffers that exist.
  int live_object_count() const;

  const DeviceInfo& info() const override { return info_; }
  bool lost() const override { return lost_.load(std::memory_order_acquire) || inner_->lost(); }
  KernelLibrary& kernels() override { return inner_->kernels(); }
  MemoryBudget& memory() override { return inner_->memory(); }
  MemoryBudget& pinned_memory() override { return inner_->pinned_memory(); }
  absl::StatusOr<Stream> CreateStream(StreamPriority priority) override;
  absl::StatusOr<StreamRef> ThreadStream() override;
  absl::StatusOr<int> ReadPriority(StreamRef stream) override;
  absl::StatusOr<Event> CreateEvent(WaitMode mode) override;
  absl::StatusOr<TimedEvent> CreateTimedEvent() override;
  using Device::AllocateDevice;
  using Device::AllocatePinned;
  absl::StatusOr<DeviceBuffer> AllocateDevice(size_t size_bytes, MemoryKind kind) override;
  absl::StatusOr<PinnedBuffer> AllocatePinned(size_t size_bytes, MemoryKind kind) override;
  absl::Status CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) override;
  absl::Status CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) override;
  absl::Status Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) override;
  absl::Status LaunchGraph(StreamRef stream, GraphRef graph) override;
  absl::Status Record(StreamRef stream, EventRef event) override;
  absl::Status Record(StreamRef stream, TimedEventRef event) override;
  absl::Status Wait(StreamRef stream, EventRef event) override;
  absl::StatusOr<bool> Query(EventRef event) override;
  absl::Status Synchronize(EventRef event) override;
  absl::Status Synchronize(TimedEventRef event) override;
  absl::Status Synchronize(StreamRef stream) override;
  absl::StatusOr<absl::Duration> Elapsed(TimedEventRef start, TimedEventRef end) override;
  Time StampToTime(uint64_t stamp) const override { return inner_->StampToTime(stamp); }
  absl::Status BeginCapture(StreamRef stream) override;
  absl::StatusOr<Graph> EndCapture(StreamRef stream) override;
  absl::Status Destroy(StreamRef stream) override;
  absl::Status Destroy(EventRef event) override;
  absl::Status Destroy(TimedEventRef event) override;
  absl::Status Destroy(GraphRef graph) override;
  absl::Status Destroy(DeviceSpan memory) override;
  absl::Status Destroy(PinnedSpan memory) override;

 private:
  struct Plan {
    int calls_left = 0;  ///< 0: nothing is planned.
    std::optional<DeviceMethod> method;
    absl::Status status;
  };
  template <class View>
  using Owners = std::map<const void*, Owned<View>>;

  /// Counts the call and says whether it fails.
  absl::Status Count(DeviceMethod method) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitCompletionAllowed() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status SlowDownBefore(StreamRef stream) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Makes the event that Issued records in `stream`.
  absl::Status Follow(StreamRef stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Issued(StreamRef stream) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Waits for everything issued to the inner device.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  template <class View>
  absl::StatusOr<Owned<View>> Keep(Owners<View>& owners, const void* key, absl::StatusOr<Owned<View>> made)
      ABSL_LOCKS_EXCLUDED(mutex_);
  template <class View>
  absl::Status Drop(Owners<View>& owners, const void* key, View view) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Device> inner_;
  const DeviceInfo info_;
  std::atomic<bool> lost_ = false;  ///< Set under the mutex.

  mutable Mutex mutex_;
  CondVar completion_allowed_;
  bool withhold_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<DeviceMethod> happened_ ABSL_GUARDED_BY(mutex_);
  const Kernel* slow_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<void*> capturing_ ABSL_GUARDED_BY(mutex_);  ///< Streams, by handle.
  Plan failure_ ABSL_GUARDED_BY(mutex_);
  int calls_until_loss_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<int, kDeviceMethodCount> counts_ ABSL_GUARDED_BY(mutex_) = {};
  std::map<void*, Event> last_issued_ ABSL_GUARDED_BY(mutex_);  ///< By stream; kept when the stream goes.
  // Guarded by mutex_ too; passed by reference to Keep and Drop, which take it.
  Owners<StreamRef> streams_;
  Owners<EventRef> events_;
  Owners<TimedEventRef> timed_events_;
  Owners<GraphRef> graphs_;
  Owners<DeviceSpan> device_memory_;
  Owners<PinnedSpan> pinned_memory_;
  std::atomic<std::optional<int>> forced_priority_;
};

}  // namespace sluice::gpu
