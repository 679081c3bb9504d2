// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: what is written is what chrome://tracing and Perfetto read: JSON, spans apart or inside each other on a thread,
// names. Method: records put together by hand, written, parsed by another library.
#include "server/execution/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

using gpu::SpanKind;
using gpu::TimelineRecord;
using nlohmann::json;
using ::testing::HasSubstr;

TimelineRecord Span(SpanKind kind, int64_t start_us, int64_t end_us, uint64_t request = 0, uint32_t index = 0,
                    RequestClass request_class = RequestClass::kBatch) {
  TimelineRecord record;
  record.kind = kind;
  record.start = Time::FromNanoseconds(1'000'000'000 + start_us * 1000);
  record.end = Time::FromNanoseconds(1'000'000'000 + end_us * 1000);
  record.request = request;
  record.model = 7;
  record.index = index;
  record.amount = 3;
  record.request_class = request_class;
  return record;
}

json Parse(const std::string& text) {
  json document = json::parse(text, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << text;
  return document;
}

json Written(std::vector<TimelineRecord> records, uint64_t lost = 0) {
  std::vector<DeviceTrace> devices = {{"host:0", {.records = std::move(records), .lost_count = lost}}};
  return Parse(ToChromeTrace(devices, {{7, "double"}}));
}

/// The spans of one name, in order.
std::vector<json> Named(const json& trace, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == name) found.push_back(event);
  }
  return found;
}

/// On each thread, every two spans are apart or one is inside the other.
void ExpectNested(const json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"].get<double>();
    EXPECT_GE(start, 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    threads[{event["pid"].get<int>(), event["tid"].get<int>()}].emplace_back(start, start + event["dur"].get<double>());
  }
  constexpr double kRounding = 1e-6;
  for (const auto& [thread, spans] : threads) {
    for (const auto& [a_start, a_end] : spans) {
      for (const auto& [b_start, b_end] : spans) {
        const bool crossed = a_start < b_start - kRounding && b_start < a_end - kRounding && a_end < b_end - kRounding;
        EXPECT_FALSE(crossed) << a_start << ".." << a_end << " and " << b_start << ".." << b_end << " on "
                              << thread.second;
      }
    }
  }
}

std::vector<TimelineRecord> OneRequest(uint64_t id, int64_t from_us) {
  return {
      Span(SpanKind::kQueue, from_us, from_us + 10, id),        Span(SpanKind::kCopyIn, from_us + 10, from_us + 12, id),
      Span(SpanKind::kGpuWait, from_us + 12, from_us + 13, id), Span(SpanKind::kH2d, from_us + 13, from_us + 15, id),
      Span(SpanKind::kCompute, from_us + 15, from_us + 40, id), Span(SpanKind::kD2h, from_us + 40, from_us + 41, id),
      Span(SpanKind::kRespond, from_us + 41, from_us + 50, id)};
}

TEST(ChromeTrace, EmptyIsATrace) {
  const json trace = Parse(ToChromeTrace({}, {}));
  EXPECT_TRUE(trace["traceEvents"].empty());
  EXPECT_EQ(trace["otherData"]["records"], 0);
  EXPECT_EQ(Written({}, 5)["otherData"]["lost"], 5);
}

TEST(ChromeTrace, StagesAreInsideTheirRequest) {
  const json trace = Written(OneRequest(42, 100));
  ExpectNested(trace);
  const std::vector<json> requests = Named(trace, "request");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0]["args"]["request"], 42);
  EXPECT_EQ(requests[0]["args"]["model"], "double");
  EXPECT_EQ(requests[0]["args"]["class"], "batch");
  EXPECT_EQ(requests[0]["args"]["rows"], 3);
  EXPECT_EQ(requests[0]["args"]["status"], "OK");
  EXPECT_EQ(requests[0]["ts"], 0);
  EXPECT_EQ(requests[0]["dur"], 50);
  for (const char* name : {"queue", "copy in", "gpu wait", "h2d", "compute", "d2h", "respond"}) {
    const std::vector<json> stage = Named(trace, name);
    ASSERT_EQ(stage.size(), 1u) << name;
    EXPECT_EQ(stage[0]["tid"], requests[0]["tid"]);
    EXPECT_EQ(stage[0]["cat"], "stage");
    EXPECT_EQ(stage[0]["args"]["request"], 42);
  }
  EXPECT_EQ(Named(trace, "compute")[0]["ts"], 15);
  EXPECT_EQ(Named(trace, "compute")[0]["dur"], 25);
}

