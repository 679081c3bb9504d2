// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Events: completion, waiting between streams, recording again, and time.
#include <vector>

#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {
namespace {

class EventSuite : public DeviceTest {};

// Goal: an event completes after the work before it and says so. Method: a stamp, a record, a wait; the stamp is there.
TEST_F(EventSuite, CompletesAfterEarlierWork) {
  for (const WaitMode mode : {WaitMode::kSpin, WaitMode::kBlock}) {
    Stream stream = MakeStream();
    Event event = MakeEvent(mode);
    Stamps stamps = MakeStamps(1);
    Delay(stream, absl::Milliseconds(2));
    Stamp(stream, stamps, 0);
    EXPECT_OK(device().Record(stream, event));
    EXPECT_OK(device().Synchronize(event));
    EXPECT_NE(stamps.value(0), 0u);
    EXPECT_THAT(device().Query(event), IsOkAndHolds(true));
  }
}

// Goal: Query answers "no" while work runs, and never blocks. Method: query behind long work until one "no" is seen, or
// the attempts show that this thread is always too late.
TEST_F(EventSuite, QuerySeesUnfinishedWork) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  bool seen = false;
  for (absl::Duration delay = absl::Milliseconds(1); delay < absl::Seconds(1) && !seen; delay *= 4) {
    Delay(stream, delay);
    EXPECT_OK(device().Record(stream, event));
    ASSERT_OK_AND_ASSIGN(const bool done, device().Query(event));
    seen = !done;
    EXPECT_OK(device().Synchronize(event));
    EXPECT_THAT(device().Query(event), IsOkAndHolds(true));
  }
  EXPECT_TRUE(seen);
}

// Goal: a record on an idle stream completes. Method: no work at all.
TEST_F(EventSuite, CompletesOnIdleStream) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  EXPECT_OK(device().Record(stream, event));
  EXPECT_OK(device().Synchronize(event));
  EXPECT_THAT(device().Query(event), IsOkAndHolds(true));
}

// Goal: waiting for nothing is an error, where hardware would silently not wait. Method: every use of a fresh event.
TEST_F(EventSuite, NeverRecordedIsRefused) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  TimedEvent timed = MakeTimedEvent();
  TimedEvent recorded = MakeTimedEvent();
  EXPECT_OK(device().Record(stream, recorded));
  EXPECT_OK(device().Synchronize(recorded));
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device().Wait(stream, event), refused);
  EXPECT_THAT(device().Query(event), refused);
  EXPECT_THAT(device().Synchronize(event), refused);
  EXPECT_THAT(device().Synchronize(timed), refused);
  EXPECT_THAT(device().Elapsed(recorded, timed), refused);
  EXPECT_THAT(device().Elapsed(timed, recorded), refused);
  Finish(stream);
}

// Goal: an event that was recorded again means the later record. Method: wait for it; the later stamp is there.
TEST_F(EventSuite, RecordAgainMeansTheLatest) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  Stamps stamps = MakeStamps(2);
  Stamp(stream, stamps, 0);
  EXPECT_OK(device().Record(stream, event));
  EXPECT_OK(device().Synchronize(event));
  Delay(stream, absl::Milliseconds(3));
  Stamp(stream, stamps, 1);
  EXPECT_OK(device().Record(stream, event));
  EXPECT_OK(device().Synchronize(event));
  EXPECT_NE(stamps.value(1), 0u);
}

// Goal: Wait means the record that was the latest when it was called. Method: record, wait in another stream, then
// record again behind long work; the waiting stream goes on before that work is over.
TEST_F(EventSuite, WaitTakesTheRecordOfItsCall) {
  Stream first = MakeStream(StreamPriority::kLow);
  Stream second = MakeStream(StreamPriority::kHigh);
  Event event = MakeEvent();
  Stamps stamps = MakeStamps(2);
  Delay(first, absl::Milliseconds(1));
  EXPECT_OK(device().Record(first, event));
  EXPECT_OK(device().Wait(second, event));
  Stamp(second, stamps, 0);
  Delay(first, absl::Milliseconds(2), 4);
  Stamp(first, stamps, 1);
  EXPECT_OK(device().Record(first, event));
  Finish(second);
  Finish(first);
  EXPECT_NE(stamps.value(0), 0u);
  EXPECT_LT(stamps.value(0), stamps.value(1));
}

