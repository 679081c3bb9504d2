// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_device.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/cuda/math_libraries.h"
#include "gpu/cuda/nvtx_range.h"

namespace sluice::gpu::cuda {

/// What handles point to. A capture is begun and ended by one thread; others only read `capturing` and then the thread.
struct CudaStream {
  cudaStream_t stream = nullptr;
  std::thread::id bound_thread;  ///< Of a per-thread stream; no thread for others.
  std::atomic<bool> capturing = false;
  std::thread::id capture_thread;
  cudnnContext* cudnn = nullptr;  ///< Made when first needed, before a capture; only this stream uses it.
};

struct CudaEvent {
  cudaEvent_t event = nullptr;
  bool spin = false;
  std::atomic<bool> recorded = false;
};

struct CudaGraph {
  cudaGraphExec_t graph = nullptr;
};

namespace {

CudaStream* ToStream(StreamRef view) { return static_cast<CudaStream*>(view.handle); }
template <class Tag>
CudaEvent* ToEvent(Ref<Tag> view) {
  return static_cast<CudaEvent*>(view.handle);
}
CudaGraph* ToGraph(GraphRef view) { return static_cast<CudaGraph*>(view.handle); }

absl::Status NullHandle(absl::string_view what) { return absl::InternalError(absl::StrCat("null ", what, " handle")); }

absl::Status NeverRecorded() { return absl::FailedPreconditionError("the event was never recorded"); }

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

/// As NVML and nvidia-smi write it.
std::string UuidText(const cudaUUID_t& uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  const auto part = [&hex](size_t first, size_t count) { return absl::string_view(hex).substr(first, count); };
  return absl::StrCat("GPU-", part(0, 8), "-", part(8, 4), "-", part(12, 4), "-", part(16, 4), "-", part(20, 12));
}

/// Which device this is; the first calls to CUDA, so the place where a missing driver or device shows.
absl::StatusOr<DeviceInfo> ReadInfo(int ordinal) {
  SLUICE_ASSIGN_OR_RETURN(const int count, CudaDevice::Count());
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no CUDA device ", ordinal, ": this machine has ", count));
  }
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
  cudaDeviceProp properties;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGetDeviceProperties(&properties, ordinal)));
  if (properties.canMapHostMemory == 0 || properties.unifiedAddressing == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", ordinal, " (", properties.name, ") cannot map host memory"));
  }
  int driver = 0;
  int runtime = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDriverGetVersion(&driver)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaRuntimeGetVersion(&runtime)));
  DeviceInfo info;
  info.backend = Backend::kCuda;
  info.name = absl::StrCat("cuda:", ordinal);
  info.description = absl::StrCat(properties.name, ", compute capability ", properties.major, ".", properties.minor,
                                  ", driver for CUDA ", VersionText(driver), ", runtime ", VersionText(runtime));
  info.uuid = UuidText(properties.uuid);
  info.unified_memory = false;
  info.total_bytes = properties.totalGlobalMem;
  return info;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, const Clock& clock, DeviceInfo info, const CudaDeviceOptions& options,
                       std::unique_ptr<TuningTable> tuning)
    : ordinal_(ordinal),
      info_(std::move(info)),
      memory_(ordinal, info_, options),
      library_(ordinal, std::move(tuning)),
      timer_(ordinal, clock, [this](const absl::Status& status) {
        Log(Severity::kError, "the device's clock can no longer be read", {{"error", status.ToString()}});
        static_cast<void>(Note(status));
      }) {}

