// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: `sluice trace` brings every stage of every request, and what ran on the streams, while it records. Method: the
// command itself in a thread, requests of all classes meanwhile, and a look at the file it wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "client/commands/commands.h"
#include "tests/integration/server_fixture.h"

namespace sluice::testing {
namespace {

using nlohmann::json;

int RunTrace(const std::string& arguments) {
  int exit_code = -1;
  CLI::App app("sluice");
  client::AddTraceCommand(app, exit_code);
  app.parse(absl::StrCat("trace ", arguments));
  return exit_code;
}

class TraceTest : public ServerTest {
 protected:
  std::string Url() const { return absl::StrCat("--url 127.0.0.1:", server_->metrics_port()); }
  std::string File() const { return (std::filesystem::path(repository_) / ".trace.json").string(); }
  json Read() const {
    std::ifstream file(File());
    return json::parse(file, nullptr, false);
  }
};

/// Spans by the request they belong to, then names.
using Requests = std::map<uint64_t, std::map<std::string, int>>;

Requests StagesOf(const json& trace, const std::string& class_word) {
  Requests requests;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || !event["args"].contains("request") || event["args"]["class"] != class_word) continue;
    if (event["cat"] != "stage" && event["cat"] != "request") continue;
    ++requests[event["args"]["request"].get<uint64_t>()][event["name"].get<std::string>()];
  }
  return requests;
}

std::vector<json> Named(const json& trace, const std::string& name, const std::string& class_word = "") {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["name"] != name) continue;
    if (class_word.empty() || event["args"]["class"] == class_word) found.push_back(event);
  }
  return found;
}

TEST_F(TraceTest, HasEveryStageOfEveryRequest) {
  constexpr int kRounds = 5;
  Start(SmallConfig());
  int exit_code = -1;
  Thread tracer("tracer", [&] { exit_code = RunTrace(absl::StrCat(Url(), " --seconds 3 --output ", File())); });
  while (!server_->serving().recording_trace()) std::this_thread::yield();
  for (int i = 0; i < kRounds; ++i) {
    std::vector<std::unique_ptr<PendingCall>> calls;
    calls.push_back(Begin(61, RequestClass::kBatch));  // seven full micro-batches and a padded one
    calls.push_back(Begin(61, RequestClass::kStandard));
    calls.push_back(Begin(1, RequestClass::kLatency));
    for (auto& call : calls) ASSERT_TRUE(call->Wait().ok());
  }
  tracer.Join();
  ASSERT_EQ(exit_code, client::kExitOk);
  const json trace = Read();
  ASSERT_TRUE(trace.is_object());
  EXPECT_EQ(trace["otherData"]["lost"], 0);
  for (const auto& [class_word, parts] : {std::pair{"batch", 8}, {"standard", 8}, {"latency", 1}}) {
    SCOPED_TRACE(class_word);
    const Requests requests = StagesOf(trace, class_word);
    EXPECT_EQ(requests.size(), static_cast<size_t>(kRounds));
    for (const auto& [id, stages] : requests) {
      for (const char* once : {"request", "queue", "respond"}) EXPECT_EQ(stages.at(once), 1) << once;
      for (const char* each : {"copy in", "h2d", "compute", "d2h"}) EXPECT_EQ(stages.at(each), parts) << each;
      EXPECT_GE(stages.at("gpu wait"), parts);
    }
    for (const json& request : Named(trace, "request", class_word)) {
      EXPECT_EQ(request["args"]["model"], "chain");
      EXPECT_EQ(request["args"]["status"], "OK");
      EXPECT_EQ(request["args"]["rows"], parts == 8 ? 61 : 1);
    }
    for (const json& stage : Named(trace, "compute", class_word)) EXPECT_EQ(stage["args"]["clock"], "device");
  }
  // Twelve products in each micro-batch and no unit twice.
  for (const char* class_word : {"batch", "standard"}) {
    std::map<uint64_t, int> units;
    for (const json& unit : Named(trace, "unit", class_word)) {
      EXPECT_EQ(unit["args"]["clock"], "host");
      ++units[unit["args"]["request"].get<uint64_t>()];
    }
    EXPECT_EQ(units.size(), static_cast<size_t>(kRounds));
    for (const auto& [request, count] : units) {
      EXPECT_GE(count, 8);
      EXPECT_EQ(count, units.begin()->second);
    }
  }
  EXPECT_EQ(Named(trace, "graph", "latency").size(), static_cast<size_t>(kRounds));
  const size_t closed = Named(trace, "gate closed").size();
  EXPECT_GE(closed, 1u);
  EXPECT_LE(closed, static_cast<size_t>(kRounds));
}