// Goal: an event moved to another stream no longer speaks of the first. Method: record behind long work, then again on
// an idle stream; the wait must not take as long as the first stream's work, which its stamp shows.
TEST_F(EventSuite, RecordInAnotherStreamReplaces) {
  Stream busy = MakeStream(StreamPriority::kLow);
  Stream idle = MakeStream(StreamPriority::kHigh);
  Event event = MakeEvent();
  Event busy_done = MakeEvent();
  bool judged = false;
  for (absl::Duration delay = absl::Milliseconds(2); delay < absl::Seconds(1) && !judged; delay *= 4) {
    Delay(busy, delay);
    EXPECT_OK(device().Record(busy, event));
    EXPECT_OK(device().Record(busy, busy_done));
    EXPECT_OK(device().Record(idle, event));
    EXPECT_OK(device().Synchronize(event));
    ASSERT_OK_AND_ASSIGN(const bool too_late, device().Query(busy_done));
    judged = !too_late;
    Finish(busy);
  }
  EXPECT_TRUE(judged) << "the wait was for the first record, or this thread always too slow";
}

// Goal: one stream can wait for several. Method: four streams of different length; the fifth's stamp is the last.
TEST_F(EventSuite, JoinsFourStreams) {
  constexpr size_t kStreams = 4;
  std::vector<Stream> streams;
  std::vector<Event> events;
  Stamps stamps = MakeStamps(kStreams + 1);
  Stream joined = MakeStream(StreamPriority::kHigh);
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(MakeStream());
    events.push_back(MakeEvent());
    Delay(streams[i], absl::Milliseconds(1) * (kStreams - i));
    Stamp(streams[i], stamps, i);
    EXPECT_OK(device().Record(streams[i], events[i]));
    EXPECT_OK(device().Wait(joined, events[i]));
  }
  Stamp(joined, stamps, kStreams);
  Finish(joined);
  for (size_t i = 0; i < kStreams; ++i) {
    EXPECT_NE(stamps.value(i), 0u) << i;
    EXPECT_LT(stamps.value(i), stamps.value(kStreams)) << i;
  }
}

// Goal: data crosses streams over an event. Method: one stream fills, another adds to it, a third copies out; repeated.
TEST_F(EventSuite, DataFollowsEvents) {
  constexpr int64_t kCount = 4099;
  Stream filling = MakeStream();
  Stream adding = MakeStream();
  Stream copying = MakeStream();
  Event filled = MakeEvent();
  Event added = MakeEvent();
  Event copied = MakeEvent();
  StagedBuffer buffer = MakeBuffer(kCount * sizeof(float));
  const KernelArgs fill = Args({buffer.device});
  const KernelArgs add = Args({buffer.device, buffer.device, buffer.device});
  for (int i = 1; i <= 20; ++i) {
    const float value = static_cast<float>(i % 2 + 1);
    EXPECT_OK(device().Launch(filling, fill_kernel(kCount, value), fill));
    EXPECT_OK(device().Record(filling, filled));
    EXPECT_OK(device().Wait(adding, filled));
    EXPECT_OK(device().Launch(adding, add_kernel(kCount), add));
    EXPECT_OK(device().Record(adding, added));
    EXPECT_OK(device().Wait(copying, added));
    Download(copying, buffer);
    EXPECT_OK(device().Record(copying, copied));
    EXPECT_OK(device().Wait(filling, copied));
    EXPECT_OK(device().Synchronize(copied));
    ASSERT_THAT(buffer.floats(), ::testing::Each(2 * value)) << i;
  }
}

// Goal: waiting for what is over costs nothing and blocks nothing. Method: wait, in its own stream and in another.
TEST_F(EventSuite, WaitForCompletedEvent) {
  Stream first = MakeStream();
  Stream second = MakeStream();
  Event event = MakeEvent();
  Stamps stamps = MakeStamps(2);
  EXPECT_OK(device().Record(first, event));
  EXPECT_OK(device().Synchronize(event));
  EXPECT_OK(device().Wait(first, event));
  EXPECT_OK(device().Wait(second, event));
  Stamp(first, stamps, 0);
  Stamp(second, stamps, 1);
  Finish(first);
  Finish(second);
  EXPECT_NE(stamps.value(0), 0u);
  EXPECT_NE(stamps.value(1), 0u);
}

// Goal: an event outlives the stream it was recorded in. Method: destroy the stream, then query and wait.
TEST_F(EventSuite, OutlivesItsStream) {
  Event event = MakeEvent();
  {
    Stream stream = MakeStream();
    Delay(stream, absl::Milliseconds(1));
    EXPECT_OK(device().Record(stream, event));
  }
  Stream other = MakeStream();
  EXPECT_THAT(device().Query(event), IsOkAndHolds(true));
  EXPECT_OK(device().Wait(other, event));
  EXPECT_OK(device().Synchronize(event));
  Finish(other);
}

