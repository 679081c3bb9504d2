// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What lanes, launcher and gate put into a timeline, and where they say it lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "gpu/timeline.h"
#include "tests/unit/gpu/lane/lane_fixture.h"

namespace sluice::gpu {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, LaneTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Copies" : "Unified"; });

constexpr int64_t kChunksAndAHalf = (3 << 20) / 8;  // 1.5 chunks of floats

std::vector<TimelineRecord> OfKind(const std::vector<TimelineRecord>& records, SpanKind kind) {
  std::vector<TimelineRecord> chosen;
  std::copy_if(records.begin(), records.end(), std::back_inserter(chosen),
               [&](const TimelineRecord& record) { return record.kind == kind; });
  return chosen;
}

TEST_P(LaneTest, TimelineHasUnitsAndChunksOfEachStream) {
  // Goal: every unit and chunk is there once, in order, inside the time it was run in, and on its stream one after
  // another. Method: three executions of each class with real copies or none.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.elements = kChunksAndAHalf}));
  for (const RequestClass request_class : {RequestClass::kStandard, RequestClass::kBatch}) {
    SCOPED_TRACE(RequestClassName(request_class));
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
    timeline_.Start();
    const Time begin = clock_.Now();
    for (int i = 0; i < 3; ++i) ASSERT_OK(RunOnce(*slot, request_class, static_cast<float>(i)));
    const Time end = clock_.Now();
    timeline_.Stop();
    const TimelineSnapshot snapshot = timeline_.Read();
    EXPECT_EQ(snapshot.lost_count, 0u);
    const size_t chunks = GetParam() ? 6 : 0;  // two of each tensor
    EXPECT_EQ(OfKind(snapshot.records, SpanKind::kUnit).size(), 3 * slot->units.size());
    EXPECT_EQ(OfKind(snapshot.records, SpanKind::kChunkIn).size(), chunks);
    EXPECT_EQ(OfKind(snapshot.records, SpanKind::kChunkOut).size(), chunks);
    std::map<std::pair<uint64_t, SpanKind>, Time> last;
    std::map<SpanKind, std::set<uint32_t>> indices;
    for (const TimelineRecord& record : snapshot.records) {
      EXPECT_EQ(record.request_class, request_class);
      EXPECT_EQ(record.clock, SpanClock::kHost);
      EXPECT_GE(record.start, begin);
      EXPECT_LE(record.start, record.end);
      EXPECT_LE(record.end, end);
      Time& previous = last[{record.track, record.kind}];
      EXPECT_GE(record.start, previous);
      previous = record.end;
      indices[record.kind].insert(record.index);
      if (record.kind != SpanKind::kUnit) {
        EXPECT_GT(record.amount, 0u);
      }
    }
    EXPECT_EQ(indices[SpanKind::kUnit].size(), slot->units.size());
    EXPECT_EQ(OfKind(snapshot.records, SpanKind::kGateClosed).size(), 0u);
  }
}

TEST_P(LaneTest, TimelineHasLatencyGraphsAndTheClosedGate) {
  // Goal: a graph lies where the device's stamps say, and the gate was closed around it. Method: three executions.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.elements = kChunksAndAHalf}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kLatency));
  ASSERT_OK(RunOnce(*slot, RequestClass::kLatency, 0));
  EXPECT_TRUE(timeline_.Read().records.empty()) << "it is off";
  timeline_.Start();
  for (int i = 0; i < 3; ++i) ASSERT_OK(RunOnce(*slot, RequestClass::kLatency, static_cast<float>(i)));
  const std::vector<TimelineRecord> records = timeline_.Read().records;
  const std::vector<TimelineRecord> graphs = OfKind(records, SpanKind::kGraph);
  const std::vector<TimelineRecord> closed = OfKind(records, SpanKind::kGateClosed);
  ASSERT_EQ(graphs.size(), 3u);
  ASSERT_EQ(closed.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(graphs[i].clock, SpanClock::kDevice);
    EXPECT_GE(graphs[i].end - graphs[i].start, 3 * absl::Microseconds(100)) << "three units of 100 us";
    EXPECT_LE(closed[i].start, graphs[i].start);
    EXPECT_GE(closed[i].end, graphs[i].end);
    if (i > 0) {
      EXPECT_GE(closed[i].start, closed[i - 1].end);
    }
  }
}

TEST_P(LaneTest, StageTimesSayWhereTheStagesLie) {
  // Goal: the stages' places are in order and inside the execution. Method: while recording, each class.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.elements = kChunksAndAHalf}));
  timeline_.Start();
  for (const RequestClass request_class : kRequestClasses) {
    SCOPED_TRACE(RequestClassName(request_class));
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
    const Time begin = clock_.Now();
    ASSERT_OK_AND_ASSIGN(const StageTimes times, RunOnce(*slot, request_class, 1));
    const Time end = clock_.Now();
    EXPECT_GE(times.submitted, begin);
    EXPECT_GE(times.h2d_start, times.submitted);
    EXPECT_GE(times.compute_start, times.submitted);
    EXPECT_GE(times.d2h_start, times.compute_start + times.compute);
    EXPECT_LE(times.d2h_start, end);
    EXPECT_EQ(times.copy_clock, SpanClock::kDeviceLength);
  }
}

}  // namespace
}  // namespace sluice::gpu