TEST(ChromeTrace, RequestsAtOnceAreOnRowsOfTheirOwn) {
  std::vector<TimelineRecord> records;
  for (const auto& [id, from] : {std::pair<uint64_t, int64_t>{1, 0}, {2, 20}, {3, 50}, {4, 60}}) {
    for (const TimelineRecord& record : OneRequest(id, from)) records.push_back(record);
  }
  const json trace = Written(records);
  ExpectNested(trace);
  const std::vector<json> requests = Named(trace, "request");
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_NE(requests[0]["tid"], requests[1]["tid"]);
  EXPECT_EQ(requests[0]["tid"], requests[2]["tid"]) << "the first was over";
}

TEST(ChromeTrace, MicroBatchesThatOverlapAreBarsOfTheirOwn) {
  std::vector<TimelineRecord> records = OneRequest(1, 0);
  records.back().start = records.back().start + absl::Microseconds(30);
  records.back().end = records.back().end + absl::Microseconds(30);
  for (const auto& [kind, start, end] : {std::tuple{SpanKind::kCopyIn, 12, 14},
                                         {SpanKind::kH2d, 16, 20},
                                         {SpanKind::kCompute, 40, 60},
                                         {SpanKind::kD2h, 60, 62}}) {
    records.push_back(Span(kind, start, end, 1, 1));
  }
  const json trace = Written(records);
  ExpectNested(trace);
  ASSERT_EQ(Named(trace, "request").size(), 1u);
  ASSERT_EQ(Named(trace, "part 1").size(), 1u);
  EXPECT_NE(Named(trace, "part 1")[0]["tid"], Named(trace, "request")[0]["tid"]);
  EXPECT_EQ(Named(trace, "compute").size(), 2u);
}

TEST(ChromeTrace, ClocksThatDisagreeDoNotCrossSpans) {
  // Converted stamps may step back some microseconds.
  std::vector<TimelineRecord> records = OneRequest(1, 0);
  records[4].start = records[4].start - absl::Microseconds(4);
  for (int i = 0; i < 4; ++i) {
    TimelineRecord graph = Span(SpanKind::kGraph, 100 + 10 * i - 2 * i, 111 + 10 * i, 1);
    graph.track = 9;
    records.push_back(graph);
  }
  records.push_back(Span(SpanKind::kGateClosed, 100, 120));
  records.push_back(Span(SpanKind::kGateClosed, 119, 130));
  const json trace = Written(records);
  ExpectNested(trace);
  EXPECT_EQ(Named(trace, "graph").size(), 4u);
  EXPECT_EQ(Named(trace, "gate closed").size(), 2u);
}

TEST(ChromeTrace, StreamsAreThreadsWithNames) {
  std::vector<TimelineRecord> records;
  for (const uint64_t track : {11, 22}) {
    for (const SpanKind kind : {SpanKind::kUnit, SpanKind::kChunkIn, SpanKind::kChunkOut}) {
      TimelineRecord record = Span(kind, 5, 9, 1, 4);
      record.track = track;
      record.predicted = absl::Nanoseconds(12345);
      record.measured = kind == SpanKind::kUnit ? absl::Microseconds(13) : absl::ZeroDuration();
      records.push_back(record);
    }
  }
  const json trace = Written(records);
  ExpectNested(trace);
  std::vector<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
    if (event["name"] == "process_name") {
      EXPECT_EQ(event["args"]["name"], "host:0");
    }
  }
  EXPECT_THAT(names, ::testing::ElementsAre("batch stream 1: units", "batch stream 1: copies in",
                                            "batch stream 1: copies out", "batch stream 2: units",
                                            "batch stream 2: copies in", "batch stream 2: copies out"));
  const json unit = Named(trace, "unit")[0];
  EXPECT_EQ(unit["args"]["predicted_us"], 12.345);
  EXPECT_EQ(unit["args"]["measured_us"], 13);
  EXPECT_EQ(unit["args"]["number"], 4);
  EXPECT_EQ(unit["args"]["clock"], "host");
  EXPECT_FALSE(Named(trace, "chunk in")[0]["args"].contains("measured_us"));
  EXPECT_EQ(Named(trace, "chunk in")[0]["args"]["bytes"], 3);
}

TEST(ChromeTrace, FailuresAndStrangeNamesAreWritten) {
  TimelineRecord expired = Span(SpanKind::kQueue, 0, 10, 1);
  expired.status = absl::StatusCode::kDeadlineExceeded;
  std::vector<DeviceTrace> devices = {{"a \"device\"\n", {.records = {expired}}}};
  const json trace = Parse(ToChromeTrace(devices, {{7, "m\"\\\x01\xff"}}));
  EXPECT_EQ(Named(trace, "request")[0]["args"]["status"], "DEADLINE_EXCEEDED");
  EXPECT_THAT(Named(trace, "request")[0]["args"]["model"].get<std::string>(), HasSubstr("m\"\\\x01"));
}

}  // namespace
}  // namespace sluice::server
