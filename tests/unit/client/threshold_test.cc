// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/threshold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

LoadOptions OneStream() {
  LoadOptions options;
  options.streams.resize(1);
  options.streams[0].name = "latency/model.v2";
  options.streams[0].request_class = RequestClass::kLatency;
  options.streams[0].rate = 10;
  options.phases = {Phase::kAlone, Phase::kMixed};
  return options;
}

std::vector<PhaseResult> TwoPhases() {
  std::vector<PhaseResult> phases(2);
  phases[0].phase = Phase::kAlone;
  phases[1].phase = Phase::kMixed;
  for (PhaseResult& phase : phases) {
    StreamResult result;
    result.latency.Record(phase.phase == Phase::kAlone ? absl::Milliseconds(10) : absl::Milliseconds(30));
    result.requests = 1;
    phase.streams.push_back({0, std::move(result)});
  }
  return phases;
}

std::vector<std::string> Failed(const std::string& text) {
  const auto threshold = ParseThreshold(text);
  EXPECT_TRUE(threshold.ok()) << threshold.status();
  const LoadOptions options = OneStream();
  const std::vector<PhaseResult> phases = TwoPhases();
  return FailedThresholds({*threshold}, options, phases, Summarize(options, phases));
}

// Goal: all parts of a threshold are read. Method: one with everything, spaces included; one ratio.
TEST(Threshold, Parses) {
  const auto full = ParseThreshold("alone:latency/model.v2.p99_ms >= 12.5");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->phase, "alone");
  EXPECT_EQ(full->selector, "latency/model.v2");
  EXPECT_EQ(full->metric, "p99_ms");
  EXPECT_EQ(full->comparison, ">=");
  EXPECT_EQ(full->limit, 12.5);
  const auto ratio = ParseThreshold("isolation_ratio>1.5");
  ASSERT_TRUE(ratio.ok()) << ratio.status();
  EXPECT_EQ(ratio->selector, "");
  EXPECT_EQ(ratio->comparison, ">");
}

// Goal: mistakes are refused with the reason. Method: a table of texts and what the message must mention.
TEST(Threshold, RefusesMistakes) {
  const std::pair<const char*, const char*> table[] = {
      {"latency.p99_ms", "<, <=, >, >="}, {"latency.p99_ms>", "no number"},     {"latency.p99_ms>fast", "no number"},
      {"p99_ms>5", "names no stream"},    {"latency.p98_ms>5", "'p98_ms'"},     {"lonely:latency.n>5", "'lonely'"},
      {".n>5", "names no stream"},        {"latency.p99_ms=5", "<, <=, >, >="}, {"", "<, <=, >, >="}};
  for (const auto& [text, mentions] : table) {
    const auto threshold = ParseThreshold(text);
    ASSERT_FALSE(threshold.ok()) << text;
    EXPECT_THAT(std::string(threshold.status().message()), HasSubstr(mentions)) << text;
  }
}

// Goal: a threshold that can never be looked up is a usage error before the run. Method: unknown stream, phase that is
// not run.
TEST(Threshold, ChecksAgainstTheRun) {
  const LoadOptions options = OneStream();
  EXPECT_TRUE(CheckThreshold(*ParseThreshold("latency.n>1"), options).ok());
  EXPECT_TRUE(CheckThreshold(*ParseThreshold("latency/model.v2.n>1"), options).ok());
  EXPECT_FALSE(CheckThreshold(*ParseThreshold("batch.n>1"), options).ok());
  EXPECT_FALSE(CheckThreshold(*ParseThreshold("mixed-standard:latency.n>1"), options).ok());
}

// Goal: the condition that holds fails the run, in the phase it names. Method: p99 is 10 ms alone and 30 ms mixed.
TEST(Threshold, FailsWhenTheConditionHolds) {
  EXPECT_THAT(Failed("latency.p99_ms>20"), SizeIs(1));
  EXPECT_THAT(Failed("latency.p99_ms<20"), IsEmpty());
  EXPECT_THAT(Failed("alone:latency.p99_ms>20"), IsEmpty());
  EXPECT_THAT(Failed("latency.n<=1"), SizeIs(1));
  EXPECT_THAT(Failed("latency.n<1"), IsEmpty());
  EXPECT_THAT(Failed("isolation_ratio>2.5"), SizeIs(1));
  EXPECT_THAT(Failed("isolation_ratio>3.5"), IsEmpty());
}

// Goal: what could not be measured fails. Method: a ratio whose phase did not run.
TEST(Threshold, NotMeasuredFails) { EXPECT_THAT(Failed("standard_ratio<3"), SizeIs(1)); }

}  // namespace
}  // namespace sluice::client
