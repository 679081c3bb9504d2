// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/host/host_device.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/host/host_kernel.h"
#include "gpu/host/host_memory.h"
#include "gpu/host/host_streams.h"

namespace sluice::gpu {
namespace host {
namespace {

constexpr size_t kMaxQueueCapacity = size_t{1} << 20;
constexpr int kMaxThreads = 1024;

DeviceInfo MakeInfo(const HostDeviceOptions& options, size_t total_bytes) {
  DeviceInfo info;
  info.backend = Backend::kHost;
  info.name = absl::StrCat("host:", options.index);
  info.description =
      absl::StrCat("host processor, ", options.compute_thread_count, " compute thread(s) with a team of ",
                   options.threads, options.copiers ? ", two copiers" : "");
  info.unified_memory = !options.copiers;
  info.total_bytes = total_bytes;
  return info;
}

HostStream* ToStream(StreamRef view) { return static_cast<HostStream*>(view.handle); }
HostEvent* ToEvent(EventRef view) { return static_cast<HostEvent*>(view.handle); }
HostTimedEvent* ToTimedEvent(TimedEventRef view) { return static_cast<HostTimedEvent*>(view.handle); }
HostGraph* ToGraph(GraphRef view) { return static_cast<HostGraph*>(view.handle); }

absl::Status NullHandle(absl::string_view what) { return absl::InternalError(absl::StrCat("null ", what, " handle")); }

class HostDevice final : public Device {
 public:
  HostDevice(const HostDeviceOptions& options, const Clock& clock, std::unique_ptr<KernelLibrary> library)
      : library_(std::move(library)),
        memory_(options.memory_limit_bytes, absl::StrCat("host:", options.index), options.memory),
        info_(MakeInfo(options, memory_.limit_bytes())),
        streams_(options, clock) {}
  ~HostDevice() override;

  const DeviceInfo& info() const override { return info_; }
  bool lost() const override { return streams_.lost(); }
  KernelLibrary& kernels() override { return *library_; }
  MemoryBudget& memory() override { return memory_.budget(); }
  MemoryBudget& pinned_memory() override { return memory_.budget(); }

  absl::StatusOr<Stream> CreateStream(StreamPriority priority) override;
  absl::StatusOr<StreamRef> ThreadStream() override;
  absl::StatusOr<int> ReadPriority(StreamRef stream) override { return streams_.ReadPriority(ToStream(stream)); }
  absl::StatusOr<Event> CreateEvent(WaitMode mode) override;
  absl::StatusOr<TimedEvent> CreateTimedEvent() override;
  absl::StatusOr<DeviceBuffer> AllocateDevice(size_t size_bytes, MemoryKind kind) override;
  absl::StatusOr<PinnedBuffer> AllocatePinned(size_t size_bytes, MemoryKind kind) override;

  absl::Status CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) override;
  absl::Status CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) override;
  absl::Status Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) override;
  absl::Status LaunchGraph(StreamRef stream, GraphRef graph) override {
    return streams_.IssueGraph(ToStream(stream), ToGraph(graph));
  }
  absl::Status Record(StreamRef stream, EventRef event) override {
    return streams_.Record(ToStream(stream), ToEvent(event));
  }
  absl::Status Record(StreamRef stream, TimedEventRef event) override {
    return streams_.Record(ToStream(stream), ToTimedEvent(event));
  }
  absl::Status Wait(StreamRef stream, EventRef event) override {
    return streams_.Wait(ToStream(stream), ToEvent(event));
  }

  absl::StatusOr<bool> Query(EventRef event) override { return streams_.Query(ToEvent(event)); }
  absl::Status Synchronize(EventRef event) override { return streams_.Synchronize(ToEvent(event)); }
  absl::Status Synchronize(TimedEventRef event) override { return streams_.Synchronize(ToTimedEvent(event)); }
  absl::Status Synchronize(StreamRef stream) override { return streams_.Synchronize(ToStream(stream)); }
  absl::StatusOr<absl::Duration> Elapsed(TimedEventRef start, TimedEventRef end) override {
    return streams_.Elapsed(ToTimedEvent(start), ToTimedEvent(end));
  }
  Time StampToTime(uint64_t stamp) const override { return Time::FromNanoseconds(static_cast<int64_t>(stamp)); }

