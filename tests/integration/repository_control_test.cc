// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: clients load, replace and unload models of a server that answers others meanwhile: no request fails that named
// what was ready, and what goes leaves nothing behind. Method: a real server and real clients in this process; waiting
// is for what the server says of itself.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "health.grpc.pb.h"
#include "tests/integration/repository_fixture.h"
#include "tests/integration/tiny_models.h"

namespace sluice::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Rows for an execution that takes long enough to be met in mid-flight, on any machine.
constexpr int64_t kLongRows = 4096;

TEST_F(RepositoryControlTest, NothingIsLoadedUntilAskedFor) {
  StartExplicit();
  EXPECT_TRUE(ServerReady());
  EXPECT_EQ(Index(), "chain,,,; double,,,");
  EXPECT_EQ(Index(/*ready=*/true), "");
  const grpc::Status unknown = Infer(Request("double", 1));
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("unknown model 'double'"));
  ASSERT_TRUE(Load("double").ok());
  EXPECT_TRUE(Infer(Request("double", 3)).ok());
  EXPECT_EQ(Index(), "chain,,,; double,1,READY,");
  EXPECT_EQ(Index(/*ready=*/true), "double,1,READY,");
  EXPECT_TRUE(ServerReady());
}

TEST_F(RepositoryControlTest, LoadsAtStartWhatTheFlagNames) {
  StartExplicit({"double", "double"});
  EXPECT_EQ(Index(), "chain,,,; double,1,READY,");
  EXPECT_TRUE(Infer(Request("double", 1)).ok());
}

TEST_F(RepositoryControlTest, LoadsAllAtStartForAStar) {
  StartExplicit({"*"});
  EXPECT_EQ(Index(), "chain,1,READY,; double,1,READY,");
}

TEST_F(RepositoryControlTest, AnUnknownModelInTheFlagStopsTheStart) {
  server::ServerConfig config = SmallConfig();
  config.model_repository = repository_;
  config.address = "127.0.0.1";
  config.grpc_port = config.metrics_port = 0;
  config.model_control_mode = server::ModelControlMode::kExplicit;
  config.load_models = {"double", "nobody"};
  auto server = server::Server::Start(config, clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Status status = (*server)->LoadModels();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--load-model: expected a model of"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'nobody'"));
  EXPECT_FALSE((*server)->ready());
}

TEST_F(RepositoryControlTest, WithoutTheModeOnlyTheIndexIsServed) {
  Start(SmallConfig());
  EXPECT_EQ(Index(), "chain,1,READY,; double,1,READY,");
  for (const grpc::Status& status : {Load("double"), Unload("double")}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("--model-control-mode=none"));
  }
  EXPECT_TRUE(Infer(Request("double", 1)).ok());
}

