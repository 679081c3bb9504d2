// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a restricted protocol serves those who carry its header and nobody else, and the others serve everybody.
// Method: every method with the right value, wrong ones, and none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "health.grpc.pb.h"
#include "rpc_fixture.h"

namespace sluice::rpc {
namespace {

using server::Protocol;
using testing::HasSubstr;
using testing::Not;

constexpr char kHeader[] = "triton-grpc-protocol-door";
constexpr char kSecret[] = "sesame";

class RpcAccessTest : public RpcTest {
 protected:
  using Call = std::function<grpc::Status(grpc::ClientContext&)>;

  void Restrict(Protocol protocol) {
    backend_.SetSharedMemory(&regions_);
    backend_.OnSubmit(
        [](const std::shared_ptr<server::InferRequest>& request) { request->Finish(EchoResult(*request)); });
    RpcOptions options;
    options.policy.access[static_cast<size_t>(protocol)] = {kHeader, kSecret};
    StartServer(options);
    const auto channel = NewChannel();
    stub_ = inference::GRPCInferenceService::NewStub(channel);
    health_ = grpc::health::v1::Health::NewStub(channel);
  }

  template <class Request, class Response>
  Call Of(grpc::Status (inference::GRPCInferenceService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Response*),
          Request request = {}) {
    return [this, method, request](grpc::ClientContext& context) {
      Response response;
      return (stub_.get()->*method)(&context, request, &response);
    };
  }

  std::multimap<Protocol, Call> Calls() {
    using Stub = inference::GRPCInferenceService::Stub;
    inference::ModelReadyRequest ready;
    inference::ModelMetadataRequest metadata;
    inference::ModelConfigRequest config;
    ready.set_name("echo");
    metadata.set_name("echo");
    config.set_name("echo");
    return {{Protocol::kHealth, Of(&Stub::ServerLive)},
            {Protocol::kHealth, Of(&Stub::ServerReady)},
            {Protocol::kHealth, Of(&Stub::ModelReady, ready)},
            {Protocol::kHealth,
             [this](grpc::ClientContext& context) {
               grpc::health::v1::HealthCheckResponse response;
               return health_->Check(&context, {}, &response);
             }},
            {Protocol::kHealth,
             [this](grpc::ClientContext& context) {
               const auto reader = health_->Watch(&context, {});
               grpc::health::v1::HealthCheckResponse response;
               if (!reader->Read(&response)) return reader->Finish();
               context.TryCancel();
               reader->Finish();
               return grpc::Status::OK;
             }},
            {Protocol::kMetadata, Of(&Stub::ServerMetadata)},
            {Protocol::kMetadata, Of(&Stub::ModelMetadata, metadata)},
            {Protocol::kModelConfig, Of(&Stub::ModelConfig, config)},
            {Protocol::kStatistics, Of(&Stub::ModelStatistics)},
            {Protocol::kSharedMemory, Of(&Stub::SystemSharedMemoryStatus)},
            {Protocol::kSharedMemory, Of(&Stub::SystemSharedMemoryUnregister)},
            {Protocol::kInference, Of(&Stub::ModelInfer, EchoRequest())}};
  }

  static grpc::Status With(const Call& call, const std::vector<std::string>& values) {
    grpc::ClientContext context;
    for (const std::string& value : values) context.AddMetadata(kHeader, value);
    return call(context);
  }

  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  server::SharedMemoryRegions regions_{{}};
};

TEST_F(RpcAccessTest, NeedsTheHeaderOfItsProtocol) {
  for (const Protocol restricted : {Protocol::kHealth, Protocol::kMetadata, Protocol::kModelConfig,
                                    Protocol::kStatistics, Protocol::kInference, Protocol::kSharedMemory}) {
    Restrict(restricted);
    for (const auto& [protocol, call] : Calls()) {
      if (protocol != restricted) {
        EXPECT_TRUE(With(call, {}).ok());
        continue;
      }
      EXPECT_TRUE(With(call, {kSecret}).ok());
      EXPECT_TRUE(With(call, {"wrong", kSecret}).ok());
      for (const std::vector<std::string>& wrong :
           {std::vector<std::string>{}, {""}, {"sesam"}, {"sesame2"}, {"Sesame"}, {"sesamf"}, {"wrong", "other"}}) {
        const grpc::Status status = With(call, wrong);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
        EXPECT_THAT(status.error_message(), HasSubstr("restricted"));
        EXPECT_THAT(status.error_message(), Not(HasSubstr(kSecret)));
        EXPECT_THAT(status.error_message(), Not(HasSubstr("door")));
      }
    }
    server_->Stop();
  }
}

// A refused inference is counted as any other that is answered, and never reaches the backend.
TEST_F(RpcAccessTest, RefusedInferenceIsNotSubmitted) {
  Restrict(Protocol::kInference);
  EXPECT_FALSE(With(Of(&inference::GRPCInferenceService::Stub::ModelInfer, EchoRequest()), {}).ok());
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(observer_.accepted(), 0);
}

}  // namespace
}  // namespace sluice::rpc
