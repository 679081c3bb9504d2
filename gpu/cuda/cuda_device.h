// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "gpu/cuda/cuda_clock.h"
#include "gpu/cuda/cuda_device_options.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_memory.h"
#include "gpu/device.h"

namespace sluice::gpu::cuda {

struct CudaStream;
struct CudaEvent;
struct CudaGraph;
class CudnnKernel;

/// One NVIDIA GPU through the CUDA runtime. Purpose: gpu::Device as it says, on the primary context. Explicit streams
/// are non-blocking; per-thread streams are cudaStreamPerThread behind a view that knows its thread; nothing touches
/// the legacy default stream. Bounds: kMaxThreadStreams threads; the driver bounds the queues. Ownership: handles point
/// to small structs of this class. Threads: any; each call makes the device current on its thread. Errors:
/// cuda_status.h; the first sticky error loses the device, after which every call but Destroy is UNAVAILABLE.
class CudaDevice final : public Device {
 public:
  static constexpr size_t kMaxThreadStreams = 64;

  /// How many there are, at least 1; FAILED_PRECONDITION when none can be used.
  static absl::StatusOr<int> Count();
  static absl::StatusOr<std::unique_ptr<Device>> Create(int ordinal, const Clock& clock,
                                                        const CudaDeviceOptions& options);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  bool lost() const override { return lost_.load(std::memory_order_acquire); }
  KernelLibrary& kernels() override { return library_; }
  MemoryBudget& memory() override { return memory_.budget(); }
  MemoryBudget& pinned_memory() override { return memory_.pinned_budget(); }

  absl::StatusOr<Stream> CreateStream(StreamPriority priority) override;
  absl::StatusOr<StreamRef> ThreadStream() override;
  absl::StatusOr<int> ReadPriority(StreamRef stream) override;
  absl::StatusOr<Event> CreateEvent(WaitMode mode) override;
  absl::StatusOr<TimedEvent> CreateTimedEvent() override;
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
  Time StampToTime(uint64_t stamp) const override { return timer_.ToTime(stamp); }

  absl::Status BeginCapture(StreamRef stream) override;
  absl::StatusOr<Graph> EndCapture(StreamRef stream) override;

  absl::Status Destroy(StreamRef stream) override;
  absl::Status Destroy(EventRef event) override;
  absl::Status Destroy(TimedEventRef event) override;
  absl::Status Destroy(GraphRef graph) override;
  absl::Status Destroy(DeviceSpan memory) override;
  absl::Status Destroy(PinnedSpan memory) override;

 private:
  CudaDevice(int ordinal, const Clock& clock, DeviceInfo info, const CudaDeviceOptions& options,
             std::unique_ptr<TuningTable> tuning);

  /// Creates one stream of each priority and compares what the driver made of them.
  absl::Status CheckPriorities();
  /// Marks the device lost when `status` says so; returns it.
  absl::Status Note(absl::Status status);
  /// UNAVAILABLE when lost; otherwise the device is current on this thread afterwards.
  absl::Status Enter();
  /// Enter, and INTERNAL unless this thread may use `stream`.
  absl::Status Enter(const CudaStream* stream);
  absl::Status EnterOutsideCapture(const CudaStream* stream);
  /// Gives `stream` a cuDNN handle unless it has one. Not while it is being captured.
  absl::Status EnsureCudnn(CudaStream* stream);
  absl::Status SubmitCudnn(CudaStream* stream, const CudnnKernel& kernel, const KernelArgs& args);
  absl::StatusOr<CudaEvent*> MakeEvent(unsigned flags, bool spin);
  absl::Status RecordEvent(CudaStream* stream, CudaEvent* event);
  absl::Status AwaitEvent(const CudaEvent* event);
  absl::Status Copy(CudaStream* stream, const std::byte* source, std::byte* destination, bool same_bytes,
                    size_t source_bytes, size_t destination_bytes);
  absl::Status DestroyEvent(CudaEvent* event);
  /// After a loss every destroy fails in CUDA, and the process is about to end: that is no news.
  absl::Status IgnoreIfLost(absl::Status status) const { return lost() ? absl::OkStatus() : status; }

  const int ordinal_;
  const DeviceInfo info_;
  CudaMemory memory_;
  int low_priority_ = 0;
  int high_priority_ = 0;
  CudaKernelLibrary library_;
  std::atomic<bool> lost_ = false;
  std::atomic<int> live_objects_ = 0;  ///< For the check in the destructor.

  Mutex mutex_;
  std::vector<std::unique_ptr<CudaStream>> thread_streams_ ABSL_GUARDED_BY(mutex_);

  CudaClock timer_;  ///< Last: its thread uses the device.
};

}  // namespace sluice::gpu::cuda
