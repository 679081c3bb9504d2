// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: recordings are bounded, one at a time, and end when they should. Method: one thread records, another stops it.
#include "server/execution/trace_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/thread.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

TraceRecorder::ModelNames NoNames() { return {}; }

TEST(TraceRecorder, RefusesWhatIsOutOfBounds) {
  const MonotonicClock clock;
  gpu::Timeline timeline(8, clock);
  TraceRecorder recorder(clock);
  recorder.AddDevice("host:0", timeline);
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Milliseconds(9), absl::Seconds(61), absl::InfiniteDuration()}) {
    EXPECT_THAT(recorder.Record(duration, NoNames),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0.01 to 60")));
  }
}

TEST(TraceRecorder, RefusesWithoutRoom) {
  const MonotonicClock clock;
  gpu::Timeline timeline(0, clock);
  TraceRecorder recorder(clock);
  recorder.AddDevice("host:0", timeline);
  EXPECT_THAT(recorder.Record(absl::Seconds(1), NoNames),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--trace-records")));
}

TEST(TraceRecorder, RecordsOneAtATimeUntilStopped) {
  const MonotonicClock clock;
  gpu::Timeline timeline(8, clock);
  TraceRecorder recorder(clock);
  recorder.AddDevice("host:0", timeline);
  absl::StatusOr<std::string> recorded = absl::UnknownError("not yet");
  Thread thread("recorder", [&] { recorded = recorder.Record(absl::Seconds(60), NoNames); });
  while (!recorder.recording()) std::this_thread::yield();
  EXPECT_THAT(recorder.Record(absl::Seconds(1), NoNames),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("one at a time")));
  gpu::TimelineRecord record;
  record.request = 77;
  timeline.Add(record);
  recorder.Stop();
  thread.Join();
  ASSERT_OK(recorded);
  EXPECT_THAT(*recorded, HasSubstr("\"request\":77"));
  EXPECT_FALSE(timeline.recording());
  EXPECT_THAT(recorder.Record(absl::Seconds(1), NoNames),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting")));
}

TEST(TraceRecorder, EndsByItself) {
  const MonotonicClock clock;
  gpu::Timeline timeline(8, clock);
  TraceRecorder recorder(clock);
  recorder.AddDevice("host:0", timeline);
  const Time start = clock.Now();
  EXPECT_OK(recorder.Record(TraceRecorder::kShortest, NoNames));
  EXPECT_GE(clock.Now() - start, TraceRecorder::kShortest);
  EXPECT_OK(recorder.Record(TraceRecorder::kShortest, NoNames));  // And again.
}

}  // namespace
}  // namespace sluice::server