TEST_F(TraceTest, SpansOfAThreadNeverCross) {
  Start(SmallConfig());
  Thread tracer("tracer", [&] { RunTrace(absl::StrCat(Url(), " --seconds 2 --output ", File())); });
  while (!server_->serving().recording_trace()) std::this_thread::yield();
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 30; ++i) calls.push_back(Begin(1 + i % 20, kRequestClasses[static_cast<size_t>(i % 3)]));
  for (auto& call : calls) EXPECT_TRUE(call->Wait().ok());
  tracer.Join();
  const json trace = Read();
  ASSERT_TRUE(trace.is_object());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"];
    threads[{event["pid"], event["tid"]}].emplace_back(start, start + event["dur"].get<double>());
  }
  EXPECT_GE(threads.size(), 4u);
  constexpr double kRounding = 1e-4;
  for (auto& [thread, spans] : threads) {
    // Outer spans first: then each begins inside the innermost one still open, and ends there too.
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
    });
    std::vector<double> open;
    for (const auto& [start, end] : spans) {
      while (!open.empty() && open.back() <= start + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + kRounding) << "thread " << thread.second;
      }
      open.push_back(end);
    }
  }
}

TEST_F(TraceTest, ExitCodesSayWhatWasWrong) {
  server::ServerConfig config = SmallConfig();
  config.trace_records = 0;
  Start(config);
  EXPECT_EQ(RunTrace(absl::StrCat(Url(), " --seconds 0.1 --output ", File())), client::kExitFailed);
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_EQ(RunTrace(absl::StrCat(Url(), " --seconds 0.1 --output /nowhere/at/all")), client::kExitUsage);
  EXPECT_EQ(RunTrace("--url nobody"), client::kExitUsage);
  EXPECT_EQ(RunTrace(absl::StrCat(Url(), " --json --output -")), client::kExitUsage);
  EXPECT_THROW(RunTrace("--seconds 61"), CLI::ValidationError);
  EXPECT_THROW(RunTrace("--help"), CLI::CallForHelp);
  const std::string url = Url();
  server_.reset();
  EXPECT_EQ(RunTrace(absl::StrCat(url, " --seconds 0.1 --output ", File())), client::kExitUnreachable);
}

TEST_F(TraceTest, JsonSummaryAndShutdownEndsARecording) {
  Start(SmallConfig());
  std::ostringstream printed;
  std::streambuf* const old = std::cout.rdbuf(printed.rdbuf());
  int exit_code = -1;
  Thread tracer("tracer", [&] { exit_code = RunTrace(absl::StrCat(Url(), " --json --seconds 60 --output ", File())); });
  while (!server_->serving().recording_trace()) std::this_thread::yield();
  EXPECT_TRUE(Infer(Request("double", 3), nullptr, "batch").ok());
  EXPECT_EQ(RunTrace(absl::StrCat(Url(), " --seconds 1 --output ", File(), "2")), client::kExitFailed)
      << "one at a time";
  printed.str("");
  server_->Shutdown(absl::Seconds(5));
  tracer.Join();
  std::cout.rdbuf(old);
  ASSERT_EQ(exit_code, client::kExitOk) << printed.str();
  const json summary = json::parse(printed.str(), nullptr, false);
  ASSERT_TRUE(summary.is_object()) << printed.str();
  EXPECT_EQ(summary["lost"], 0);
  EXPECT_GE(summary["records"], 7);
  std::set<std::string> names;
  for (const json& span : summary["spans"]) names.insert(span["name"]);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"queue", "copy in", "compute", "respond", "request", "unit"}));
}

}  // namespace
}  // namespace sluice::testing
