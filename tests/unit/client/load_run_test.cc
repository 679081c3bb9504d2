// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>

#include "client/load/schedule.h"
#include "fake_server.h"

namespace sluice::client {
namespace {

StreamSpec Spec(const std::string& text) {
  const auto spec = ParseStreamSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

std::vector<PhaseResult> RunAgainst(const FakeServer& server, const LoadOptions& options,
                                    OnProgress on_progress = nullptr) {
  ClientOptions connection;
  connection.address = server.address();
  const auto client = AsyncClient::Connect(connection);
  EXPECT_TRUE(client.ok()) << client.status();
  std::vector<EncodedRequest> requests;
  for (const StreamSpec& spec : options.streams) {
    requests.push_back(*EncodedRequest::Encode(
        spec.model, {{"x", DataType::kInt32, {1, 2}, std::string(8, static_cast<char>(requests.size()))}}));
  }
  auto phases = RunLoad(options, requests, **client, std::move(on_progress));
  EXPECT_TRUE(phases.ok()) << phases.status();
  return *std::move(phases);
}

size_t CountOf(const std::vector<SeenRequest>& seen, const std::string& class_name) {
  return static_cast<size_t>(std::count_if(
      seen.begin(), seen.end(), [&](const SeenRequest& request) { return request.class_name == class_name; }));
}

LoadOptions Short() {
  LoadOptions options;
  options.warmup = absl::ZeroDuration();
  options.measured = absl::Milliseconds(300);
  options.phases = {Phase::kMixed};
  return options;
}

// Goal: a closed loop sends exactly its number of requests and counts exactly the answers. Method: 100 at
// concurrency 4.
TEST(RunLoad, ClosedLoopCountsExactly) {
  const FakeServer server;
  LoadOptions options = Short();
  options.measured = absl::Seconds(60);  // Ends with the hundredth answer.
  options.streams = {Spec("class=batch,model=echo,concurrency=4,requests=100")};
  const auto phases = RunAgainst(server, options);
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_EQ(result.requests, 100u);
  EXPECT_EQ(result.latency.count(), 100u);
  EXPECT_EQ(result.error_count(), 0u);
  EXPECT_EQ(result.answered_in_window, 100u);
  EXPECT_EQ(result.other_class, 0u);
  EXPECT_LT(result.window, absl::Seconds(60));
  EXPECT_EQ(CountOf(server.seen(), "batch"), 100u);
}

// Goal: an open loop sends exactly its schedule, whatever comes back. Method: compare with the schedule of the same
// seed.
TEST(RunLoad, OpenLoopSendsItsSchedule) {
  const FakeServer server;
  LoadOptions options = Short();
  options.seed = 11;
  options.streams = {Spec("class=latency,model=echo,rate=500")};
  const size_t planned = MakeSchedule(500, Arrivals::kPoisson, options.measured, 11)->size();
  const auto phases = RunAgainst(server, options);
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_GT(planned, 50u);
  EXPECT_EQ(result.requests, planned);
  EXPECT_EQ(result.latency.count(), planned);
  EXPECT_EQ(result.lag.count(), planned);
  EXPECT_EQ(server.seen().size(), planned);
}

// Goal: the warm-up is sent but not counted. Method: constant rate, a warm-up of two thirds of the time.
TEST(RunLoad, WarmupIsDiscarded) {
  const FakeServer server;
  LoadOptions options = Short();
  options.warmup = absl::Milliseconds(200);
  options.measured = absl::Milliseconds(100);
  options.streams = {Spec("class=latency,model=echo,rate=100,distribution=constant")};
  const auto phases = RunAgainst(server, options);
  EXPECT_EQ(phases[0].streams[0].result.requests, 10u);
  EXPECT_EQ(server.seen().size(), 30u);
}

// Goal: phases run the streams they should, with the same schedule and the class they should. Method: count by class.
TEST(RunLoad, PhasesAndClasses) {
  const FakeServer server;
  LoadOptions options = Short();
  options.streams = {Spec("class=latency,model=echo,rate=200"),
                     Spec("class=batch,model=echo,rate=100,distribution=constant")};
  options.phases = {Phase::kAlone, Phase::kMixed, Phase::kBatchAlone, Phase::kMixedStandard};
  const auto phases = RunAgainst(server, options);
  ASSERT_EQ(phases.size(), 4u);
  ASSERT_EQ(phases[0].streams.size(), 1u);
  ASSERT_EQ(phases[1].streams.size(), 2u);
  ASSERT_EQ(phases[2].streams.size(), 1u);
  EXPECT_EQ(phases[2].streams[0].index, 1u);
  ASSERT_EQ(phases[3].streams.size(), 2u);
  const uint64_t latency = phases[0].streams[0].result.requests;
  EXPECT_EQ(phases[1].streams[0].result.requests, latency);
  EXPECT_EQ(phases[1].streams[1].result.requests, 30u);
  EXPECT_EQ(phases[3].streams[0].result.requests, latency);
  EXPECT_EQ(CountOf(server.seen(), "latency"), 2 * latency);
  EXPECT_EQ(CountOf(server.seen(), "batch"), 60u);
  EXPECT_EQ(CountOf(server.seen(), "standard"), latency + 30u);
}

// Goal: errors are counted by code beside the successes and add up. Method: the server fails every second request.
TEST(RunLoad, ErrorsByCode) {
  std::atomic<int> calls = 0;
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    return ++calls % 2 == 0 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "full") : grpc::Status::OK;
  });
  LoadOptions options = Short();
  options.streams = {Spec("model=echo,rate=200,distribution=constant")};
  const auto phases = RunAgainst(server, options);
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_EQ(result.requests, 60u);
  EXPECT_EQ(result.latency.count(), 30u);
  EXPECT_EQ(result.errors.at("UNAVAILABLE"), 30u);
}

