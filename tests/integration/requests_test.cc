// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a request through the whole server gets the right answer, exactly once, whatever happens to it on the way.
// Method: a real server and real clients in this process over loopback; waiting is for events, never for time.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "health.grpc.pb.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/tiny_models.h"

namespace sluice::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

/// Rows for an execution that takes long enough to be met in mid-flight, on any machine.
constexpr int64_t kLongRows = 4096;

std::vector<float> Floats(const std::string& raw) {
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

TEST_F(ServerTest, AnswersWithTheRightNumbers) {
  Start(SmallConfig());
  for (const int64_t rows : {1, 3, 8}) {
    const inference::ModelInferRequest request = Request("double", rows);
    inference::ModelInferResponse response;
    const grpc::Status status = Infer(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const std::vector<float> in = Floats(request.raw_input_contents(0));
    const std::vector<float> out = Floats(response.raw_output_contents(0));
    ASSERT_EQ(out.size(), in.size());
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], 2 * in[i]);
    EXPECT_EQ(response.id(), "request 1");
    EXPECT_EQ(response.model_version(), "1");
    EXPECT_EQ(response.outputs(0).shape(0), rows);
    EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "standard");
  }
}

TEST_F(ServerTest, RefusesAModelThatDoesNotFitAndServesTheOthers) {
  AddToRepository(repository_, "big", ChainModel(512, 2), "max_batch_size: 1\n");  // 1 MiB of weights
  server::ServerConfig config = SmallConfig();
  config.pinned_memory_limit = 1 << 20;
  Start(config);
  EXPECT_TRUE(Infer(Request("double", 3)).ok());
  const grpc::Status refused = Infer(Request("big", 1));
  EXPECT_THAT(refused.error_code(), AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(Metric("sluice_pinned_memory_limit_bytes", {}), 1 << 20);
  EXPECT_EQ(Metric("sluice_device_memory_limit_bytes", {"device=\"host:0\""}), 1 << 20);
  const double weights = Metric("sluice_device_memory_bytes", {"kind=\"weights\""});
  EXPECT_GE(weights, kChainWidth * kChainWidth * sizeof(float));
  EXPECT_LT(weights, 512 * 512 * sizeof(float)) << "nothing of the refused model is left";
  EXPECT_GT(Metric("sluice_device_memory_bytes", {"kind=\"slots\""}), 0);
  EXPECT_EQ(Metric("sluice_device_memory_bytes", {"kind=\"other\""}), 0);
  EXPECT_EQ(Metric("sluice_pinned_memory_bytes", {}), Metric("sluice_device_memory_bytes", {}));
}

TEST_F(ServerTest, CutsALargeRequestAndPutsItTogetherAgain) {
  Start(SmallConfig());
  for (const char* class_word : {"latency", "standard", "batch"}) {
    const inference::ModelInferRequest request = Request("chain", 61);  // seven full buckets and a padded one
    inference::ModelInferResponse response;
    ASSERT_TRUE(Infer(request, &response, class_word).ok());
    const std::vector<float> in = Floats(request.raw_input_contents(0));
    const std::vector<float> out = Floats(response.raw_output_contents(0));
    ASSERT_EQ(out.size(), in.size());
    for (size_t row = 0; row < 61; ++row) {
      float mean = 0;
      for (size_t i = 0; i < kChainWidth; ++i) mean += in[row * kChainWidth + i] / kChainWidth;
      for (size_t i = 0; i < kChainWidth; ++i)
        EXPECT_NEAR(out[row * kChainWidth + i], mean, 0.01f) << class_word << row;
    }
  }
}

TEST_F(ServerTest, PartsOfOneRequestNeverWaitForEachOtherAtTheGate) {
  // Three rows are two parts in two slots of different plans. Begun together by one thread, the second waited at the
  // gate for room that only the first one's end would return. A latency-capable model keeps the window small.
  Start(SmallConfig());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Infer(Request("double", 3), nullptr, "standard").ok());
}

