// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "health.grpc.pb.h"
#include "rpc_fixture.h"

namespace sluice::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using testing::ElementsAre;
using testing::HasSubstr;

/// A method of the stub with one name.
template <class Request, class Response>
using StubMethod = grpc::Status (inference::GRPCInferenceService::Stub::*)(grpc::ClientContext*, const Request&,
                                                                           Response*);

class RpcMethodsTest : public RpcTest {
 protected:
  void SetUp() override {
    RpcTest::SetUp();
    backend_.AddModel(MakeModel("loading", {}, {}, 0, {}));
    StartServer();
    stub_ = NewStub();
    health_ = Health::NewStub(NewChannel());
  }
  template <class Request, class Response>
  grpc::Status Call(StubMethod<Request, Response> method, const Request& request, Response& response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, &response);
  }
  template <class Request, class Response>
  grpc::Status CallNamed(StubMethod<Request, Response> method, const std::string& name, Response& response,
                         const std::string& version = "") {
    Request request;
    request.set_name(name);
    request.set_version(version);
    return Call(method, request, response);
  }
  grpc::StatusCode Check(const std::string& name, HealthCheckResponse& response) {
    HealthCheckRequest request;
    request.set_service(name);
    grpc::ClientContext context;
    return health_->Check(&context, request, &response).error_code();
  }

  using Stub = inference::GRPCInferenceService::Stub;
  std::unique_ptr<Stub> stub_;
  std::unique_ptr<Health::Stub> health_;
};

// Goal: liveness and readiness are the backend's. Method: switch them.
TEST_F(RpcMethodsTest, LiveAndReady) {
  inference::ServerLiveResponse live;
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(Call(&Stub::ServerLive, {}, live).ok());
  EXPECT_TRUE(live.live());
  EXPECT_TRUE(Call(&Stub::ServerReady, {}, ready).ok());
  EXPECT_TRUE(ready.ready());
  backend_.SetReady(false);
  backend_.SetLive(false);
  EXPECT_TRUE(Call(&Stub::ServerLive, {}, live).ok());
  EXPECT_FALSE(live.live());
  EXPECT_TRUE(Call(&Stub::ServerReady, {}, ready).ok());
  EXPECT_FALSE(ready.ready());
}

// Goal: an unknown model is an error, one that loads is not ready. Method: one of each.
TEST_F(RpcMethodsTest, ModelReady) {
  inference::ModelReadyResponse response;
  EXPECT_TRUE(CallNamed<inference::ModelReadyRequest>(&Stub::ModelReady, "echo", response).ok());
  EXPECT_TRUE(response.ready());
  EXPECT_TRUE(CallNamed<inference::ModelReadyRequest>(&Stub::ModelReady, "loading", response).ok());
  EXPECT_FALSE(response.ready());
  EXPECT_EQ(CallNamed<inference::ModelReadyRequest>(&Stub::ModelReady, "nope", response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(CallNamed<inference::ModelReadyRequest>(&Stub::ModelReady, "echo", response, "x").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// Goal: what perf_analyzer reads at start. Method: its four calls.
TEST_F(RpcMethodsTest, Metadata) {
  inference::ServerMetadataResponse server;
  EXPECT_TRUE(Call(&Stub::ServerMetadata, {}, server).ok());
  EXPECT_EQ(server.name(), "sluice");
  EXPECT_THAT(server.version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(server.extensions(), ElementsAre("model_configuration", "statistics", "schedule_policy"));

  inference::ModelMetadataResponse model;
  EXPECT_TRUE(CallNamed<inference::ModelMetadataRequest>(&Stub::ModelMetadata, "echo", model).ok());
  EXPECT_EQ(model.name(), "echo");
  EXPECT_EQ(model.platform(), "onnxruntime_onnx");
  EXPECT_THAT(model.versions(), ElementsAre("1", "3"));
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_EQ(model.inputs(0).name(), "x");
  EXPECT_EQ(model.inputs(0).datatype(), "FP32");
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre(-1, -1));
  ASSERT_EQ(model.outputs_size(), 1);
  model.Clear();
  EXPECT_TRUE(CallNamed<inference::ModelMetadataRequest>(&Stub::ModelMetadata, "echo", model, "3").ok());
  EXPECT_THAT(model.versions(), ElementsAre("3"));

  inference::ModelConfigResponse config;
  EXPECT_TRUE(CallNamed<inference::ModelConfigRequest>(&Stub::ModelConfig, "echo", config).ok());
  EXPECT_EQ(config.config().name(), "echo");
  EXPECT_EQ(config.config().max_batch_size(), 8);

  inference::ModelStatisticsResponse statistics;
  EXPECT_TRUE(CallNamed<inference::ModelStatisticsRequest>(&Stub::ModelStatistics, "echo", statistics).ok());
  ASSERT_EQ(statistics.model_stats_size(), 1);
  EXPECT_EQ(statistics.model_stats(0).inference_count(), 42u);
  EXPECT_EQ(CallNamed<inference::ModelStatisticsRequest>(&Stub::ModelStatistics, "nope", statistics).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

// Goal: methods that are not served say so at once. Method: names from the protocol and one that is nowhere.
TEST_F(RpcMethodsTest, OthersAreUnimplemented) {
  for (const char* name : {"SystemSharedMemoryStatus", "CudaSharedMemoryRegister", "Nothing"}) {
    EXPECT_EQ(CallRaw(std::string("/inference.GRPCInferenceService/") + name, "").error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

// Goal: each health name follows what it stands for. Method: check them all, then switch readiness off.
TEST_F(RpcMethodsTest, HealthCheck) {
  HealthCheckResponse response;
  for (const char* name : {"", "inference.GRPCInferenceService", "liveness", "echo"}) {
    EXPECT_EQ(Check(name, response), grpc::StatusCode::OK) << name;
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING) << name;
  }
  EXPECT_EQ(Check("loading", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Check("nope", response), grpc::StatusCode::NOT_FOUND);
  backend_.SetReady(false);
  for (const char* name : {"", "inference.GRPCInferenceService"}) {
    EXPECT_EQ(Check(name, response), grpc::StatusCode::OK);
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  }
  EXPECT_EQ(Check("liveness", response), grpc::StatusCode::OK);
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
}

// Goal: Watch sends the status at once and each change, for unknown names too. Method: watch two names, change both.
TEST_F(RpcMethodsTest, HealthWatch) {
  HealthCheckRequest request;
  HealthCheckResponse response;
  grpc::ClientContext server_context, model_context;
  const auto server = health_->Watch(&server_context, request);
  request.set_service("later");
  const auto model = health_->Watch(&model_context, request);
  ASSERT_TRUE(server->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  ASSERT_TRUE(model->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);

  server_->HealthChanged();  // nothing changed: nothing is sent, or the next reads would see it
  backend_.SetReady(false);
  server_->HealthChanged();
  ASSERT_TRUE(server->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  backend_.AddModel(MakeModel("later", {}, {}, 0, {}));
  server_->HealthChanged();
  ASSERT_TRUE(model->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  backend_.RemoveModel("later");
  server_->HealthChanged();
  ASSERT_TRUE(model->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);

  server_context.TryCancel();
  EXPECT_FALSE(server->Read(&response));
  EXPECT_EQ(server->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The other one goes on, and the server's end ends it: no client has to time out.
  server_->Drain(absl::Minutes(1));
  while (model->Read(&response)) {
  }
  EXPECT_EQ(model->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace sluice::rpc