absl::StatusOr<int> CudaDevice::Count() {
  int count = 0;
  if (absl::Status status = SLUICE_CUDA_STATUS(cudaGetDeviceCount(&count)); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("no CUDA device can be used here: ", status.message()));
  }
  if (count < 1) return absl::FailedPreconditionError("no CUDA device can be used here: the driver shows none");
  return count;
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Create(int ordinal, const Clock& clock,
                                                           const CudaDeviceOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(DeviceInfo info, ReadInfo(ordinal));
  SLUICE_ASSIGN_OR_RETURN(const std::string environment, TuningEnvironment(ordinal));
  SLUICE_ASSIGN_OR_RETURN(auto tuning, TuningTable::Read(options.tuning, environment));
  auto device =
      std::unique_ptr<CudaDevice>(new CudaDevice(ordinal, clock, std::move(info), options, std::move(tuning)));
  SLUICE_RETURN_IF_ERROR(device->CheckPriorities());
  SLUICE_RETURN_IF_ERROR(device->memory_.budget().Refresh());  // The context is there now, and shows as other.
  SLUICE_RETURN_IF_ERROR(device->timer_.Start());
  return absl::StatusOr<std::unique_ptr<Device>>(std::move(device));
}

CudaDevice::~CudaDevice() {
  MutexLock lock(mutex_);
  for (const std::unique_ptr<CudaStream>& stream : thread_streams_) {
    absl::Status status = SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_));
    status.Update(DestroyCudnn(stream->cudnn));
    if (!status.ok() && !lost()) ReportDestroyFailure(*this, status);
  }
  if (const int live = live_objects_.load(std::memory_order_relaxed); live != 0 && !lost()) {
    ReportDestroyFailure(*this, absl::InternalError(absl::StrCat("the device goes before ", live, " of its objects")));
  }
}

absl::Status CudaDevice::CheckPriorities() {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&low_priority_, &high_priority_)));
  // CUDA clamps silently, so only what is read back counts.
  SLUICE_ASSIGN_OR_RETURN(const Stream low, CreateStream(StreamPriority::kLow));
  SLUICE_ASSIGN_OR_RETURN(const Stream normal, CreateStream(StreamPriority::kDefault));
  SLUICE_ASSIGN_OR_RETURN(const Stream high, CreateStream(StreamPriority::kHigh));
  SLUICE_ASSIGN_OR_RETURN(const int low_number, ReadPriority(low));
  SLUICE_ASSIGN_OR_RETURN(const int normal_number, ReadPriority(normal));
  SLUICE_ASSIGN_OR_RETURN(const int high_number, ReadPriority(high));
  if (high_number < normal_number && normal_number <= low_number) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(info_.name, " has no priority above the default: high is ",
                                                    high_number, ", default ", normal_number, ", low ", low_number));
}

absl::Status CudaDevice::Note(absl::Status status) {
  if (MeansDeviceLost(status) && !lost_.exchange(true, std::memory_order_acq_rel)) {
    Log(Severity::kError, "CUDA device lost",
        {{"device", info_.name}, {"uuid", info_.uuid}, {"error", status.ToString()}});
  }
  return status;
}

absl::Status CudaDevice::Enter() {
  if (lost()) return absl::UnavailableError(absl::StrCat(info_.name, " is lost"));
  return Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
}

