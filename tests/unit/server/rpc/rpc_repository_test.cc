// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: control calls reach the backend as they were meant, are answered when it is done, and hold up neither I/O
// threads nor the end of a server. Method: a backend whose answers the test gives.
#include <gmock/gmock.h>
#include <grpc/support/time.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "rpc_fixture.h"

namespace sluice::rpc {
namespace {

using inference::RepositoryModelLoadRequest;
using inference::RepositoryModelLoadResponse;
using inference::RepositoryModelUnloadRequest;
using inference::RepositoryModelUnloadResponse;
using testing::ElementsAre;
using testing::HasSubstr;

class RpcRepositoryTest : public RpcTest {
 protected:
  void SetUp() override {
    RpcTest::SetUp();
    backend_.AllowModelControl(true);
    RpcOptions options;
    options.io_threads = 1;  // a call that blocked it would hold up all others
    StartServer(options);
    stub_ = NewStub();
  }

  /// A load under way on a client's own queue.
  class Load {
   public:
    Load(inference::GRPCInferenceService::Stub& stub, const RepositoryModelLoadRequest& request) {
      reader_ = stub.AsyncRepositoryModelLoad(&context_, request, &queue_);
      reader_->Finish(&response_, &status_, this);
    }
    ~Load() {
      queue_.Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue_.Next(&tag, &ok)) {
      }
    }
    void Cancel() { context_.TryCancel(); }
    /// Once.
    grpc::Status Await() {
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      return status_;
    }

   private:
    grpc::ClientContext context_;
    grpc::CompletionQueue queue_;
    RepositoryModelLoadResponse response_;
    grpc::Status status_;
    std::unique_ptr<grpc::ClientAsyncResponseReader<RepositoryModelLoadResponse>> reader_;
  };

  static RepositoryModelLoadRequest LoadRequest(const std::string& name) {
    RepositoryModelLoadRequest request;
    request.set_model_name(name);
    return request;
  }
  grpc::Status CallLoad(const RepositoryModelLoadRequest& request) {
    grpc::ClientContext context;
    RepositoryModelLoadResponse response;
    return stub_->RepositoryModelLoad(&context, request, &response);
  }
  grpc::Status CallUnload(const RepositoryModelUnloadRequest& request) {
    grpc::ClientContext context;
    RepositoryModelUnloadResponse response;
    return stub_->RepositoryModelUnload(&context, request, &response);
  }
  bool IsLive() {
    grpc::ClientContext context;
    inference::ServerLiveResponse response;
    return stub_->ServerLive(&context, {}, &response).ok();
  }
  void AwaitAbandoned(const ControlCall& call) {
    while (!call.abandoned->load()) ASSERT_TRUE(IsLive());
  }

  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

TEST_F(RpcRepositoryTest, TheIndexIsTheBackends) {
  backend_.SetIndex(std::vector<server::ModelIndexEntry>{
      {"a", "", server::ModelState::kNone, ""},
      {"b", "1", server::ModelState::kLoading, ""},
      {"b", "2", server::ModelState::kReady, ""},
      {"c", "1", server::ModelState::kUnloading, ""},
      {"d", "7", server::ModelState::kUnavailable, "byte \xff is wrong"},
  });
  inference::RepositoryIndexRequest request;
  inference::RepositoryIndexResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->RepositoryIndex(&context, request, &response).ok());
  }
  std::vector<std::string> rows;
  for (const auto& model : response.models()) {
    rows.push_back(model.name() + "," + model.version() + "," + model.state() + "," + model.reason());
  }
  EXPECT_THAT(rows,
              ElementsAre("a,,,", "b,1,LOADING,", "b,2,READY,", "c,1,UNLOADING,", "d,7,UNAVAILABLE,byte ? is wrong"));
  EXPECT_EQ(backend_.last_index_question(), " all");

