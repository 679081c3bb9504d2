// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What a lost device answers. Only the faulty decorator can lose a device on purpose, so only its binary has this
// suite.
#include <latch>

#include "base/thread.h"
#include "tests/conformance/device_suite.h"
#include "tests/support/faulty_device.h"

namespace sluice::gpu::conformance {
namespace {

class LostSuite : public DeviceTest {
 protected:
  FaultyDevice& faulty() { return static_cast<FaultyDevice&>(device()); }
};

// Goal: once lost, every call says UNAVAILABLE and lost() stays true. Method: lose it, then call everything.
TEST_F(LostSuite, EveryCallIsUnavailable) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  TimedEvent timed = MakeTimedEvent();
  StagedBuffer buffer = MakeBuffer(64);
  EXPECT_OK(device().BeginCapture(stream));
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  EXPECT_OK(device().Record(stream, event));
  const KernelArgs args = Args({buffer.device});
  const Kernel& fill = fill_kernel(16, 1.0f);
  faulty().Lose();
  EXPECT_TRUE(device().lost());
  const auto unavailable = StatusIs(absl::StatusCode::kUnavailable);
  EXPECT_THAT(device().CreateStream(StreamPriority::kHigh), unavailable);
  EXPECT_THAT(device().ThreadStream(), unavailable);
  EXPECT_THAT(device().ReadPriority(stream), unavailable);
  EXPECT_THAT(device().CreateEvent(WaitMode::kSpin), unavailable);
  EXPECT_THAT(device().CreateTimedEvent(), unavailable);
  EXPECT_THAT(device().AllocateDevice(64), unavailable);
  EXPECT_THAT(device().AllocatePinned(64), unavailable);
  EXPECT_THAT(device().CopyToDevice(stream, buffer.pinned, buffer.device), unavailable);
  EXPECT_THAT(device().CopyToHost(stream, buffer.device, buffer.pinned), unavailable);
  EXPECT_THAT(device().Launch(stream, fill, args), unavailable);
  EXPECT_THAT(device().LaunchGraph(stream, graph), unavailable);
  EXPECT_THAT(device().Record(stream, event), unavailable);
  EXPECT_THAT(device().Record(stream, timed), unavailable);
  EXPECT_THAT(device().Wait(stream, event), unavailable);
  EXPECT_THAT(device().Query(event), unavailable);
  EXPECT_THAT(device().Synchronize(event), unavailable);
  EXPECT_THAT(device().Synchronize(timed), unavailable);
  EXPECT_THAT(device().Synchronize(stream), unavailable);
  EXPECT_THAT(device().Elapsed(timed, timed), unavailable);
  EXPECT_THAT(device().BeginCapture(stream), unavailable);
  EXPECT_THAT(device().EndCapture(stream), unavailable);
  EXPECT_TRUE(device().lost());
}

// Goal: who waits when the device is lost is let go. Method: a thread waits for an event that never completes.
TEST_F(LostSuite, WaitersAreLetGo) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  EXPECT_OK(device().Record(stream, event));
  faulty().WithholdCompletion(true);
  EXPECT_THAT(device().Query(event), IsOkAndHolds(false));
  std::latch waiting(1);
  Thread thread("waiter", [&] {
    waiting.count_down();
    EXPECT_THAT(device().Synchronize(event), StatusIs(absl::StatusCode::kUnavailable));
  });
  waiting.wait();
  faulty().Lose();
}

}  // namespace
}  // namespace sluice::gpu::conformance
