// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "client/load/export.h"
#include "client/load/report.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

StreamResult ResultOf(absl::Duration latency, int count) {
  StreamResult result;
  for (int i = 0; i < count; ++i) {
    result.latency.Record(latency);
    result.service.Record(latency);
    result.lag.Record(absl::Microseconds(20));
  }
  result.requests = static_cast<uint64_t>(count);
  result.answered_in_window = static_cast<uint64_t>(count);
  result.window = absl::Seconds(10);
  return result;
}

LoadOptions TwoStreams() {
  LoadOptions options;
  options.streams.resize(2);
  options.streams[0].name = "latency/a";
  options.streams[0].request_class = RequestClass::kLatency;
  options.streams[0].rate = 10;
  options.streams[1].name = "batch/b";
  options.streams[1].request_class = RequestClass::kBatch;
  options.streams[1].concurrency = 2;
  options.streams[1].batch = 4;
  return options;
}

std::vector<PhaseResult> FivePhases() {
  std::vector<PhaseResult> phases;
  phases.push_back({Phase::kAlone, {{0, ResultOf(absl::Milliseconds(10), 100)}}});
  phases.push_back(
      {Phase::kMixed, {{0, ResultOf(absl::Milliseconds(15), 100)}, {1, ResultOf(absl::Milliseconds(200), 50)}}});
  phases.push_back({Phase::kMixedStandard,
                    {{0, ResultOf(absl::Milliseconds(60), 100)}, {1, ResultOf(absl::Milliseconds(190), 55)}}});
  phases.push_back({Phase::kAlone, {{0, ResultOf(absl::Milliseconds(12), 100)}}});
  phases.push_back({Phase::kBatchAlone, {{1, ResultOf(absl::Milliseconds(100), 100)}}});
  return phases;
}

// Goal: the ratios are what their names say. Method: phases with one known latency each; the pooled p99 of 10 and 12 ms
// is 12.
TEST(Summary, RatiosOfKnownPhases) {
  const LoadSummary summary = Summarize(TwoStreams(), FivePhases());
  ASSERT_EQ(summary.latency.size(), 1u);
  const StreamComparison& latency = summary.latency[0];
  EXPECT_EQ(latency.pooled_alone_samples, 200u);
  EXPECT_NEAR(*latency.pooled_alone_p99_ms, 12, 0.02);
  ASSERT_EQ(latency.alone_p99_ms.size(), 2u);
  EXPECT_NEAR(latency.alone_p99_ms[0], 10, 0.02);
  EXPECT_NEAR(latency.alone_p99_ms[1], 12, 0.02);
  EXPECT_NEAR(*latency.isolation_ratio, 15.0 / 12, 0.01);
  EXPECT_NEAR(*latency.standard_ratio, 60.0 / 15, 0.01);
  ASSERT_EQ(summary.others.size(), 1u);
  EXPECT_NEAR(summary.others[0].mixed_rows_per_second, 20, 0.01);
  EXPECT_NEAR(*summary.others[0].kept, 0.5, 0.001);
}

// Goal: nothing is claimed that was not measured. Method: only a mixed phase, then one without successes.
TEST(Summary, MissingPhasesGiveNoRatio) {
  std::vector<PhaseResult> phases = FivePhases();
  phases = {phases[1]};
  EXPECT_FALSE(Summarize(TwoStreams(), phases).latency[0].isolation_ratio.has_value());
  EXPECT_FALSE(Summarize(TwoStreams(), phases).others[0].kept.has_value());
  phases = FivePhases();
  phases[1].streams[0].result.latency = Histogram();
  EXPECT_FALSE(Summarize(TwoStreams(), phases).latency[0].isolation_ratio.has_value());
}

// Goal: the report shows the table, n, the note on few samples and the ratios; JSON says the same. Method: look for
// them.
TEST(Report, ShowsWhatMatters) {
  const LoadOptions options = TwoStreams();
  std::vector<PhaseResult> phases = FivePhases();
  phases[1].streams[0].result.errors["UNAVAILABLE"] = 3;
  phases[1].streams[0].result.cap_hits = 7;
  const LoadSummary summary = Summarize(options, phases);
  const std::string text = TextReport(options, {2, "a CPU"}, phases, summary);
  EXPECT_THAT(text, HasSubstr("mixed-standard"));
  EXPECT_THAT(text, HasSubstr("UNAVAILABLE:3"));
  EXPECT_THAT(text, HasSubstr("7 requests waited for the outstanding cap"));
  EXPECT_THAT(text,
              HasSubstr("isolation ratio of latency/a: 1.25 (p99 mixed 15.00 ms, n=100; p99 alone 12.00 ms, n=200)"));
  EXPECT_THAT(text, HasSubstr("fewer than 1000 samples"));
  EXPECT_THAT(text, HasSubstr("4.00 times lower with classes"));
  EXPECT_THAT(text, HasSubstr("seed 1"));
  const nlohmann::json document = JsonReport(options, {2, "a CPU"}, phases, summary);
  EXPECT_EQ(document["phases"].size(), 5u);
  EXPECT_EQ(document["phases"][1]["streams"][0]["errors"]["UNAVAILABLE"], 3);
  EXPECT_EQ(document["phases"][2]["streams"][0]["class"], "standard");
  EXPECT_NEAR(document["summary"]["latency"][0]["isolation_ratio"].get<double>(), 1.25, 0.01);
}