absl::Status CudaDevice::Enter(const CudaStream* stream) {
  SLUICE_RETURN_IF_ERROR(Enter());
  if (stream == nullptr) return NullHandle("stream");
  const std::thread::id self = std::this_thread::get_id();
  if (stream->bound_thread != std::thread::id() && stream->bound_thread != self) {
    return absl::InternalError("a per-thread stream was used by another thread");
  }
  if (stream->capturing.load(std::memory_order_acquire) && stream->capture_thread != self) {
    return absl::InternalError("a stream that one thread captures was used by another thread");
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::EnterOutsideCapture(const CudaStream* stream) {
  SLUICE_RETURN_IF_ERROR(Enter(stream));
  if (!stream->capturing.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError("not possible on a stream that is being captured");
}

absl::StatusOr<Stream> CudaDevice::CreateStream(StreamPriority priority) {
  SLUICE_RETURN_IF_ERROR(Enter());
  int number = 0;
  if (priority == StreamPriority::kLow) number = low_priority_;
  if (priority == StreamPriority::kHigh) number = high_priority_;
  auto stream = std::make_unique<CudaStream>();
  SLUICE_RETURN_IF_ERROR(
      Note(SLUICE_CUDA_STATUS(cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, number))));
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  return Stream(this, StreamRef{stream.release()});
}

absl::StatusOr<StreamRef> CudaDevice::ThreadStream() {
  SLUICE_RETURN_IF_ERROR(Enter());
  const std::thread::id self = std::this_thread::get_id();
  MutexLock lock(mutex_);
  for (const std::unique_ptr<CudaStream>& stream : thread_streams_) {
    if (stream->bound_thread == self) return StreamRef{stream.get()};
  }
  if (thread_streams_.size() == kMaxThreadStreams) {
    return absl::ResourceExhaustedError(
        absl::StrCat(info_.name, " has its ", kMaxThreadStreams, " per-thread streams"));
  }
  auto stream = std::make_unique<CudaStream>();
  stream->stream = cudaStreamPerThread;  // Means the stream of whichever thread uses it: hence the check in Enter.
  stream->bound_thread = self;
  thread_streams_.push_back(std::move(stream));
  return StreamRef{thread_streams_.back().get()};
}

absl::StatusOr<int> CudaDevice::ReadPriority(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(Enter(ToStream(stream)));
  int number = 0;
  SLUICE_RETURN_IF_ERROR(Note(SLUICE_CUDA_STATUS(cudaStreamGetPriority(ToStream(stream)->stream, &number))));
  return number;
}

absl::StatusOr<CudaEvent*> CudaDevice::MakeEvent(unsigned flags, bool spin) {
  SLUICE_RETURN_IF_ERROR(Enter());
  auto event = std::make_unique<CudaEvent>();
  event->spin = spin;
  SLUICE_RETURN_IF_ERROR(Note(SLUICE_CUDA_STATUS(cudaEventCreateWithFlags(&event->event, flags))));
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  return event.release();
}

absl::StatusOr<Event> CudaDevice::CreateEvent(WaitMode mode) {
  const bool spin = mode == WaitMode::kSpin;
  SLUICE_ASSIGN_OR_RETURN(CudaEvent * event,
                          MakeEvent(cudaEventDisableTiming | (spin ? 0 : cudaEventBlockingSync), spin));
  return Event(this, EventRef{event});
}

absl::StatusOr<TimedEvent> CudaDevice::CreateTimedEvent() {
  SLUICE_ASSIGN_OR_RETURN(CudaEvent * event, MakeEvent(cudaEventBlockingSync, false));
  return TimedEvent(this, TimedEventRef{event});
}

absl::StatusOr<DeviceBuffer> CudaDevice::AllocateDevice(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(Enter());
  absl::StatusOr<DeviceSpan> span = memory_.AllocateDevice(size_bytes, kind);
  SLUICE_RETURN_IF_ERROR(Note(span.status()));
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  return DeviceBuffer(this, *span);
}

absl::StatusOr<PinnedBuffer> CudaDevice::AllocatePinned(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(Enter());
  absl::StatusOr<PinnedSpan> span = memory_.AllocatePinned(size_bytes, kind);
  SLUICE_RETURN_IF_ERROR(Note(span.status()));
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  return PinnedBuffer(this, *span);
}

absl::Status CudaDevice::Copy(CudaStream* stream, const std::byte* source, std::byte* destination, bool same_bytes,
                              size_t source_bytes, size_t destination_bytes) {
  SLUICE_RETURN_IF_ERROR(Enter(stream));
  if (source == nullptr || destination == nullptr) return NullHandle("memory");
  if (source_bytes != destination_bytes) {
    return absl::InternalError(
        absl::StrCat("copy of ", source_bytes, " bytes into a span of ", destination_bytes, " bytes"));
  }
  if (same_bytes || source_bytes == 0) return absl::OkStatus();
  // Default: a device span may be the mapped side of pinned memory, and the addresses say which it is.
  return Note(
      SLUICE_CUDA_STATUS(cudaMemcpyAsync(destination, source, source_bytes, cudaMemcpyDefault, stream->stream)));
}

absl::Status CudaDevice::CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) {
  const NvtxRange range("copy to device");
  return Copy(ToStream(stream), source.data, destination.data, source.device_data == destination.data,
              source.size_bytes, destination.size_bytes);
}

absl::Status CudaDevice::CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) {
  const NvtxRange range("copy to host");
  return Copy(ToStream(stream), source.data, destination.data, source.data == destination.device_data,
              source.size_bytes, destination.size_bytes);
}