  absl::Status BeginCapture(StreamRef stream) override { return streams_.BeginCapture(ToStream(stream)); }
  absl::StatusOr<Graph> EndCapture(StreamRef stream) override;

  absl::Status Destroy(StreamRef stream) override { return streams_.Destroy(ToStream(stream)); }
  absl::Status Destroy(EventRef event) override;
  absl::Status Destroy(TimedEventRef event) override;
  absl::Status Destroy(GraphRef graph) override;
  absl::Status Destroy(DeviceSpan memory) override { return memory_.Free(memory.data, memory.size_bytes); }
  absl::Status Destroy(PinnedSpan memory) override { return memory_.Free(memory.data, memory.size_bytes); }

 private:
  absl::Status CheckAlive() const {
    return lost() ? absl::UnavailableError(absl::StrCat(info_.name, " is lost")) : absl::OkStatus();
  }
  absl::Status Copy(StreamRef stream, HostNode::Kind kind, const std::byte* source, std::byte* destination,
                    size_t source_bytes, size_t destination_bytes);

  const std::unique_ptr<KernelLibrary> library_;
  HostMemory memory_;
  const DeviceInfo info_;
  std::atomic<int> live_events_ = 0;  ///< Events, timed events and graphs; for the check in the destructor.
  HostStreams streams_;               ///< Last: its threads run kernels on memory_.
};

HostDevice::~HostDevice() {
  const int streams = streams_.live_stream_count();
  const int events = live_events_.load(std::memory_order_relaxed);
  const size_t allocations = memory_.allocation_count();
  if (streams == 0 && events == 0 && allocations == 0) return;
  ReportDestroyFailure(
      *this, absl::InternalError(absl::StrCat("the device goes before ", streams, " stream(s), ", events,
                                              " event(s) and graph(s), and ", allocations, " allocation(s)")));
}

absl::StatusOr<Stream> HostDevice::CreateStream(StreamPriority priority) {
  SLUICE_ASSIGN_OR_RETURN(HostStream * stream, streams_.Create(priority));
  return Stream(this, StreamRef{stream});
}

absl::StatusOr<StreamRef> HostDevice::ThreadStream() {
  SLUICE_ASSIGN_OR_RETURN(HostStream * stream, streams_.ThreadStream());
  return StreamRef{stream};
}

absl::StatusOr<Event> HostDevice::CreateEvent(WaitMode mode) {
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  live_events_.fetch_add(1, std::memory_order_relaxed);
  return Event(this, EventRef{new HostEvent(mode)});
}

absl::StatusOr<TimedEvent> HostDevice::CreateTimedEvent() {
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  live_events_.fetch_add(1, std::memory_order_relaxed);
  return TimedEvent(this, TimedEventRef{new HostTimedEvent()});
}

absl::StatusOr<DeviceBuffer> HostDevice::AllocateDevice(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  SLUICE_ASSIGN_OR_RETURN(std::byte * data, memory_.Allocate(size_bytes, kind));
  return DeviceBuffer(this, DeviceSpan{data, size_bytes});
}

absl::StatusOr<PinnedBuffer> HostDevice::AllocatePinned(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(CheckAlive());
  SLUICE_ASSIGN_OR_RETURN(std::byte * data, memory_.Allocate(size_bytes, kind));
  return PinnedBuffer(this, PinnedSpan{data, data, size_bytes});
}

