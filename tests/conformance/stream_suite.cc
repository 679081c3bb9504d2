// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Streams: order, independence, priority, per-thread streams, and what is refused.
#include <thread>
#include <utility>

#include "base/thread.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {
namespace {

class StreamSuite : public DeviceTest {};

constexpr Backend Other(Backend backend) { return backend == Backend::kHost ? Backend::kCuda : Backend::kHost; }

// Goal: a device says what it is. Method: look at the fields that flags and metrics use.
TEST_F(StreamSuite, InfoIsFilledIn) {
  const DeviceInfo& info = device().info();
  EXPECT_THAT(info.name, ::testing::ContainsRegex(info.backend == Backend::kHost ? "^host:[0-9]+$" : "^cuda:[0-9]+$"));
  EXPECT_FALSE(info.description.empty());
  EXPECT_GT(info.total_bytes, 0u);
  EXPECT_FALSE(device().lost());
}

// Goal: work of one stream runs in the order of issue. Method: twenty stamps with delays between; they must ascend.
TEST_F(StreamSuite, RunsInOrder) {
  constexpr size_t kCount = 20;
  Stream stream = MakeStream();
  Stamps stamps = MakeStamps(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    Stamp(stream, stamps, i);
    Delay(stream, absl::Microseconds(20));
  }
  Finish(stream);
  ASSERT_NE(stamps.value(0), 0u);
  for (size_t i = 1; i < kCount; ++i) EXPECT_GT(stamps.value(i), stamps.value(i - 1)) << i;
}

// Goal: a result is there for the next kernel of the stream. Method: a chain of additions, each on the one before.
TEST_F(StreamSuite, KernelsSeeEarlierResults) {
  constexpr int64_t kCount = 1000;
  constexpr int kSteps = 50;
  Stream stream = MakeStream();
  StagedBuffer sum = MakeBuffer(kCount * sizeof(float));
  StagedBuffer one = MakeBuffer(kCount * sizeof(float));
  EXPECT_OK(device().Launch(stream, fill_kernel(kCount, 0.0f), Args({sum.device})));
  EXPECT_OK(device().Launch(stream, fill_kernel(kCount, 1.0f), Args({one.device})));
  const KernelArgs args = Args({sum.device, one.device, sum.device});
  for (int i = 0; i < kSteps; ++i) EXPECT_OK(device().Launch(stream, add_kernel(kCount), args));
  Download(stream, sum);
  Finish(stream);
  EXPECT_THAT(sum.floats(), ::testing::Each(static_cast<float>(kSteps)));
}

// Goal: a stream that waits holds up no other stream. Method: `blocked` waits for a long low-priority stream; a stamp
// issued later to a free stream must come before `blocked`'s. Judged only when the slow stream was still at work after
// the issue (this thread may lose its processor; then try again with longer work).
TEST_F(StreamSuite, WaitingStreamHoldsUpNoOther) {
  Stream slow = MakeStream(StreamPriority::kLow);
  Stream blocked = MakeStream();
  Stream free_stream = MakeStream(StreamPriority::kHigh);
  Event half = MakeEvent();
  Event slow_done = MakeEvent();
  Stamps stamps = MakeStamps(2);
  bool judged = false;
  for (absl::Duration each = absl::Microseconds(200); each < absl::Milliseconds(100) && !judged; each *= 4) {
    Delay(slow, each, 5);
    EXPECT_OK(device().Record(slow, half));
    Delay(slow, each, 5);
    EXPECT_OK(device().Record(slow, slow_done));
    EXPECT_OK(device().Wait(blocked, slow_done));
    Stamp(blocked, stamps, 0);
    Stamp(free_stream, stamps, 1);
    ASSERT_OK_AND_ASSIGN(const bool too_late, device().Query(half));
    Finish(blocked);
    Finish(free_stream);
    if (too_late) continue;
    judged = true;
    EXPECT_NE(stamps.value(1), 0u);
    EXPECT_LT(stamps.value(1), stamps.value(0));
  }
  EXPECT_TRUE(judged) << "the device was always faster than this thread";
}

// Goal: a high-priority stream overtakes queued work of a low one. Method: fill the low stream, then issue one stamp to
// the high one; judged by the order of stamps, and only when half of the low work was still queued after the issue
// (this thread may lose its processor; then try again with more work).
TEST_F(StreamSuite, HighPriorityOvertakes) {
  Stream low = MakeStream(StreamPriority::kLow);
  Stream high = MakeStream(StreamPriority::kHigh);
  Event half = MakeEvent();
  Stamps stamps = MakeStamps(2);
  bool judged = false;
  for (absl::Duration each = absl::Microseconds(200); each < absl::Milliseconds(100) && !judged; each *= 4) {
    stamps.Clear();
    Stamp(high, stamps, 1);  // Whatever the first launch of a kernel costs is paid here.
    Finish(high);
    // Few enough launches for the shortest queue of a backend, so that this thread does not wait in the middle.
    Delay(low, each, 6);
    EXPECT_OK(device().Record(low, half));
    Delay(low, each, 6);
    Stamp(low, stamps, 0);
    Stamp(high, stamps, 1);
    ASSERT_OK_AND_ASSIGN(const bool too_late, device().Query(half));
    Finish(low);
    Finish(high);
    if (too_late) continue;
    judged = true;
    EXPECT_LT(stamps.value(1), stamps.value(0));
  }
  EXPECT_TRUE(judged) << "the device was always faster than this thread";
}

// Goal: priorities are what the device says they are, not what was asked for. Method: read them back.
TEST_F(StreamSuite, PrioritiesReadBack) {
  Stream low = MakeStream(StreamPriority::kLow);
  Stream normal = MakeStream(StreamPriority::kDefault);
  Stream high = MakeStream(StreamPriority::kHigh);
  ASSERT_OK_AND_ASSIGN(const int low_number, device().ReadPriority(low));
  ASSERT_OK_AND_ASSIGN(const int normal_number, device().ReadPriority(normal));
  ASSERT_OK_AND_ASSIGN(const int high_number, device().ReadPriority(high));
  EXPECT_LT(high_number, normal_number);
  EXPECT_LE(normal_number, low_number);
  ASSERT_OK_AND_ASSIGN(const StreamRef own, device().ThreadStream());
  EXPECT_THAT(device().ReadPriority(own), IsOkAndHolds(normal_number));
}

// Goal: a thread always gets the same stream of its own, and it works. Method: ask twice, run work on it.
TEST_F(StreamSuite, ThreadStreamIsStable) {
  ASSERT_OK_AND_ASSIGN(const StreamRef first, device().ThreadStream());
  ASSERT_OK_AND_ASSIGN(const StreamRef second, device().ThreadStream());
  EXPECT_EQ(first, second);
  Stamps stamps = MakeStamps(2);
  Stamp(first, stamps, 0);
  Delay(first, absl::Microseconds(50));
  Stamp(second, stamps, 1);
  Finish(first);
  EXPECT_NE(stamps.value(0), 0u);
  EXPECT_LT(stamps.value(0), stamps.value(1));
}

// Goal: threads that live at the same time have different streams. Method: two views, taken while both threads live.
TEST_F(StreamSuite, ThreadStreamsDiffer) {
  ASSERT_OK_AND_ASSIGN(const StreamRef own, device().ThreadStream());
  StreamRef other;
  Thread thread("other", [&] {
    absl::StatusOr<StreamRef> stream = device().ThreadStream();
    EXPECT_OK(stream);
    if (!stream.ok()) return;
    other = *stream;
    EXPECT_OK(device().Synchronize(other));
  });
  thread.Join();
  EXPECT_TRUE(other);
  EXPECT_NE(own, other);
}

// Goal: a per-thread stream handed to another thread is refused, in every build. Method: use this thread's in another.
TEST_F(StreamSuite, ThreadStreamOfAnotherThreadIsRefused) {
  ASSERT_OK_AND_ASSIGN(const StreamRef own, device().ThreadStream());
  Stamps stamps = MakeStamps(1);
  const Kernel& stamp = stamp_kernel();
  Event event = MakeEvent();
  Thread thread("other", [&] {
    EXPECT_THAT(device().Launch(own, stamp, stamps.args(0)), StatusIs(absl::StatusCode::kInternal));
    EXPECT_THAT(device().Record(own, event), StatusIs(absl::StatusCode::kInternal));
    EXPECT_THAT(device().Synchronize(own), StatusIs(absl::StatusCode::kInternal));
  });
  thread.Join();
  Finish(own);
  EXPECT_EQ(stamps.value(0), 0u);
}

// Goal: nobody can destroy a per-thread stream. Method: try, then use it.
TEST_F(StreamSuite, ThreadStreamCannotBeDestroyed) {
  ASSERT_OK_AND_ASSIGN(const StreamRef own, device().ThreadStream());
  EXPECT_THAT(device().Destroy(own), StatusIs(absl::StatusCode::kInternal));
  Stamps stamps = MakeStamps(1);
  Stamp(own, stamps, 0);
  Finish(own);
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: null handles are our bug and come back as a status, not as a crash. Method: pass one in every place.
TEST_F(StreamSuite, NullHandlesAreInternalErrors) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  TimedEvent timed = MakeTimedEvent();
  StagedBuffer buffer = MakeBuffer(64);
  const auto internal = StatusIs(absl::StatusCode::kInternal);
  EXPECT_THAT(device().Launch(StreamRef(), stamp_kernel(), Args({buffer.device})), internal);
  EXPECT_THAT(device().Launch(stream, fill_kernel(16, 1.0f), Args({DeviceSpan{nullptr, 64}})), internal);
  EXPECT_THAT(device().LaunchGraph(stream, GraphRef()), internal);
  EXPECT_THAT(device().CopyToDevice(StreamRef(), buffer.pinned, buffer.device), internal);
  EXPECT_THAT(device().CopyToDevice(stream, PinnedSpan(), buffer.device), internal);
  EXPECT_THAT(device().CopyToHost(stream, DeviceSpan(), buffer.pinned), internal);
  EXPECT_THAT(device().Record(StreamRef(), event), internal);
  EXPECT_THAT(device().Record(stream, EventRef()), internal);
  EXPECT_THAT(device().Record(stream, TimedEventRef()), internal);
  EXPECT_THAT(device().Wait(stream, EventRef()), internal);
  EXPECT_THAT(device().Query(EventRef()), internal);
  EXPECT_THAT(device().Synchronize(EventRef()), internal);
  EXPECT_THAT(device().Synchronize(TimedEventRef()), internal);
  EXPECT_THAT(device().Synchronize(StreamRef()), internal);
  EXPECT_THAT(device().Elapsed(timed, TimedEventRef()), internal);
  EXPECT_THAT(device().ReadPriority(StreamRef()), internal);
  EXPECT_THAT(device().BeginCapture(StreamRef()), internal);
  EXPECT_THAT(device().EndCapture(StreamRef()), internal);
  EXPECT_FALSE(device().lost());
  Finish(stream);
}

// Goal: a kernel of another backend, or one without its workspace, is refused before it does harm. Method: a kernel
// that could not run at all.
TEST_F(StreamSuite, WrongKernelsAreRefused) {
  Stream stream = MakeStream();
  const UnlaunchableKernel foreign(Other(device().info().backend), 0);
  EXPECT_THAT(device().Launch(stream, foreign, {}), StatusIs(absl::StatusCode::kInternal));
  const UnlaunchableKernel hungry(device().info().backend, 4096);
  EXPECT_THAT(device().Launch(stream, hungry, {}), StatusIs(absl::StatusCode::kInternal));
  Finish(stream);
}

// Goal: more work than any queue holds makes the issuer wait and loses nothing. Method: 3,000 additions of one.
TEST_F(StreamSuite, LongQueuesLoseNothing) {
  constexpr int kLaunches = 3000;
  Stream stream = MakeStream();
  StagedBuffer sum = MakeBuffer(sizeof(float));
  StagedBuffer one = MakeBuffer(sizeof(float));
  one.floats()[0] = 1.0f;
  Upload(stream, sum);
  Upload(stream, one);
  const KernelArgs args = Args({sum.device, one.device, sum.device});
  for (int i = 0; i < kLaunches; ++i) ASSERT_OK(device().Launch(stream, add_kernel(1), args));
  Download(stream, sum);
  Finish(stream);
  EXPECT_EQ(sum.floats()[0], static_cast<float>(kLaunches));
}

// Goal: destroying a stream waits for what was issued to it. Method: the last stamp is there after the destroy.
TEST_F(StreamSuite, DestroyWaitsForOutstandingWork) {
  Stamps stamps = MakeStamps(1);
  {
    Stream stream = MakeStream();
    Delay(stream, absl::Milliseconds(5));
    Stamp(stream, stamps, 0);
  }
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: streams can be made and destroyed without end. Method: many more than may live at once, each used.
TEST_F(StreamSuite, CreateAndDestroyLeaksNothing) {
  Stamps stamps = MakeStamps(1);
  for (int i = 0; i < 300; ++i) {
    absl::StatusOr<Stream> stream = device().CreateStream(i % 2 == 0 ? StreamPriority::kHigh : StreamPriority::kLow);
    ASSERT_OK(stream) << i;
    Stamp(*stream, stamps, 0);
  }
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: a stamp is a time of the process's clock. Method: it lies between the clock before and after, within the
// backend's stated accuracy.
TEST_F(StreamSuite, StampsConvertToTheProcessClock) {
  Stream stream = MakeStream();
  Stamps stamps = MakeStamps(1);
  const absl::Duration tolerance = Settings().backend.stamp_tolerance;
  for (int i = 0; i < 10; ++i) {
    const Time before = clock().Now();
    Stamp(stream, stamps, 0);
    Finish(stream);
    const Time after = clock().Now();
    const Time stamp = device().StampToTime(stamps.value(0));
    EXPECT_GE(stamp - before, -tolerance);
    EXPECT_LE(stamp - after, tolerance);
  }
}

}  // namespace
}  // namespace sluice::gpu::conformance
