// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A caller of the bare device, written as all code here should be: owners, and every status returned. The sweeps show
// that this style is enough for "nothing leaks, nothing hangs, the next run works".
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/stamp.h"
#include "tests/fault/fault_sweep.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

constexpr int64_t kCount = 257;
constexpr size_t kBytes = kCount * sizeof(float);

struct Resources {
  // Ordinary memory that launches use, so it goes last.
  std::unique_ptr<Kernel> add_kernel, stamp_kernel;
  std::vector<DeviceSpan> add_spans, stamp_spans;
  Stream main, side;
  Event ready, done;
  TimedEvent start, end;
  PinnedBuffer pinned;
  DeviceBuffer memory;
  PinnedBuffer stamp;
  Graph graph;
};

absl::Status Make(FaultyDevice& device, Resources& made) {
  BinaryDescription add;
  add.kind = BinaryKind::kAdd;
  add.a = add.b = {kCount};
  SLUICE_ASSIGN_OR_RETURN(made.add_kernel, PrepareBinary(device, add));
  SLUICE_ASSIGN_OR_RETURN(made.stamp_kernel, PrepareStamp(device));
  SLUICE_ASSIGN_OR_RETURN(made.main, device.CreateStream(StreamPriority::kHigh));
  SLUICE_ASSIGN_OR_RETURN(made.side, device.CreateStream(StreamPriority::kLow));
  SLUICE_ASSIGN_OR_RETURN(made.ready, device.CreateEvent(WaitMode::kBlock));
  SLUICE_ASSIGN_OR_RETURN(made.done, device.CreateEvent(WaitMode::kSpin));
  SLUICE_ASSIGN_OR_RETURN(made.start, device.CreateTimedEvent());
  SLUICE_ASSIGN_OR_RETURN(made.end, device.CreateTimedEvent());
  SLUICE_ASSIGN_OR_RETURN(made.pinned, device.AllocatePinned(kBytes));
  SLUICE_ASSIGN_OR_RETURN(made.memory, device.AllocateDevice(kBytes));
  SLUICE_ASSIGN_OR_RETURN(made.stamp, device.AllocatePinned(sizeof(uint64_t)));
  made.add_spans = {made.memory, made.memory, made.memory};
  made.stamp_spans = {made.stamp.view().device_span()};
  SLUICE_RETURN_IF_ERROR(device.BeginCapture(made.main));
  SLUICE_RETURN_IF_ERROR(device.Launch(made.main, *made.add_kernel, {.spans = made.add_spans, .workspace = {}}));
  SLUICE_ASSIGN_OR_RETURN(made.graph, device.EndCapture(made.main));
  return absl::OkStatus();
}

absl::Status Run(FaultyDevice& device, const Resources& made) {
  const auto values = reinterpret_cast<float*>(made.pinned.view().data);
  for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  SLUICE_ASSIGN_OR_RETURN(const StreamRef own, device.ThreadStream());
  SLUICE_RETURN_IF_ERROR(device.Record(made.side, made.start));
  SLUICE_RETURN_IF_ERROR(device.CopyToDevice(made.side, made.pinned, made.memory));
  SLUICE_RETURN_IF_ERROR(device.Record(made.side, made.ready));
  SLUICE_RETURN_IF_ERROR(device.Wait(made.main, made.ready));
  SLUICE_RETURN_IF_ERROR(device.LaunchGraph(made.main, made.graph));
  SLUICE_RETURN_IF_ERROR(device.Launch(made.main, *made.add_kernel, {.spans = made.add_spans, .workspace = {}}));
  SLUICE_RETURN_IF_ERROR(device.CopyToHost(made.main, made.memory, made.pinned));
  SLUICE_RETURN_IF_ERROR(device.Record(made.main, made.end));
  SLUICE_RETURN_IF_ERROR(device.Record(made.main, made.done));
  SLUICE_RETURN_IF_ERROR(device.Wait(own, made.done));
  SLUICE_RETURN_IF_ERROR(device.Launch(own, *made.stamp_kernel, {.spans = made.stamp_spans, .workspace = {}}));
  SLUICE_RETURN_IF_ERROR(device.Synchronize(own));
  SLUICE_RETURN_IF_ERROR(device.Synchronize(made.end));
  SLUICE_RETURN_IF_ERROR(device.Synchronize(made.done));
  SLUICE_ASSIGN_OR_RETURN(const bool done, device.Query(made.done));
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration elapsed, device.Elapsed(made.start, made.end));
  if (!done || elapsed < absl::ZeroDuration()) return absl::UnknownError("events do not agree");
  for (int64_t i = 0; i < kCount; ++i) {
    if (values[i] != 4.0f * static_cast<float>(i)) return absl::UnknownError(absl::StrCat("wrong value at ", i));
  }
  return absl::OkStatus();
}

absl::Status DeviceScenario(FaultyDevice& device) {
  Resources made;
  absl::Status status = Make(device, made);
  if (status.ok()) status = Run(device, made);
  // Streams go before the memory that their work may still use; destroying one waits.
  made.main = {};
  made.side = {};
  // Twice: the planned failure may be this very call, and the stream outlives this function.
  for (int attempt = 0; attempt < 2; ++attempt) {
    absl::StatusOr<StreamRef> own = device.ThreadStream();
    status.Update(own.ok() ? device.Synchronize(*own) : own.status());
  }
  return status;
}

// Goal: every failed call surfaces and leaves nothing behind. Method: the sweep, on both host devices.
TEST(DeviceFaultTest, EveryCallFails) {
  for (const HostKind kind : {HostKind::kUnified, HostKind::kCopiers}) SweepFailures(kind, DeviceScenario);
}

// Goal: the same for a device lost at any call.
TEST(DeviceFaultTest, LostAtEveryCall) {
  for (const HostKind kind : {HostKind::kUnified, HostKind::kCopiers}) SweepLosses(kind, DeviceScenario);
}

// Goal: the decorator counts and fails the method it is told. Method: only the second allocation fails.
TEST(DeviceFaultTest, FailsTheChosenMethod) {
  const MonotonicClock clock;
  const std::unique_ptr<FaultyDevice> device = MakeFaultyHost(HostKind::kUnified, clock);
  device->FailCall(2, absl::ResourceExhaustedError("planned"), DeviceMethod::kAllocateDevice);
  EXPECT_OK(device->CreateStream(StreamPriority::kLow));
  EXPECT_OK(device->AllocateDevice(64));
  EXPECT_OK(device->AllocatePinned(64));
  EXPECT_FALSE(device->fault_happened());
  EXPECT_THAT(device->AllocateDevice(64), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(device->fault_happened());
  EXPECT_OK(device->AllocateDevice(64));
  EXPECT_EQ(device->call_count(DeviceMethod::kAllocateDevice), 3);
  EXPECT_EQ(device->live_object_count(), 0);
}

// Goal: a failed destroy is counted, and destroys. Method: fail the first one.
TEST(DeviceFaultTest, FailedDestroyIsCounted) {
  const MonotonicClock clock;
  const std::unique_ptr<FaultyDevice> device = MakeFaultyHost(HostKind::kUnified, clock);
  const uint64_t before = DestroyFailureCount();
  device->FailCall(1, absl::InternalError("planned"), DeviceMethod::kDestroy);
  EXPECT_OK(device->AllocateDevice(64));
  EXPECT_EQ(DestroyFailureCount(), before + 1);
  EXPECT_EQ(device->live_object_count(), 0);
}

}  // namespace
}  // namespace sluice::gpu