  backend_.SetIndex(absl::InvalidArgumentError("repository_name: no"));
  request.set_repository_name("other");
  request.set_ready(true);
  grpc::ClientContext context;
  const grpc::Status status = stub_->RepositoryIndex(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(backend_.last_index_question(), "other ready");
}

TEST_F(RpcRepositoryTest, ALoadIsAnsweredWhenItIsOver) {
  RepositoryModelLoadRequest request = LoadRequest("m");
  (*request.mutable_parameters())["config"].set_string_param("{}");
  Load load(*stub_, request);
  ControlCall call = backend_.TakeControl();
  EXPECT_TRUE(call.load);
  EXPECT_EQ(call.name, "m");
  EXPECT_EQ(call.given.config, "{}");
  EXPECT_TRUE(call.given.files.empty());
  // While it runs, the one I/O thread serves others; more loads wait than were armed.
  std::vector<std::unique_ptr<Load>> more;
  for (int i = 0; i < 10; ++i) more.push_back(std::make_unique<Load>(*stub_, LoadRequest("other")));
  for (int i = 0; i < 10; ++i) {
    ControlCall other = backend_.TakeControl();
    EXPECT_EQ(other.given.config, std::nullopt);
    other.done(absl::InternalError("failed to load 'other'"));
  }
  for (auto& other : more) {
    const grpc::Status status = other->Await();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(status.error_message(), "failed to load 'other'");
  }
  EXPECT_TRUE(IsLive());
  EXPECT_FALSE(call.abandoned->load());
  call.done(absl::OkStatus());
  EXPECT_TRUE(load.Await().ok());
}

TEST_F(RpcRepositoryTest, FilesReachTheBackendByPath) {
  const std::string bytes("\0\xff\n", 3);
  RepositoryModelLoadRequest request = LoadRequest("m");
  (*request.mutable_parameters())["config"].set_string_param("{}");
  (*request.mutable_parameters())["file:1/model.onnx"].set_bytes_param(bytes);
  (*request.mutable_parameters())["file:../up"].set_bytes_param("");  // the backend knows what a path may be
  Load load(*stub_, request);
  ControlCall call = backend_.TakeControl();
  EXPECT_EQ(call.given.config, "{}");
  EXPECT_THAT(call.given.files, ElementsAre(testing::Pair("../up", ""), testing::Pair("1/model.onnx", bytes)));
  call.done(absl::OkStatus());
  EXPECT_TRUE(load.Await().ok());
}

TEST_F(RpcRepositoryTest, AnUnloadTakesItsParameter) {
  RepositoryModelUnloadRequest request;
  request.set_model_name("m");
  (*request.mutable_parameters())["unload_dependents"].set_bool_param(true);
  Thread answers("answers", [this] {
    ControlCall call = backend_.TakeControl();
    EXPECT_FALSE(call.load);
    EXPECT_EQ(call.name, "m");
    call.done(absl::OkStatus());
  });
  EXPECT_TRUE(CallUnload(request).ok());
}

TEST_F(RpcRepositoryTest, WhatIsWrongWithACallIsSaidAtOnce) {
  const auto expect = [](const grpc::Status& status, grpc::StatusCode code, const std::string& words) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
  RepositoryModelLoadRequest named = LoadRequest("m");
  named.set_repository_name("r");
  expect(CallLoad(named), kUnimplemented, "repository_name: expected nothing");
  expect(CallLoad({}), kInvalid, "model_name");
  const auto load_with = [&](const std::string& key, auto set) {
    RepositoryModelLoadRequest request = LoadRequest("m");
    set((*request.mutable_parameters())[key]);
    return CallLoad(request);
  };
  expect(load_with("config", [](auto& parameter) { parameter.set_int64_param(1); }), kInvalid,
         "parameter 'config': expected string_param (JSON), got int64_param");
  expect(load_with("config", [](auto&) {}), kInvalid, "got nothing");
  expect(load_with("file:1/model.onnx", [](auto& parameter) { parameter.set_bytes_param("x"); }), kInvalid,
         "parameter 'config': expected a config (JSON) beside 'file:...', got nothing");
  expect(load_with("file:1/model.onnx", [](auto& parameter) { parameter.set_string_param("x"); }), kInvalid,
         "parameter 'file:1/model.onnx': expected bytes_param, got string_param");
  expect(load_with("files", [](auto& parameter) { parameter.set_bytes_param("x"); }), kInvalid,
         "parameter 'files': expected 'config' or 'file:<version>/<file>'");
  expect(load_with("unload_dependents", [](auto& parameter) { parameter.set_bool_param(true); }), kInvalid,
         "parameter 'unload_dependents': expected 'config'");

  RepositoryModelUnloadRequest unload;
  expect(CallUnload(unload), kInvalid, "model_name");
  unload.set_model_name("m");
  (*unload.mutable_parameters())["unload_dependents"].set_string_param("yes");
  expect(CallUnload(unload), kInvalid, "parameter 'unload_dependents': expected bool_param, got string_param");
  (*unload.mutable_parameters())["unload_dependents"].set_bool_param(false);
  (*unload.mutable_parameters())["config"].set_string_param("{}");
  expect(CallUnload(unload), kInvalid, "parameter 'config': expected 'unload_dependents'");
  unload.set_repository_name("r");
  expect(CallUnload(unload), kUnimplemented, "repository_name");
}

// Goal: a client that gives up is answered, the backend is told, and its late answer harms nobody. Method: cancel a
// load that the backend holds; answer it afterwards.
TEST_F(RpcRepositoryTest, AClientMayGiveUp) {
  Load load(*stub_, LoadRequest("m"));
  ControlCall call = backend_.TakeControl();
  load.Cancel();
  EXPECT_EQ(load.Await().error_code(), grpc::StatusCode::CANCELLED);
  AwaitAbandoned(call);
  call.done(absl::OkStatus());
  EXPECT_TRUE(IsLive());
}

// Goal: a backend that is slow, or never answers, does not keep a server from its end. Method: hold two loads, drain
// without grace, and answer one when the server is gone.
TEST_F(RpcRepositoryTest, TheEndDoesNotWaitForTheBackend) {
  Load late(*stub_, LoadRequest("m"));
  Load never(*stub_, LoadRequest("n"));
  ControlCall first = backend_.TakeControl();
  ControlCall second = backend_.TakeControl();
  server_->Drain(absl::ZeroDuration());
  EXPECT_FALSE(late.Await().ok());
  EXPECT_FALSE(never.Await().ok());
  EXPECT_TRUE(first.abandoned->load());
  server_.reset();
  first.done(absl::OkStatus());
}

TEST_F(RpcRepositoryTest, TheExtensionIsNamedWhereItIsServed) {
  const auto extensions = [this] {
    grpc::ClientContext context;
    inference::ServerMetadataResponse response;
    EXPECT_TRUE(stub_->ServerMetadata(&context, {}, &response).ok());
    return std::vector<std::string>(response.extensions().begin(), response.extensions().end());
  };
  EXPECT_THAT(extensions(), testing::IsSupersetOf({"model_repository", "model_repository(unload_dependents)"}));
  backend_.AllowModelControl(false);
  EXPECT_THAT(extensions(), testing::Not(testing::Contains("model_repository")));
}

}  // namespace
}  // namespace sluice::rpc
