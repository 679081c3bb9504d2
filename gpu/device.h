// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/memory_budget.h"

namespace sluice::gpu {

class Device;
class Kernel;
struct KernelArgs;
class KernelLibrary;  // gpu/kernels/library.h: what Prepare functions of a backend are reached through

enum class Backend : uint8_t { kHost, kCuda };

/// Order between streams of one device. Backends map it to numbers; kDefault and kLow may be the same number (they are
/// on NVIDIA GPUs), kHigh is strictly above both or the device refuses to start.
enum class StreamPriority : uint8_t { kLow, kDefault, kHigh };

/// How a thread waits for an event: kSpin polls, kBlock sleeps.
enum class WaitMode : uint8_t { kSpin, kBlock };

// Views. Trivially copyable; a null handle is "none". They stay valid as long as their owner.
template <class Tag>
struct Ref {
  void* handle = nullptr;
  explicit operator bool() const { return handle != nullptr; }
  friend bool operator==(Ref, Ref) = default;
};
using StreamRef = Ref<struct StreamTag>;
using EventRef = Ref<struct EventTag>;            ///< Orders and completes; cannot tell time.
using TimedEventRef = Ref<struct TimedEventTag>;  ///< Only these have a difference.
using GraphRef = Ref<struct GraphTag>;

/// Device memory: an address that only kernels and copies may use, and its length.
struct DeviceSpan {
  std::byte* data = nullptr;
  size_t size_bytes = 0;
  explicit operator bool() const { return data != nullptr; }
  DeviceSpan subspan(size_t offset_bytes, size_t count_bytes) const { return {data + offset_bytes, count_bytes}; }
  friend bool operator==(DeviceSpan, DeviceSpan) = default;
};

/// Page-locked host memory. `device_data` is the address of the same bytes for kernels (mapped memory); on the host
/// device both addresses are equal, and a copy between a pinned span and its own device span does nothing.
struct PinnedSpan {
  std::byte* data = nullptr;
  std::byte* device_data = nullptr;
  size_t size_bytes = 0;
  explicit operator bool() const { return data != nullptr; }
  PinnedSpan subspan(size_t offset_bytes, size_t count_bytes) const {
    return {data + offset_bytes, device_data + offset_bytes, count_bytes};
  }
  DeviceSpan device_span() const { return {device_data, size_bytes}; }
  friend bool operator==(PinnedSpan, PinnedSpan) = default;
};

/// Owner of what a view names: move-only, destroys it on its device. A failed destroy is logged and counted by the
/// device. The device must outlive it.
template <class View>
class Owned {
 public:
  Owned() = default;
  Owned(Device* device, View view) : device_(device), view_(view) {}
  Owned(Owned&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), view_(std::exchange(other.view_, {})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Owned();
  const View& view() const { return view_; }
  operator View() const { return view_; }  // NOLINT: an owner is usable wherever its view is
  explicit operator bool() const { return static_cast<bool>(view_); }

 private:
  Device* device_ = nullptr;
  View view_{};
};
using Stream = Owned<StreamRef>;
using Event = Owned<EventRef>;
using TimedEvent = Owned<TimedEventRef>;
using Graph = Owned<GraphRef>;
using DeviceBuffer = Owned<DeviceSpan>;
using PinnedBuffer = Owned<PinnedSpan>;

struct DeviceInfo {
  Backend backend = Backend::kHost;
  std::string name;             ///< As in flags and metric labels: "host:0", "cuda:1".
  std::string description;      ///< Product name, driver and runtime versions.
  std::string uuid;             ///< Of a GPU, as NVML writes it: "GPU-" and 36 characters. Empty on the host.
  bool unified_memory = false;  ///< Pinned memory is the device's memory: slots use one buffer and copies do nothing.
  size_t total_bytes = 0;
};

/// One accelerator, or the host standing in for one. Purpose: the only door between Sluice and hardware. Bounds: every
/// queue is bounded, a full one makes the caller wait for the device, never for another stream's owner. Threads: every
/// method may be called from any thread unless it says otherwise; one stream is issued to by one thread at a time.
/// Errors: RESOURCE_EXHAUSTED when memory is out; INTERNAL for a bad handle or launch; UNAVAILABLE once the device is
/// lost, from then on for every call. Issue calls (Copy*, Launch, Record, Wait) return before the work is done,
/// allocate nothing and never synchronise. Create*, Allocate* and captures are for load time.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  /// True after an error that poisons the device; never returns to false. Never blocks.
  virtual bool lost() const = 0;
  /// Prepares kernels for this device; lives as long as it.
  virtual KernelLibrary& kernels() = 0;
  /// Count and limit what AllocateDevice and AllocatePinned take; one object where both take the same memory.
  virtual MemoryBudget& memory() = 0;
  virtual MemoryBudget& pinned_memory() = 0;

