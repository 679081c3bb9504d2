// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "gpu/gate.h"
#include "tests/support/fake_clock.h"

namespace sluice::gpu {
namespace {

/// A record all of whose fields follow from `number`, so that a mixture of two is seen.
TimelineRecord Numbered(uint64_t number) {
  TimelineRecord record;
  record.start = Time::FromNanoseconds(static_cast<int64_t>(1000 + number));
  record.end = Time::FromNanoseconds(static_cast<int64_t>(2000 + 3 * number));
  record.request = number;
  record.model = number * 5;
  record.track = ~number;
  record.predicted = absl::Nanoseconds(number * 7);
  record.measured = absl::Nanoseconds(number * 11);
  record.amount = number * 13;
  record.index = static_cast<uint32_t>(number * 17);
  record.kind = static_cast<SpanKind>(number % 12);
  record.request_class = static_cast<RequestClass>(number % 3);
  record.clock = static_cast<SpanClock>(number % 4);
  record.status = static_cast<absl::StatusCode>(number % 17);
  return record;
}

TEST(Timeline, IsOffUntilStarted) {
  // Goal: nothing is kept while off, before and after. Method: add around a recording.
  const FakeClock clock;
  Timeline timeline(8, clock);
  timeline.Add(Numbered(1));
  EXPECT_FALSE(timeline.recording());
  timeline.Start();
  EXPECT_TRUE(timeline.recording());
  EXPECT_EQ(timeline.started(), clock.Now());
  timeline.Add(Numbered(2));
  timeline.Stop();
  timeline.Add(Numbered(3));
  const TimelineSnapshot snapshot = timeline.Read();
  EXPECT_THAT(snapshot.records, ::testing::ElementsAre(Numbered(2)));
  EXPECT_EQ(snapshot.lost_count, 0u);
  EXPECT_EQ(snapshot.started, clock.Now());
}

TEST(Timeline, EveryFieldComesBack) {
  // Goal: packing loses nothing. Method: numbers that differ in every field, the largest among them.
  const FakeClock clock;
  Timeline timeline(64, clock);
  timeline.Start();
  std::vector<TimelineRecord> added;
  for (uint64_t i = 0; i < 60; ++i) added.push_back(Numbered(i));
  TimelineRecord extreme;
  extreme.start = Time::Infinite();
  extreme.end = Time::FromNanoseconds(-1);
  extreme.request = extreme.model = extreme.track = extreme.amount = ~uint64_t{0};
  extreme.index = ~uint32_t{0};
  added.push_back(extreme);
  for (const TimelineRecord& record : added) timeline.Add(record);
  EXPECT_EQ(timeline.Read().records, added);
}

TEST(Timeline, KeepsTheNewestAndCountsWhatWasLost) {
  // Goal: a ring. Method: more than its capacity, which is rounded up; then a second recording.
  const FakeClock clock;
  Timeline timeline(5, clock);
  EXPECT_EQ(timeline.capacity(), 8u);
  timeline.Start();
  for (uint64_t i = 0; i < 20; ++i) timeline.Add(Numbered(i));
  TimelineSnapshot snapshot = timeline.Read();
  ASSERT_EQ(snapshot.records.size(), 8u);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(snapshot.records[i], Numbered(12 + i));
  EXPECT_EQ(snapshot.lost_count, 12u);
  timeline.Stop();
  timeline.Start();
  EXPECT_TRUE(timeline.Read().records.empty());
  timeline.Add(Numbered(100));
  snapshot = timeline.Read();
  EXPECT_THAT(snapshot.records, ::testing::ElementsAre(Numbered(100)));
  EXPECT_EQ(snapshot.lost_count, 0u);
}

TEST(Timeline, WithoutRoomItNeverRecords) {
  // Goal: --trace-records=0. Method: start and add.
  const FakeClock clock;
  Timeline timeline(0, clock);
  timeline.Start();
  EXPECT_FALSE(timeline.recording());
  timeline.Add(Numbered(1));
  EXPECT_TRUE(timeline.Read().records.empty());
}

TEST(Timeline, ManyThreadsLoseOnlyWhatIsCounted) {
  // Goal: whatever threads do at once, a record read is one that was added, and those read and lost are all. Method:
  // writers overtake each other in a tiny ring while a reader reads; numbers say which record it is.
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 20000;
  const FakeClock clock;
  Timeline timeline(16, clock);
  timeline.Start();
  std::atomic<uint64_t> running = kThreads;
  {
    std::vector<Thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back("writer", [&, t] {
        for (uint64_t i = 0; i < kEach; ++i) timeline.Add(Numbered(t * kEach + i));
        running.fetch_sub(1);
      });
    }
    do {
      const TimelineSnapshot snapshot = timeline.Read();
      for (const TimelineRecord& record : snapshot.records) ASSERT_EQ(record, Numbered(record.request));
    } while (running.load() > 0);
  }
  const TimelineSnapshot snapshot = timeline.Read();
  EXPECT_LE(snapshot.records.size(), 16u);
  EXPECT_EQ(snapshot.records.size() + snapshot.lost_count, kThreads * kEach);
  for (const TimelineRecord& record : snapshot.records) EXPECT_EQ(record, Numbered(record.request));
}

class GateTimelineTest : public ::testing::Test {
 protected:
  GateTimelineTest() { gate_.SetTimeline(&timeline_); }
  Time Later(absl::Duration duration) {
    clock_.Advance(duration);
    return clock_.Now();
  }

  FakeClock clock_;
  Timeline timeline_{64, clock_};
  Gate gate_{GateOptions{}};
};

TEST_F(GateTimelineTest, ClosedFromTheFirstEntryToTheLastRelease) {
  // Goal: one span however many overlap. Method: two tokens and an empty one, entering and leaving in turn.
  timeline_.Start();
  const GateToken first = gate_.Announce(clock_.Now(), clock_.Now());
  const GateToken second = gate_.Announce(clock_.Now(), clock_.Now());
  const Time closed = Later(absl::Microseconds(10));
  gate_.EnterDevice(first);
  Later(absl::Microseconds(10));
  gate_.EnterDevice(second);
  Later(absl::Microseconds(10));
  gate_.Release(first, true);
  gate_.EnterDevice({});
  Later(absl::Microseconds(10));
  gate_.Release(second, true);
  const Time opened = Later(absl::Microseconds(10));
  gate_.Release({}, true);
  Later(absl::Microseconds(10));
  const std::vector<TimelineRecord> records = timeline_.Read().records;
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, SpanKind::kGateClosed);
  EXPECT_EQ(records[0].start, closed);
  EXPECT_EQ(records[0].end, opened);
}

TEST_F(GateTimelineTest, WhatWasClosedBeforeTheRecordingIsLeftOut) {
  // Goal: no span whose beginning nobody saw, also not one of an earlier recording. Method: start and stop in between.
  timeline_.Start();
  GateToken token = gate_.Announce(clock_.Now(), clock_.Now());
  gate_.EnterDevice(token);
  timeline_.Stop();
  Later(absl::Microseconds(10));
  timeline_.Start();
  gate_.Release(token, true);
  EXPECT_TRUE(timeline_.Read().records.empty());
  token = gate_.Announce(clock_.Now(), clock_.Now());
  gate_.EnterDevice(token);
  Later(absl::Microseconds(10));
  gate_.Release(token, true);
  EXPECT_EQ(timeline_.Read().records.size(), 1u);
}

}  // namespace
}  // namespace sluice::gpu