// Goal: the server's own times give a ratio of their own and the device's share. Method: alone 100 requests of 2 ms on
// the device in 10 s and 4 ms in the server; mixed 5 ms.
TEST(Summary, ServerTimes) {
  LoadOptions options = TwoStreams();
  options.timings = true;
  std::vector<PhaseResult> phases = FivePhases();
  phases.erase(phases.begin() + 3);
  StageTimings alone;
  alone.h2d = absl::Microseconds(500);
  alone.gpu_wait = absl::Microseconds(900);
  alone.compute = absl::Microseconds(1300);
  alone.d2h = absl::Microseconds(200);
  alone.total = absl::Milliseconds(4);
  StageTimings mixed = alone;
  mixed.total = absl::Milliseconds(5);
  phases[0].streams[0].result.server.emplace();
  phases[1].streams[0].result.server.emplace();
  for (int i = 0; i < 100; ++i) {
    phases[0].streams[0].result.server->Record(alone);
    phases[1].streams[0].result.server->Record(mixed);
  }
  const StreamComparison latency = Summarize(options, phases).latency[0];
  EXPECT_NEAR(*latency.server_isolation_ratio, 1.25, 0.01);
  EXPECT_NEAR(*latency.server_alone_p99_ms, 4, 0.01);
  EXPECT_NEAR(*latency.gpu_share_alone, 0.02, 0.0001);
  EXPECT_FALSE(latency.server_standard_p99_ms.has_value());
  const std::string text = TextReport(options, {}, phases, Summarize(options, phases));
  EXPECT_THAT(text, HasSubstr("in the server: 1.250"));
  const auto json = JsonReport(options, {}, phases, Summarize(options, phases));
  EXPECT_NEAR(json["phases"][0]["streams"][0]["server"]["total"]["p99_ms"].get<double>(), 4, 0.01);
  EXPECT_TRUE(json["phases"][2]["streams"][0]["server"].is_null());
}

// Goal: the CSV has one line for each stream of each phase, under one header, whatever the names are. Method: a name
// with a comma and a quote, a stream without a success; count the fields and look at some.
TEST(Export, Csv) {
  LoadOptions options = TwoStreams();
  options.streams[0].name = "a,\"b\"";
  StreamResult failed;
  failed.requests = 3;
  failed.errors["UNAVAILABLE"] = 3;
  failed.window = absl::Seconds(10);
  const std::vector<std::string> lines = absl::StrSplit(
      CsvReport(options, {{Phase::kMixed, {{0, ResultOf(absl::Milliseconds(10), 100)}, {1, failed}}}}), '\n');
  ASSERT_EQ(lines.size(), 4u);  // with the empty one behind the last newline
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(lines[1]), commas(lines[0]) + 1);  // the one in the name
  EXPECT_EQ(commas(lines[2]), commas(lines[0]));
  EXPECT_THAT(lines[1], ::testing::StartsWith("mixed,\"a,\"\"b\"\"\",,latency,100,100,0,10,10.00,10.00,10.0000,10."));
  EXPECT_THAT(lines[2], ::testing::StartsWith("mixed,batch/b,,batch,3,0,3,10,0.00,0.00,,,"));
}

// Goal: the percentile report is what HdrHistogram's tools read: quantiles rise to 1, counts to all samples, and the
// last column fits. Method: 1,000 samples of 1 to 1,000 ms; read each line back.
TEST(Export, Percentiles) {
  LoadOptions options = TwoStreams();
  StreamResult result;
  for (int i = 1; i <= 1000; ++i) result.latency.Record(absl::Milliseconds(i));
  const auto files = PercentileFiles(options, {{Phase::kAlone, {{0, result}}}});
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].suffix, "1-alone-latency_a");
  double last_quantile = 0;
  double last_value = 0;
  int64_t last_count = 0;
  for (const absl::string_view line : absl::StrSplit(files[0].text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    double value = 0;
    if (!absl::SimpleAtod(words[0], &value)) continue;  // header and footer
    double quantile = 0;
    int64_t count = 0;
    ASSERT_TRUE(words.size() >= 3 && absl::SimpleAtod(words[1], &quantile) && absl::SimpleAtoi(words[2], &count));
    EXPECT_GE(value, last_value);
    EXPECT_GE(count, last_count);
    EXPECT_GT(quantile, last_quantile);
    EXPECT_NEAR(value, std::max(1.0, quantile * 1000), 1.5);
    EXPECT_NEAR(static_cast<double>(count), value, 1.5);
    if (words.size() == 4) {
      double inverse = 0;
      ASSERT_TRUE(absl::SimpleAtod(words[3], &inverse));
      EXPECT_NEAR(inverse, 1 / (1 - quantile), 0.02 * inverse);
    }
    last_quantile = quantile;
    last_value = value;
    last_count = count;
  }
  EXPECT_EQ(last_quantile, 1);
  EXPECT_EQ(last_count, 1000);
  EXPECT_THAT(PercentileReport(Histogram()), HasSubstr("Total count =          0"));
}

}  // namespace
}  // namespace sluice::client