// Goal: a closed loop does not spin on failures. Method: a server that always refuses; slots are refilled by the tick
// only.
TEST(RunLoad, ClosedLoopIsHeldBackByFailures) {
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "full");
  });
  LoadOptions options = Short();
  options.streams = {Spec("model=echo,concurrency=2")};
  const auto phases = RunAgainst(server, options);
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_EQ(result.error_count(), result.requests);
  EXPECT_GE(result.requests, 2u);
  // 300 ms hold at most 31 ticks; the margin is for ticks that follow each other closely after a pause of the thread.
  EXPECT_LE(result.requests, 2u * 40);
}

// Goal: what is due at the cap waits, is counted, and its latency still runs from when it was due. Method: a cap of
// one, and a first request that holds it until its deadline in the middle of the phase.
TEST(RunLoad, OutstandingCap) {
  std::latch over(1);
  std::atomic<int> calls = 0;
  FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    if (++calls == 1) over.wait();
    return grpc::Status::OK;
  });
  LoadOptions options = Short();
  options.max_outstanding = 1;
  options.streams = {Spec("model=echo,rate=100,distribution=constant,deadline-ms=200")};
  const auto phases = RunAgainst(server, options);
  over.count_down();
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_EQ(result.requests, 30u);
  EXPECT_EQ(result.latency.count() + result.error_count(), 30u);
  EXPECT_GE(result.errors.at("DEADLINE_EXCEEDED"), 1u);
  EXPECT_GT(result.cap_hits, 0u);
  EXPECT_GT(result.latency.max(), result.service.max());
}

// Goal: a server that never answers does not hang the run, and its requests are counted. Method: no drain time.
TEST(RunLoad, UnansweredRequestsAreCounted) {
  std::latch over(1);
  FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    over.wait();
    return grpc::Status::OK;
  });
  LoadOptions options = Short();
  options.measured = absl::Milliseconds(100);
  options.drain = absl::ZeroDuration();
  options.max_outstanding = 3;
  options.streams = {Spec("model=echo,rate=100,distribution=constant")};
  const auto phases = RunAgainst(server, options);
  const StreamResult& result = phases[0].streams[0].result;
  EXPECT_EQ(result.requests, 10u);
  EXPECT_EQ(result.latency.count(), 0u);
  EXPECT_EQ(result.errors.at("UNFINISHED"), 10u);
  over.count_down();
}

// Goal: a phase without a stream is a mistake, not an empty table. Method: alone without a latency stream.
TEST(RunLoad, PhaseWithoutStreams) {
  const FakeServer server;
  ClientOptions connection;
  connection.address = server.address();
  const auto client = AsyncClient::Connect(connection);
  LoadOptions options = Short();
  options.phases = {Phase::kAlone};
  options.streams = {Spec("class=batch,model=echo,concurrency=1")};
  const std::vector<EncodedRequest> requests = {
      *EncodedRequest::Encode("echo", {{"x", DataType::kInt32, {1, 2}, std::string(8, '\0')}})};
  EXPECT_EQ(RunLoad(options, requests, **client, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
}

// Goal: intervals add up to the phase, none is lost at its end. Method: 200 answers and some failures in intervals of
// 10 ms.
TEST(RunLoad, IntervalsAddUp) {
  std::atomic<int> calls = 0;
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    return ++calls % 10 == 0 ? grpc::Status(grpc::StatusCode::INTERNAL, "tenth") : grpc::Status::OK;
  });
  LoadOptions options = Short();
  options.measured = absl::Seconds(60);
  options.interval = absl::Milliseconds(10);
  options.streams = {Spec("class=batch,model=echo,concurrency=2,requests=200")};
  uint64_t successes = 0;
  uint64_t errors = 0;
  const auto phases = RunAgainst(server, options, [&](const Progress& progress) {
    ASSERT_EQ(progress.intervals.size(), 1u);
    successes += progress.intervals[0].latency.count();
    errors += progress.intervals[0].errors;
  });
  EXPECT_EQ(successes, phases[0].streams[0].result.latency.count());
  EXPECT_EQ(errors, phases[0].streams[0].result.error_count());
  EXPECT_EQ(successes + errors, 200u);
}

}  // namespace
}  // namespace sluice::client