  virtual absl::StatusOr<Stream> CreateStream(StreamPriority priority) = 0;
  /// The calling thread's own default stream. The view must not be handed to another thread.
  virtual absl::StatusOr<StreamRef> ThreadStream() = 0;
  /// The backend's number for this stream, read back from it; a smaller number runs first.
  virtual absl::StatusOr<int> ReadPriority(StreamRef stream) = 0;
  virtual absl::StatusOr<Event> CreateEvent(WaitMode mode) = 0;
  virtual absl::StatusOr<TimedEvent> CreateTimedEvent() = 0;
  /// Contents are undefined. Alignment is at least 64 bytes. Counted as `kind` until freed; refused with the budget's
  /// sum.
  virtual absl::StatusOr<DeviceBuffer> AllocateDevice(size_t size_bytes, MemoryKind kind) = 0;
  virtual absl::StatusOr<PinnedBuffer> AllocatePinned(size_t size_bytes, MemoryKind kind) = 0;
  absl::StatusOr<DeviceBuffer> AllocateDevice(size_t bytes) { return AllocateDevice(bytes, MemoryKind::kOther); }
  absl::StatusOr<PinnedBuffer> AllocatePinned(size_t bytes) { return AllocatePinned(bytes, MemoryKind::kOther); }

  /// Sizes must be equal. The memory must stay alive until the copy is over.
  virtual absl::Status CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) = 0;
  virtual absl::Status CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) = 0;
  /// `kernel` must have been prepared for this device; it and what `args` points to must outlive the launch.
  virtual absl::Status Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) = 0;
  virtual absl::Status LaunchGraph(StreamRef stream, GraphRef graph) = 0;
  virtual absl::Status Record(StreamRef stream, EventRef event) = 0;
  virtual absl::Status Record(StreamRef stream, TimedEventRef event) = 0;
  /// Later work of `stream` waits for the event's latest record. FAILED_PRECONDITION when it was never recorded
  /// (hardware would silently not wait).
  virtual absl::Status Wait(StreamRef stream, EventRef event) = 0;

  /// True when the event's latest record has completed. Never blocks. FAILED_PRECONDITION when never recorded.
  virtual absl::StatusOr<bool> Query(EventRef event) = 0;
  /// Blocks the caller until the event's latest record has completed; an error of earlier work surfaces here.
  virtual absl::Status Synchronize(EventRef event) = 0;
  virtual absl::Status Synchronize(TimedEventRef event) = 0;
  /// Blocks until the stream is idle. Load time only.
  virtual absl::Status Synchronize(StreamRef stream) = 0;
  /// Time on the device's own clock between two completed records.
  virtual absl::StatusOr<absl::Duration> Elapsed(TimedEventRef start, TimedEventRef end) = 0;
  /// Converts a stamp kernel's value (gpu/kernels/stamp.h) to the process's monotonic clock.
  virtual Time StampToTime(uint64_t stamp) const = 0;

  /// Between the two calls, launches and copies issued to `stream` by this thread are recorded, not run.
  virtual absl::Status BeginCapture(StreamRef stream) = 0;
  virtual absl::StatusOr<Graph> EndCapture(StreamRef stream) = 0;

  // Called by owners only. May block until the object is no longer in use.
  virtual absl::Status Destroy(StreamRef stream) = 0;
  virtual absl::Status Destroy(EventRef event) = 0;
  virtual absl::Status Destroy(TimedEventRef event) = 0;
  virtual absl::Status Destroy(GraphRef graph) = 0;
  virtual absl::Status Destroy(DeviceSpan memory) = 0;
  virtual absl::Status Destroy(PinnedSpan memory) = 0;
};

/// Logs and counts a destroy that failed; destructors cannot return it.
void ReportDestroyFailure(const Device& device, const absl::Status& status);
/// Destroys that failed in this process so far.
uint64_t DestroyFailureCount();

template <class View>
Owned<View>::~Owned() {
  if (device_ == nullptr || !view_) return;
  if (absl::Status status = device_->Destroy(view_); !status.ok()) ReportDestroyFailure(*device_, status);
}

}  // namespace sluice::gpu