absl::Status HostDevice::Copy(StreamRef stream, HostNode::Kind kind, const std::byte* source, std::byte* destination,
                              size_t source_bytes, size_t destination_bytes) {
  if (source == nullptr || destination == nullptr) return NullHandle("memory");
  if (source_bytes != destination_bytes) {
    return absl::InternalError(
        absl::StrCat("copy of ", source_bytes, " bytes into a span of ", destination_bytes, " bytes"));
  }
  HostNode node;
  node.kind = kind;
  node.source = source;
  node.destination = destination;
  // The same bytes seen from both sides: issued all the same, so that errors and order are those of every other copy.
  node.size_bytes = source == destination ? 0 : source_bytes;
  return streams_.Issue(ToStream(stream), node);
}

absl::Status HostDevice::CopyToDevice(StreamRef stream, PinnedSpan source, DeviceSpan destination) {
  return Copy(stream, HostNode::Kind::kCopyToDevice, source.data, destination.data, source.size_bytes,
              destination.size_bytes);
}

absl::Status HostDevice::CopyToHost(StreamRef stream, DeviceSpan source, PinnedSpan destination) {
  return Copy(stream, HostNode::Kind::kCopyToHost, source.data, destination.data, source.size_bytes,
              destination.size_bytes);
}

absl::Status HostDevice::Launch(StreamRef stream, const Kernel& kernel, const KernelArgs& args) {
  if (kernel.backend() != Backend::kHost) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " was prepared for another backend"));
  }
  if (args.workspace.size_bytes < kernel.workspace_bytes()) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " needs ", kernel.workspace_bytes(),
                                            " bytes of workspace and got ", args.workspace.size_bytes));
  }
  for (const DeviceSpan& span : args.spans) {
    if (!span && span.size_bytes > 0) return NullHandle("memory");
  }
  HostNode node;
  node.kind = HostNode::Kind::kKernel;
  node.kernel = static_cast<const HostKernel*>(&kernel);
  node.args = args;
  return streams_.Issue(ToStream(stream), node);
}

absl::StatusOr<Graph> HostDevice::EndCapture(StreamRef stream) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<HostGraph> graph, streams_.EndCapture(ToStream(stream)));
  live_events_.fetch_add(1, std::memory_order_relaxed);
  return Graph(this, GraphRef{graph.release()});
}

absl::Status HostDevice::Destroy(EventRef event) {
  if (!event) return NullHandle("event");
  live_events_.fetch_sub(1, std::memory_order_relaxed);
  delete ToEvent(event);  // Nothing queued refers to an event: a record is a position in its stream.
  return absl::OkStatus();
}

absl::Status HostDevice::Destroy(TimedEventRef event) {
  if (!event) return NullHandle("timed event");
  streams_.AwaitUnused(ToTimedEvent(event));
  live_events_.fetch_sub(1, std::memory_order_relaxed);
  delete ToTimedEvent(event);
  return absl::OkStatus();
}

absl::Status HostDevice::Destroy(GraphRef graph) {
  if (!graph) return NullHandle("graph");
  streams_.AwaitUnused(ToGraph(graph));
  live_events_.fetch_sub(1, std::memory_order_relaxed);
  delete ToGraph(graph);
  return absl::OkStatus();
}

}  // namespace
}  // namespace host

absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options, const Clock& clock,
                                                         std::unique_ptr<KernelLibrary> library) {
  if (library == nullptr || library->backend() != Backend::kHost) {
    return absl::InvalidArgumentError("a host device needs a library of host kernels");
  }
  if (options.index < 0 || options.threads < 1 || options.threads > host::kMaxThreads ||
      options.compute_thread_count < 1 || options.compute_thread_count > host::kMaxThreads) {
    return absl::InvalidArgumentError("host device: bad index or thread count");
  }
  if (options.compute_thread_count > 1 && options.threads > 1) {
    return absl::InvalidArgumentError("host device: several compute threads are possible only with teams of one");
  }
  if (options.queue_capacity < 1 || options.queue_capacity > host::kMaxQueueCapacity || options.max_streams < 1 ||
      options.max_thread_streams < 0) {
    return absl::InvalidArgumentError("host device: bad queue capacity or stream count");
  }
  return std::make_unique<host::HostDevice>(options, clock, std::move(library));
}

}  // namespace sluice::gpu