// Goal: timed events measure the work between them. Method: a delay of known length lies between two records; the
// device's clocks may differ by 5 per cent.
TEST_F(EventSuite, TimedEventsMeasureWork) {
  constexpr absl::Duration kDelay = absl::Milliseconds(3);
  Stream stream = MakeStream();
  TimedEvent start = MakeTimedEvent();
  TimedEvent end = MakeTimedEvent();
  EXPECT_OK(device().Record(stream, start));
  Delay(stream, kDelay);
  EXPECT_OK(device().Record(stream, end));
  EXPECT_OK(device().Synchronize(end));
  ASSERT_OK_AND_ASSIGN(const absl::Duration elapsed, device().Elapsed(start, end));
  EXPECT_GE(elapsed, kDelay * 0.95);
  EXPECT_LT(elapsed, absl::Seconds(60));
}

// Goal: times of one stream never go backwards, and the order of the arguments is start, end. Method: five records.
TEST_F(EventSuite, TimedEventsAreMonotone) {
  constexpr size_t kCount = 5;
  Stream stream = MakeStream();
  std::vector<TimedEvent> events;
  for (size_t i = 0; i < kCount; ++i) {
    events.push_back(MakeTimedEvent());
    EXPECT_OK(device().Record(stream, events[i]));
    Delay(stream, absl::Microseconds(200));
  }
  Finish(stream);
  for (size_t i = 1; i < kCount; ++i) {
    ASSERT_OK_AND_ASSIGN(const absl::Duration forward, device().Elapsed(events[i - 1], events[i]));
    ASSERT_OK_AND_ASSIGN(const absl::Duration backward, device().Elapsed(events[i], events[i - 1]));
    EXPECT_GT(forward, absl::ZeroDuration());
    EXPECT_EQ(backward, -forward);
  }
}

// Goal: no time is made up for a record that has not been reached. Method: ask behind long work.
TEST_F(EventSuite, ElapsedOfUnfinishedIsRefused) {
  Stream stream = MakeStream();
  TimedEvent start = MakeTimedEvent();
  TimedEvent end = MakeTimedEvent();
  bool seen = false;
  for (absl::Duration delay = absl::Milliseconds(1); delay < absl::Seconds(1) && !seen; delay *= 4) {
    EXPECT_OK(device().Record(stream, start));
    Delay(stream, delay);
    EXPECT_OK(device().Record(stream, end));
    const absl::StatusOr<absl::Duration> elapsed = device().Elapsed(start, end);
    seen = !elapsed.ok();
    if (seen) {
      EXPECT_THAT(elapsed, StatusIs(absl::StatusCode::kFailedPrecondition));
    }
    EXPECT_OK(device().Synchronize(end));
    EXPECT_OK(device().Elapsed(start, end));
  }
  EXPECT_TRUE(seen);
}

// Goal: a timed event that is recorded again has the later time. Method: a delay lies between the two records.
TEST_F(EventSuite, TimedEventRecordedAgain) {
  Stream stream = MakeStream();
  TimedEvent start = MakeTimedEvent();
  TimedEvent event = MakeTimedEvent();
  EXPECT_OK(device().Record(stream, start));
  EXPECT_OK(device().Record(stream, event));
  Delay(stream, absl::Milliseconds(2));
  EXPECT_OK(device().Record(stream, event));
  Finish(stream);
  ASSERT_OK_AND_ASSIGN(const absl::Duration elapsed, device().Elapsed(start, event));
  EXPECT_GE(elapsed, absl::Milliseconds(2) * 0.95);
}

// Goal: destroying events that work still refers to is safe. Method: destroy them behind a delay; the work goes on.
TEST_F(EventSuite, DestroyWithOutstandingWork) {
  Stream first = MakeStream();
  Stream second = MakeStream();
  Stamps stamps = MakeStamps(1);
  Delay(first, absl::Milliseconds(3));
  {
    Event event = MakeEvent();
    TimedEvent timed = MakeTimedEvent();
    EXPECT_OK(device().Record(first, event));
    EXPECT_OK(device().Record(first, timed));
    EXPECT_OK(device().Wait(second, event));
  }
  Stamp(second, stamps, 0);
  Finish(second);
  Finish(first);
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: events can be made and destroyed without end. Method: a thousand of each, all used.
TEST_F(EventSuite, CreateAndDestroyLeaksNothing) {
  Stream stream = MakeStream();
  for (int i = 0; i < 1000; ++i) {
    absl::StatusOr<Event> event = device().CreateEvent(i % 2 == 0 ? WaitMode::kSpin : WaitMode::kBlock);
    absl::StatusOr<TimedEvent> timed = device().CreateTimedEvent();
    ASSERT_OK(event);
    ASSERT_OK(timed);
    ASSERT_OK(device().Record(stream, *event));
    ASSERT_OK(device().Record(stream, *timed));
  }
  Finish(stream);
}

}  // namespace
}  // namespace sluice::gpu::conformance