TEST_F(ServerTest, DeadlineEndsAnExecutingRequest) {
  Start(SmallConfig());
  auto call = Begin(kLongRows, RequestClass::kBatch, absl::Milliseconds(30));
  EXPECT_EQ(call->Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The slots come back, and the next request is served.
  EXPECT_TRUE(Infer(Request("chain", 1), nullptr, "batch").ok());
}

TEST_F(ServerTest, QueueTimeoutEndsOnlyTheWait) {
  server::ServerConfig config = SmallConfig();
  Start(config);
  std::vector<std::unique_ptr<PendingCall>> running;
  for (int i = 0; i < 2; ++i) running.push_back(Begin(kLongRows, RequestClass::kStandard));
  AwaitExecuting(1);
  inference::ModelInferRequest request = Request("chain", 1);
  (*request.mutable_parameters())["timeout"].set_int64_param(1000);
  inference::ModelInferResponse response;
  // With one slot and two requests before it, it cannot start in a millisecond.
  const grpc::Status status = Infer(request, &response, "standard");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("Request timeout expired"));
  for (auto& call : running) EXPECT_TRUE(call->Wait().ok());
  EXPECT_EQ(Metric("sluice_expired_total", {"class=\"standard\"", "at=\"queue\""}), 1);
}

TEST_F(ServerTest, CancelEndsQueuedAndExecutingRequests) {
  Start(SmallConfig());
  auto executing = Begin(kLongRows, RequestClass::kStandard);
  AwaitExecuting(1);
  auto queued = Begin(kLongRows, RequestClass::kStandard);
  executing->Cancel();
  queued->Cancel();
  EXPECT_EQ(executing->Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(queued->Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Infer(Request("chain", 1), nullptr, "standard").ok());
}

TEST_F(ServerTest, FullQueueIsRefusedAtOnceAndEverythingIsAnswered) {
  server::ServerConfig config = SmallConfig();
  config.queue_requests = 2;
  Start(config);
  std::vector<std::unique_ptr<PendingCall>> calls;
  calls.push_back(Begin(kLongRows, RequestClass::kBatch));
  AwaitExecuting(1);
  for (int i = 0; i < 30; ++i) calls.push_back(Begin(1, RequestClass::kBatch));
  int ok = 0;
  int refused = 0;
  for (auto& call : calls) {
    const grpc::Status status = call->Wait();
    if (status.ok()) {
      ++ok;
      continue;
    }
    ++refused;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("Exceeds maximum queue size"));
    EXPECT_EQ(call->context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  }
  EXPECT_EQ(ok + refused, 31);
  EXPECT_GE(ok, 1);
  EXPECT_GE(refused, 1);
  EXPECT_EQ(Metric("sluice_rejected_total", {"class=\"batch\"", "reason=\"queue_full\""}), refused);
  EXPECT_EQ(Metric("sluice_requests_total", {"class=\"batch\"", "code=\"OK\""}), ok);
  EXPECT_EQ(Metric("sluice_requests_total", {"class=\"batch\"", "code=\"UNAVAILABLE\""}), refused);
}

TEST_F(ServerTest, BytesOfTheQueueAreBounded) {
  server::ServerConfig config = SmallConfig();
  config.queue_bytes = 4096;  // 16 rows of the chain
  Start(config);
  const grpc::Status status = Infer(Request("chain", 17), nullptr, "batch");
  EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNAVAILABLE));
  EXPECT_TRUE(Infer(Request("chain", 16), nullptr, "batch").ok());
}

TEST_F(ServerTest, LatencyRequestOvertakesBatchWork) {
  Start(SmallConfig());
  std::vector<std::unique_ptr<PendingCall>> batch;
  for (int i = 0; i < 4; ++i) batch.push_back(Begin(kLongRows, RequestClass::kBatch));
  AwaitExecuting(1);
  EXPECT_TRUE(Infer(Request("chain", 1), nullptr, "latency").ok());
  // Four long requests were there first; the last of them cannot be over when one that came later was not held up.
  EXPECT_FALSE(batch.back()->Done());
  for (auto& call : batch) EXPECT_TRUE(call->Wait().ok());
  EXPECT_EQ(Metric("sluice_request_duration_seconds_count", {"class=\"latency\"", "contended=\"true\""}), 1);
}