TEST_F(RepositoryControlTest, TheIndexKnowsItsRepository) {
  StartExplicit();
  inference::RepositoryIndexRequest request;
  inference::RepositoryIndexResponse response;
  const auto ask = [&](const std::string& name) {
    grpc::ClientContext context;
    request.set_repository_name(name);
    return stub_->RepositoryIndex(&context, request, &response).error_code();
  };
  EXPECT_EQ(ask(repository_), grpc::StatusCode::OK);
  EXPECT_EQ(response.models_size(), 2);
  EXPECT_EQ(ask("another"), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RepositoryControlTest, FindsWhatWasAddedAfterTheStart) {
  StartExplicit();
  AddToRepository(repository_, "added", DoublingModel(4));
  EXPECT_EQ(Index(), "added,,,; chain,,,; double,,,");
  ASSERT_TRUE(Load("added").ok());
  EXPECT_TRUE(Infer(Request("added", 2)).ok());
  std::filesystem::remove_all(repository_ + "/double");
  EXPECT_EQ(Index(), "added,1,READY,; chain,,,");
}

TEST_F(RepositoryControlTest, ALoadTakesTheVersionsThatAreThereNow) {
  StartExplicit({"double"});
  std::filesystem::create_directories(repository_ + "/double/2");
  std::ofstream(repository_ + "/double/2/model.onnx", std::ios::binary) << DoublingModel(4);
  ASSERT_TRUE(Load("double").ok());
  AwaitIndex("chain,,,; double,1,UNAVAILABLE,unloaded; double,2,READY,");
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(Request("double", 1), &response).ok());
  EXPECT_EQ(response.model_version(), "2");
  inference::ModelInferRequest old = Request("double", 1);
  old.set_model_version("1");
  EXPECT_EQ(Infer(old).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RepositoryControlTest, AConfigInTheCallIsObeyedOnce) {
  StartExplicit();
  inference::ModelInferResponse response;
  ASSERT_TRUE(Load("double", R"({"max_batch_size": 2, "parameters":
      {"sluice.default_class": {"string_value": "latency"}}})")
                  .ok());
  ASSERT_TRUE(Infer(Request("double", 2), &response).ok());
  EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "latency");
  EXPECT_EQ(Infer(Request("double", 3)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(Load("double").ok());
  ASSERT_TRUE(Infer(Request("double", 3), &response).ok());
  EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "standard");
}

// Goal: a load that fails changes nothing, and says why. Method: one of each kind, beside a model that serves.
TEST_F(RepositoryControlTest, AFailedLoadLeavesTheOldOneServing) {
  StartExplicit({"double"});
  const double before = MemoryUse();
  const auto expect_failure = [&](const grpc::Status& status, grpc::StatusCode code, const std::string& words) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
    EXPECT_EQ(Index(), "chain,,,; double,1,READY,");
    EXPECT_TRUE(Infer(Request("double", 3)).ok());
    EXPECT_TRUE(ServerReady());
    EXPECT_EQ(MemoryUse(), before);
  };
  constexpr auto kInternal = grpc::StatusCode::INTERNAL;
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  expect_failure(Load("double", "{\"max_batch_size\""), kInvalid, "parameter 'config'");
  expect_failure(Load("double", "{\"no_such_field\": 1}"), kInvalid, "no_such_field");
  expect_failure(Load("double", std::string((1 << 20) + 1, ' ')), kInvalid, "at most 1048576 bytes");
  expect_failure(Load("double", R"({"input": [{"name": "z", "data_type": "TYPE_FP32", "dims": [4]}]})"), kInternal,
                 "failed to load 'double'");
  expect_failure(Load("double", R"({"version_policy": {"specific": {"versions": [7]}}})"), kInternal,
                 "no version folder '7'");
  for (const char* name : {"nobody", "../double", "double/1", "."}) {
    expect_failure(Load(name), kInternal, "there is no such model in the repository");
    expect_failure(Unload(name), kInternal, "there is no such model");
  }
  Break("double");
  expect_failure(Load("double"), kInternal, "failed to load 'double'");
}