absl::Status CudaDevice::Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) {
  SLUICE_RETURN_IF_ERROR(Enter(ToStream(stream)));
  if (kernel.backend() != Backend::kCuda) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " was prepared for another backend"));
  }
  if (args.workspace.size_bytes < kernel.workspace_bytes()) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " needs ", kernel.workspace_bytes(),
                                            " bytes of workspace and got ", args.workspace.size_bytes));
  }
  for (const DeviceSpan& span : args.spans) {
    if (!span && span.size_bytes > 0) return NullHandle("memory");
  }
  const NvtxRange range(kernel.name().c_str());
  if (kernel.capture_only()) return Note(SubmitCudnn(ToStream(stream), static_cast<const CudnnKernel&>(kernel), args));
  return Note(static_cast<const CudaKernel&>(kernel).Submit(ToStream(stream)->stream, args));
}

absl::Status CudaDevice::EnsureCudnn(CudaStream* stream) {
  if (stream->cudnn != nullptr) return absl::OkStatus();
  if (stream->capturing.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("the capture began before the first cuDNN kernel was prepared");
  }
  SLUICE_ASSIGN_OR_RETURN(stream->cudnn, MakeCudnn(stream->stream));
  return absl::OkStatus();
}

absl::Status CudaDevice::SubmitCudnn(CudaStream* stream, const CudnnKernel& kernel, const KernelArgs& args) {
  if (stream->bound_thread != std::thread::id() && !stream->capturing.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError(
        absl::StrCat("kernel ", kernel.name(), " must be captured before a per-thread stream may run it"));
  }
  SLUICE_RETURN_IF_ERROR(EnsureCudnn(stream));
  // What cuDNN allocates or loads at its first call would spoil the capture otherwise.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaThreadExchangeStreamCaptureMode(&mode)));
  absl::Status status = kernel.SubmitTo({stream->stream, stream->cudnn}, args);
  status.Update(SLUICE_CUDA_STATUS(cudaThreadExchangeStreamCaptureMode(&mode)));
  return status;
}

absl::Status CudaDevice::LaunchGraph(StreamRef stream, GraphRef graph) {
  SLUICE_RETURN_IF_ERROR(EnterOutsideCapture(ToStream(stream)));
  if (!graph) return NullHandle("graph");
  const NvtxRange range("graph");
  return Note(SLUICE_CUDA_STATUS(cudaGraphLaunch(ToGraph(graph)->graph, ToStream(stream)->stream)));
}