/// The class that answered.
std::string UsedClass(const PendingCall& call) {
  const auto& parameters = call.response().parameters();
  const auto found = parameters.find("sluice_class");
  return found == parameters.end() ? "" : found->second.string_param();
}

TEST_F(ServerTest, LatencyRequestsOverTheirShareRunAsStandardBesideOtherWork) {
  server::ServerConfig config = SmallConfig();
  config.max_latency_share = 0.01;  // So each of these takes seconds of the share.
  Start(config);
  const auto latency_pair = [&] {
    std::vector<std::string> classes;
    auto first = Begin(kLongRows, RequestClass::kLatency);
    auto second = Begin(kLongRows, RequestClass::kLatency);
    for (const auto& call : {first.get(), second.get()}) {
      EXPECT_TRUE(call->Wait().ok());
      classes.push_back(UsedClass(*call));
    }
    return classes;
  };
  EXPECT_THAT(latency_pair(), Each("latency"));     // Nobody else is there.
  std::vector<std::unique_ptr<PendingCall>> batch;  // enough to be there until both have come
  for (int k = 0; k < 8; ++k) batch.push_back(Begin(kLongRows, RequestClass::kBatch));
  AwaitExecuting(1);
  EXPECT_THAT(latency_pair(), Contains("standard"));
  for (auto& call : batch) EXPECT_TRUE(call->Wait().ok());
  EXPECT_GE(Metric("sluice_demoted_total", {"class=\"latency\"", "reason=\"latency_share\""}), 1);
  EXPECT_EQ(Metric("sluice_rejected_total", {"reason=\"latency_share\""}), 0);
}

TEST_F(ServerTest, StrictClassRefusesWhatIsOverTheLatencyShare) {
  server::ServerConfig config = SmallConfig();
  config.max_latency_share = 0.01;
  config.strict_class = true;
  Start(config);
  // The ceiling holds while other work is there, so there is enough of it until both have come.
  std::vector<std::unique_ptr<PendingCall>> batch;
  for (int k = 0; k < 8; ++k) batch.push_back(Begin(kLongRows, RequestClass::kBatch));
  AwaitExecuting(1);
  auto first = Begin(kLongRows, RequestClass::kLatency);
  auto second = Begin(kLongRows, RequestClass::kLatency);
  int refused = 0;
  for (PendingCall* call : {first.get(), second.get()}) {
    const grpc::Status status = call->Wait();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("--max-latency-share"));
    EXPECT_EQ(call->context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  }
  EXPECT_EQ(refused, 1);
  for (auto& call : batch) EXPECT_TRUE(call->Wait().ok());
  EXPECT_EQ(Metric("sluice_rejected_total", {"class=\"latency\"", "reason=\"latency_share\""}), 1);
}

TEST_F(ServerTest, WaitingRequestsMergeIntoOneExecution) {
  AddToRepository(
      repository_, "merging", DoublingModel(4),
      "max_batch_size: 8\ndynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 30000000 }\n");
  Start(SmallConfig());
  std::vector<std::unique_ptr<PendingCall>> calls;
  inference::ModelInferRequest request = Request("double", 2);
  request.set_model_name("merging");
  for (int i = 0; i < 4; ++i) calls.push_back(std::make_unique<PendingCall>(*stub_, request));
  for (auto& call : calls) {
    ASSERT_TRUE(call->Wait().ok());
    const std::vector<float> in = Floats(request.raw_input_contents(0));
    const std::vector<float> out = Floats(call->response().raw_output_contents(0));
    ASSERT_EQ(out.size(), in.size());
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], 2 * in[i]);
  }
  const auto statistics = client_->ModelStatistics("merging");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ((*statistics)[0].inference_count, 8u);
  EXPECT_EQ((*statistics)[0].execution_count, 1u);
}