TEST_F(RepositoryControlTest, AModelThatNeverLoadedIsMissedUntilItIsUnloaded) {
  StartExplicit({"double"});
  Break("chain");
  EXPECT_EQ(Load("chain").error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(Index(), HasSubstr("chain,1,UNAVAILABLE,version 1: "));
  EXPECT_EQ(Infer(Request("chain", 1)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(ServerReady());
  EXPECT_TRUE(Unload("chain").ok());
  EXPECT_EQ(Index(), "chain,1,UNAVAILABLE,unloaded; double,1,READY,");
  EXPECT_TRUE(ServerReady());
}

// Goal: a model is replaced under load without one failed request. Method: clients of every class call without a pause
// while it is loaded 20 times, every other time with another config.
TEST_F(RepositoryControlTest, NoRequestFailsWhileItsModelIsReplaced) {
  StartExplicit({"double"});
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0, failed = 0;
  std::vector<Thread> clients;
  for (const char* class_word : {"latency", "standard", "batch"}) {
    clients.emplace_back("client", [&, class_word] {
      while (!over.load()) {
        const grpc::Status status = Infer(Request("double", 1), nullptr, class_word);
        ++answered;
        if (status.ok()) continue;
        ++failed;
        ADD_FAILURE() << class_word << ": " << status.error_message();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const int before = answered.load();
    ASSERT_TRUE(Load("double", i % 2 == 0 ? "{\"max_batch_size\": 4}" : "").ok());
    while (answered.load() < before + 3) std::this_thread::yield();
  }
  over.store(true);
  clients.clear();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_GE(answered.load(), 60);
  EXPECT_EQ(Metric("nv_inference_request_success", {"model=\"double\"", "version=\"1\""}), answered.load())
      << "one series for all of them";
  EXPECT_EQ(Metric("sluice_model_ready", {"model=\"double\""}), 1);
}

// Goal: an unload answers at once, the requests that were there are answered, and the memory goes afterwards. Method:
// requests that execute and that wait are met in mid-flight.
TEST_F(RepositoryControlTest, AnUnloadAnswersWhatIsInFlight) {
  StartExplicit({"double"});
  const double before = MemoryUse();
  ASSERT_TRUE(Load("chain").ok());
  EXPECT_GT(MemoryUse(), before);
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Begin(kLongRows, RequestClass::kStandard));
  AwaitExecuting(1);
  ASSERT_TRUE(Unload("chain").ok());
  EXPECT_THAT(Index(), AnyOf("chain,1,UNLOADING,; double,1,READY,", "chain,1,UNAVAILABLE,unloaded; double,1,READY,"));
  EXPECT_EQ(Infer(Request("chain", 1)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(ServerReady());
  for (auto& call : calls) {
    const grpc::Status status = call->Wait();
    // One that had not arrived yet came to a model that takes none.
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE) << status.error_message();
  }
  EXPECT_TRUE(calls.front()->Wait().ok());
  AwaitIndex("chain,1,UNAVAILABLE,unloaded; double,1,READY,");
  EXPECT_EQ(MemoryUse(), before);
  EXPECT_EQ(Metric("sluice_model_ready", {"model=\"chain\""}), 0);
  EXPECT_EQ(Metric("sluice_slots", {}), Metric("sluice_slots_free", {}));
  ASSERT_TRUE(Load("chain").ok());
  EXPECT_TRUE(Infer(Request("chain", 1)).ok());
}

// Goal: a scrape shows the plans that answer, also while others of the version are there. Method: loads that differ in
// their rows, while requests hold the first.
TEST_F(RepositoryControlTest, AScrapeShowsTheNewestOfAVersion) {
  StartExplicit({"chain"});
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 16; ++i) calls.push_back(Begin(kLongRows, RequestClass::kBatch));
  AwaitExecuting(1);
  for (const int rows : {1, 2, 3, 4, 5, 6, 7}) {
    ASSERT_TRUE(Load("chain", absl::StrCat("{\"max_batch_size\": ", rows, "}")).ok());
    EXPECT_EQ(Metric("sluice_batch_plan_rows", {"model=\"chain\""}), rows);
  }
  for (const auto& call : calls) EXPECT_TRUE(call->Wait().ok());
}

TEST_F(RepositoryControlTest, LoadsAndUnloadsLeaveNothingBehind) {
  StartExplicit({"double"});
  const double before = MemoryUse();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Load("chain").ok());
    ASSERT_TRUE(Infer(Request("chain", 3), nullptr, i % 2 == 0 ? "latency" : "batch").ok());
    ASSERT_GT(MemoryUse(), before);
    ASSERT_TRUE(Unload("chain").ok());
    AwaitIndex("chain,1,UNAVAILABLE,unloaded; double,1,READY,");
    ASSERT_EQ(MemoryUse(), before) << "after " << i;
  }
}

// Goal: 50 loads that fail at different places leave the memory as it was. Method: a file that is no model, a config
// that contradicts it, and one that does not fit, which is found out last.
TEST_F(RepositoryControlTest, FailedLoadsLeaveNothingBehind) {
  AddToRepository(repository_, "big", ChainModel(512, 2), "max_batch_size: 1\n");  // 1 MiB of weights
  AddToRepository(repository_, "broken", "this is no model");
  server::ServerConfig config = SmallConfig();
  config.model_control_mode = server::ModelControlMode::kExplicit;
  config.load_models = {"double"};
  config.pinned_memory_limit = 1 << 20;
  Start(config);
  const double before = MemoryUse();
  for (int i = 0; i < 50; ++i) {
    const grpc::Status status = i % 3 == 0   ? Load("big")
                                : i % 3 == 1 ? Load("broken")
                                             : Load("chain", R"({"output": [{"name": "no", "dims": [64]}]})");
    ASSERT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
  }
  EXPECT_THAT(Load("big").error_message(), HasSubstr("does not fit on host:0"));
  EXPECT_EQ(MemoryUse(), before);
  EXPECT_TRUE(Infer(Request("double", 8)).ok());
}

TEST_F(RepositoryControlTest, OurOwnClientDoesTheSame) {
  StartExplicit();
  EXPECT_TRUE(client_->LoadModel("double", "{\"max_batch_size\": 2}").ok());
  const auto config = client_->ModelConfig("double");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 2);
  EXPECT_EQ(client_->LoadModel("nobody").code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(client_->LoadModel("brought", "{\"max_batch_size\": 3}", {{"7/model.onnx", DoublingModel(2)}}).ok());
  const auto brought = client_->ModelMetadata("brought", "7");
  ASSERT_TRUE(brought.ok()) << brought.status();
  EXPECT_EQ(brought->inputs[0].shape, (std::vector<int64_t>{-1, 2}));
  EXPECT_TRUE(client_->UnloadModel("brought").ok());
  EXPECT_TRUE(client_->UnloadModel("double").ok());
  AwaitIndex("chain,,,; double,1,UNAVAILABLE,unloaded");
  const auto index = client_->RepositoryIndex();
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ(index->size(), 2u);
  EXPECT_EQ(index->back().state, "UNAVAILABLE");
  EXPECT_EQ(index->back().reason, "unloaded");
}

TEST_F(RepositoryControlTest, WatchesHearOfLoadsAndUnloads) {
  using grpc::health::v1::HealthCheckResponse;
  StartExplicit();
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("double");
  const auto watch = health->Watch(&context, request);
  HealthCheckResponse response;
  const auto next = [&] { return watch->Read(&response) ? response.status() : HealthCheckResponse::UNKNOWN; };
  EXPECT_EQ(next(), HealthCheckResponse::SERVICE_UNKNOWN);
  ASSERT_TRUE(Load("double").ok());
  auto status = next();
  while (status == HealthCheckResponse::NOT_SERVING) status = next();  // it is loading
  EXPECT_EQ(status, HealthCheckResponse::SERVING);
  ASSERT_TRUE(Unload("double").ok());
  EXPECT_EQ(next(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
}

// Goal: a server ends with loads under way and waiting, each answered. Method: many at once, then the end at once.
TEST_F(RepositoryControlTest, TheEndAnswersLoadsThatWait) {
  StartExplicit({"double"});
  std::atomic<int> answered = 0;
  std::vector<Thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back("client", [&] {
      while (true) {
        const grpc::Status status = Load("chain");
        ++answered;
        if (status.ok()) continue;
        EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED))
            << status.error_message();
        return;
      }
    });
  }
  while (answered.load() < 1) std::this_thread::yield();
  server_->Shutdown(absl::Seconds(30));
  clients.clear();
}

}  // namespace
}  // namespace sluice::testing