absl::Status CudaDevice::RecordEvent(CudaStream* stream, CudaEvent* event) {
  SLUICE_RETURN_IF_ERROR(EnterOutsideCapture(stream));
  if (event == nullptr) return NullHandle("event");
  SLUICE_RETURN_IF_ERROR(Note(SLUICE_CUDA_STATUS(cudaEventRecord(event->event, stream->stream))));
  event->recorded.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status CudaDevice::Record(StreamRef stream, EventRef event) {
  return RecordEvent(ToStream(stream), ToEvent(event));
}

absl::Status CudaDevice::Record(StreamRef stream, TimedEventRef event) {
  return RecordEvent(ToStream(stream), ToEvent(event));
}

absl::Status CudaDevice::Wait(StreamRef stream, EventRef event) {
  SLUICE_RETURN_IF_ERROR(EnterOutsideCapture(ToStream(stream)));
  if (!event) return NullHandle("event");
  if (!ToEvent(event)->recorded.load(std::memory_order_acquire)) return NeverRecorded();
  return Note(SLUICE_CUDA_STATUS(cudaStreamWaitEvent(ToStream(stream)->stream, ToEvent(event)->event, 0)));
}

absl::StatusOr<bool> CudaDevice::Query(EventRef event) {
  SLUICE_RETURN_IF_ERROR(Enter());
  if (!event) return NullHandle("event");
  if (!ToEvent(event)->recorded.load(std::memory_order_acquire)) return NeverRecorded();
  const cudaError_t answer = cudaEventQuery(ToEvent(event)->event);
  if (answer == cudaErrorNotReady) return false;
  SLUICE_RETURN_IF_ERROR(Note(CudaStatus(answer, "cudaEventQuery", __FILE__, __LINE__)));
  return true;
}

absl::Status CudaDevice::AwaitEvent(const CudaEvent* event) {
  SLUICE_RETURN_IF_ERROR(Enter());
  if (event == nullptr) return NullHandle("event");
  if (!event->recorded.load(std::memory_order_acquire)) return NeverRecorded();
  cudaError_t answer = cudaErrorNotReady;
  if (event->spin) {
    // The runtime's own choice between spinning and yielding depends on the number of processors; the caller's mode
    // does not. A lost device ends the loop with its error.
    while (answer == cudaErrorNotReady) answer = cudaEventQuery(event->event);
  } else {
    answer = cudaEventSynchronize(event->event);
  }
  return Note(CudaStatus(answer, "waiting for an event", __FILE__, __LINE__));
}

absl::Status CudaDevice::Synchronize(EventRef event) { return AwaitEvent(ToEvent(event)); }

absl::Status CudaDevice::Synchronize(TimedEventRef event) { return AwaitEvent(ToEvent(event)); }

absl::Status CudaDevice::Synchronize(StreamRef stream) {
  SLUICE_RETURN_IF_ERROR(EnterOutsideCapture(ToStream(stream)));
  return Note(SLUICE_CUDA_STATUS(cudaStreamSynchronize(ToStream(stream)->stream)));
}

absl::StatusOr<absl::Duration> CudaDevice::Elapsed(TimedEventRef start, TimedEventRef end) {
  SLUICE_RETURN_IF_ERROR(Enter());
  if (!start || !end) return NullHandle("timed event");
  for (const CudaEvent* event : {ToEvent(start), ToEvent(end)}) {
    if (!event->recorded.load(std::memory_order_acquire)) return NeverRecorded();
  }
  float milliseconds = 0;
  const cudaError_t answer = cudaEventElapsedTime(&milliseconds, ToEvent(start)->event, ToEvent(end)->event);
  if (answer == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return absl::FailedPreconditionError("the timed event has not completed");
  }
  SLUICE_RETURN_IF_ERROR(Note(CudaStatus(answer, "cudaEventElapsedTime", __FILE__, __LINE__)));
  return absl::Nanoseconds(std::llround(double{milliseconds} * 1e6));
}

absl::Status CudaDevice::BeginCapture(StreamRef view) {
  CudaStream* stream = ToStream(view);
  SLUICE_RETURN_IF_ERROR(Enter(stream));
  if (stream->capturing.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("the stream is being captured already");
  }
  if (library_.uses_cudnn()) SLUICE_RETURN_IF_ERROR(Note(EnsureCudnn(stream)));
  // Thread-local: loading a model on one thread must not disturb the calls of others.
  SLUICE_RETURN_IF_ERROR(
      Note(SLUICE_CUDA_STATUS(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal))));
  stream->capture_thread = std::this_thread::get_id();
  stream->capturing.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<Graph> CudaDevice::EndCapture(StreamRef view) {
  CudaStream* stream = ToStream(view);
  SLUICE_RETURN_IF_ERROR(Enter(stream));
  if (!stream->capturing.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("the stream is not being captured");
  }
  stream->capturing.store(false, std::memory_order_release);
  cudaGraph_t captured = nullptr;
  SLUICE_RETURN_IF_ERROR(Note(SLUICE_CUDA_STATUS(cudaStreamEndCapture(stream->stream, &captured))));
  auto graph = std::make_unique<CudaGraph>();
  // No flags: with the use-node-priority flag a graph would keep the priority of the stream that captured it.
  absl::Status made = Note(SLUICE_CUDA_STATUS(cudaGraphInstantiate(&graph->graph, captured, 0)));
  absl::Status freed = Note(SLUICE_CUDA_STATUS(cudaGraphDestroy(captured)));
  SLUICE_RETURN_IF_ERROR(made);
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  const cudaGraphExec_t executable = graph->graph;
  Graph owner(this, GraphRef{graph.release()});
  SLUICE_RETURN_IF_ERROR(freed);
  // The first launch would do this otherwise, on a request's path.
  SLUICE_RETURN_IF_ERROR(Note(SLUICE_CUDA_STATUS(cudaGraphUpload(executable, stream->stream))));
  return owner;
}

absl::Status CudaDevice::Destroy(StreamRef view) {
  if (!view) return NullHandle("stream");
  CudaStream* stream = ToStream(view);
  if (stream->bound_thread != std::thread::id()) {
    return absl::InternalError("a per-thread stream belongs to the device and cannot be destroyed");
  }
  absl::Status status = Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  if (status.ok() && stream->capturing.load(std::memory_order_acquire)) {
    cudaGraph_t captured = nullptr;
    status.Update(Note(SLUICE_CUDA_STATUS(cudaStreamEndCapture(stream->stream, &captured))));
    if (captured != nullptr) status.Update(Note(SLUICE_CUDA_STATUS(cudaGraphDestroy(captured))));
  }
  status.Update(Note(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream->stream))));
  status.Update(DestroyCudnn(stream->cudnn));
  status.Update(Note(SLUICE_CUDA_STATUS(cudaStreamDestroy(stream->stream))));
  delete stream;
  live_objects_.fetch_sub(1, std::memory_order_relaxed);
  return IgnoreIfLost(status);
}