TEST_F(ServerTest, DrainLetsRequestsFinishAndRefusesNewOnes) {
  Start(SmallConfig());
  auto health = grpc::health::v1::Health::NewStub(channel_);
  const auto serving = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = health->Check(&context, request, &response);
    return status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  EXPECT_TRUE(serving(""));
  EXPECT_TRUE(serving("inference.GRPCInferenceService"));
  EXPECT_TRUE(serving("liveness"));
  EXPECT_TRUE(serving("chain"));
  EXPECT_FALSE(serving("nobody"));

  auto call = Begin(kLongRows, RequestClass::kBatch);
  AwaitExecuting(1);
  server_->serving().Drain();
  EXPECT_FALSE(serving(""));
  EXPECT_TRUE(serving("liveness"));
  EXPECT_EQ(Infer(Request("chain", 1)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(120)));
  EXPECT_TRUE(call->Wait().ok());
}

TEST_F(ServerTest, ShutdownWithoutGraceAnswersEverything) {
  Start(SmallConfig());
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (const RequestClass request_class : kRequestClasses) {
    for (int i = 0; i < 4; ++i) calls.push_back(Begin(kLongRows, request_class));
  }
  AwaitExecuting(1);
  server_->Shutdown(absl::ZeroDuration());
  for (auto& call : calls) {
    const grpc::Status status = call->Wait();
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED, grpc::StatusCode::OK));
  }
}

TEST_F(ServerTest, TwoHostDevicesBothServe) {
  server::ServerConfig config = SmallConfig();
  config.devices = "host:2";
  Start(config);
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 6; ++i) calls.push_back(Begin(512, RequestClass::kBatch));
  for (auto& call : calls) EXPECT_TRUE(call->Wait().ok());
  EXPECT_EQ(Metric("sluice_requests_total", {"code=\"OK\""}), 6);
}

TEST_F(ServerTest, OneBrokenModelLeavesTheOthersServing) {
  AddToRepository(repository_, "broken", "not an onnx file");
  server::ServerConfig config = SmallConfig();
  config.strict_readiness = true;
  Start(config);
  EXPECT_FALSE(*client_->ServerReady());
  EXPECT_TRUE(*client_->ServerLive());
  inference::ModelInferRequest request = Request("double", 1);
  EXPECT_TRUE(Infer(request).ok());
  request.set_model_name("broken");
  const grpc::Status status = Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("broken"));
}

TEST_F(ServerTest, APortInUseStopsTheStart) {
  Start(SmallConfig());
  server::ServerConfig config = SmallConfig();
  config.model_repository = repository_;
  config.address = "127.0.0.1";
  config.grpc_port = server_->grpc_port();
  config.metrics_port = 0;
  const auto second = server::Server::Start(config, clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(config.grpc_port)));
}

TEST_F(ServerTest, ManyRequestsOfAllClassesAreEachCountedOnce) {
  Start(SmallConfig());
  constexpr int kRounds = 40;
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < kRounds; ++i) {
    for (const RequestClass request_class : kRequestClasses) calls.push_back(Begin(1 + i % 20, request_class));
  }
  for (auto& call : calls) EXPECT_TRUE(call->Wait().ok());
  for (const RequestClass request_class : kRequestClasses) {
    const std::string label = absl::StrCat("class=\"", RequestClassName(request_class), "\"");
    EXPECT_EQ(Metric("sluice_requests_total", {label, "code=\"OK\""}), kRounds);
    EXPECT_EQ(Metric("sluice_request_duration_seconds_count", {label}), kRounds);
    EXPECT_EQ(Metric("sluice_queue_depth", {label}), 0);
  }
  EXPECT_EQ(Metric("nv_inference_pending_request_count", {}), 0);
}

}  // namespace
}  // namespace sluice::testing