absl::Status CudaDevice::DestroyEvent(CudaEvent* event) {
  if (event == nullptr) return NullHandle("event");
  absl::Status status = Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  status.Update(Note(SLUICE_CUDA_STATUS(cudaEventDestroy(event->event))));  // Work in flight keeps what it needs.
  delete event;
  live_objects_.fetch_sub(1, std::memory_order_relaxed);
  return IgnoreIfLost(status);
}

absl::Status CudaDevice::Destroy(EventRef event) { return DestroyEvent(ToEvent(event)); }

absl::Status CudaDevice::Destroy(TimedEventRef event) { return DestroyEvent(ToEvent(event)); }

absl::Status CudaDevice::Destroy(GraphRef graph) {
  if (!graph) return NullHandle("graph");
  absl::Status status = Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  // A graph in flight is freed by CUDA when it is over.
  status.Update(Note(SLUICE_CUDA_STATUS(cudaGraphExecDestroy(ToGraph(graph)->graph))));
  delete ToGraph(graph);
  live_objects_.fetch_sub(1, std::memory_order_relaxed);
  return IgnoreIfLost(status);
}

absl::Status CudaDevice::Destroy(DeviceSpan memory) {
  if (!memory) return NullHandle("memory");
  absl::Status status = Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  status.Update(Note(memory_.Free(memory)));
  if (status.ok() || lost()) live_objects_.fetch_sub(1, std::memory_order_relaxed);
  return IgnoreIfLost(status);
}

absl::Status CudaDevice::Destroy(PinnedSpan memory) {
  if (!memory) return NullHandle("memory");
  absl::Status status = Note(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal_)));
  status.Update(Note(memory_.Free(memory)));
  if (status.ok() || lost()) live_objects_.fetch_sub(1, std::memory_order_relaxed);
  return IgnoreIfLost(status);
}

}  // namespace sluice::gpu::cuda
