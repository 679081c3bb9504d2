// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the extension system_shared_memory on the wire: its three methods, and requests that keep a region no longer
// than they need it. Method: a real client; a backend that holds requests until the test says otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rpc_fixture.h"
#include "server/shared_memory.h"
#include "tests/support/shared_memory_calls.h"
#include "tests/support/shared_memory_object.h"

namespace sluice::rpc {
namespace {

using grpc::StatusCode;
using testing::Contains;
using testing::HasSubstr;

class RpcSharedMemoryTest : public RpcTest {
 protected:
  void SetUp() override {
    RpcTest::SetUp();
    backend_.SetSharedMemory(&regions_);
    RpcOptions options;
    options.io_threads = 1;
    StartServer(options);
    stub_ = NewStub();
  }
  /// Waits until the I/O thread is through with what it had begun: there is one, and it takes one event after another.
  void AwaitIoThread() {
    grpc::ClientContext context;
    inference::ServerLiveResponse response;
    EXPECT_TRUE(stub_->ServerLive(&context, {}, &response).ok());
  }
  grpc::Status Register(const std::string& name, const std::string& key, uint64_t byte_size) {
    return RegisterRegion(*stub_, name, key, /*offset=*/16, byte_size);
  }
  grpc::Status Unregister(const std::string& name) { return UnregisterRegion(*stub_, name); }
  grpc::Status Status(const std::string& name, inference::SystemSharedMemoryStatusResponse& response) {
    inference::SystemSharedMemoryStatusRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    return stub_->SystemSharedMemoryStatus(&context, request, &response);
  }
  static inference::ModelInferRequest RequestInRegion() {
    inference::ModelInferRequest request = EchoRequest();
    request.clear_raw_input_contents();
    request.add_outputs()->set_name("y");
    for (auto* parameters :
         {request.mutable_inputs(0)->mutable_parameters(), request.mutable_outputs(0)->mutable_parameters()}) {
      (*parameters)["shared_memory_region"].set_string_param("r");
      (*parameters)["shared_memory_byte_size"].set_int64_param(16);
    }
    return request;
  }
  /// The region that "r" names now.
  std::weak_ptr<const server::SharedMemoryRegion> Region() {
    const auto slice = regions_.Find("r", 0, 0);
    EXPECT_TRUE(slice.ok());
    return slice->region;
  }

  const SharedMemoryObject object_{4096};
  server::SharedMemoryRegions regions_{{.regions = 8, .bytes = 1 << 20, .name_bytes = 64}};
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

TEST_F(RpcSharedMemoryTest, RegistersDescribesAndUnregisters) {
  EXPECT_TRUE(Register("a", object_.key(), 64).ok());
  EXPECT_TRUE(Register("b", object_.key(), 32).ok());
  const grpc::Status again = Register("a", object_.key(), 64);
  EXPECT_EQ(again.error_code(), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(again.error_message(), "shared memory region 'a' already in manager");
  EXPECT_EQ(Register("c", object_.key() + "_none", 64).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Register("c", object_.key(), 4096).error_code(), StatusCode::INVALID_ARGUMENT);

  inference::SystemSharedMemoryStatusResponse response;
  ASSERT_TRUE(Status("", response).ok());
  EXPECT_EQ(response.regions_size(), 2);
  const auto& a = response.regions().at("a");
  EXPECT_EQ(a.name(), "a");
  EXPECT_EQ(a.key(), object_.key());
  EXPECT_EQ(a.offset(), 16u);
  EXPECT_EQ(a.byte_size(), 64u);
  response.Clear();
  ASSERT_TRUE(Status("b", response).ok());
  EXPECT_EQ(response.regions_size(), 1);
  const grpc::Status unknown = Status("c", response);
  EXPECT_EQ(unknown.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "Unable to find system shared memory region: 'c'");

  EXPECT_TRUE(Unregister("c").ok()) << "as Triton: nothing to do is no error";
  EXPECT_TRUE(Unregister("a").ok());
  EXPECT_EQ(Status("a", response).error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(Unregister("").ok());
  response.Clear();
  EXPECT_TRUE(Status("", response).ok());
  EXPECT_EQ(response.regions_size(), 0);
}

TEST_F(RpcSharedMemoryTest, IsAdvertised) {
  grpc::ClientContext context;
  inference::ServerMetadataResponse response;
  ASSERT_TRUE(stub_->ServerMetadata(&context, {}, &response).ok());
  EXPECT_THAT(response.extensions(), Contains("system_shared_memory"));
}

TEST_F(RpcSharedMemoryTest, ARequestLetsGoOfItsRegionWhenTheBackendIsDone) {
  // Goal: neither the call that is kept for the next one, nor one that waits for its client, holds a region. Method:
  // requests that are answered, refused and cancelled, after the name is gone.
  for (const bool answer : {true, false}) {
    ASSERT_TRUE(Register("r", object_.key(), 64).ok());
    const auto region = Region();
    AsyncCall call(*stub_, RequestInRegion());
    std::shared_ptr<server::InferRequest> request = backend_.Take();
    ASSERT_TRUE(Unregister("r").ok());
    EXPECT_FALSE(region.expired());
    EXPECT_EQ(request->inputs[0].region.region, region.lock());
    if (answer) {
      server::InferResult result;
      result.outputs.push_back({0, {1, 4}, ""});
      EXPECT_TRUE(request->Finish(std::move(result)));
    } else {
      call.Cancel();
      backend_.AwaitCancelled(1);
    }
    EXPECT_EQ(call.Await().ok(), answer);
    AwaitIoThread();
    EXPECT_FALSE(region.expired());
    request.reset();
    EXPECT_TRUE(region.expired());
  }
}

TEST_F(RpcSharedMemoryTest, ARefusedRequestLetsGoAtOnce) {
  ASSERT_TRUE(Register("r", object_.key(), 64).ok());
  const auto region = Region();
  inference::ModelInferRequest request = RequestInRegion();
  request.mutable_inputs(0)->set_shape(1, 5);
  inference::ModelInferResponse response;
  for (int i = 0; i < 100; ++i) {  // more than there are calls armed
    grpc::ClientContext context;
    EXPECT_EQ(stub_->ModelInfer(&context, request, &response).error_code(), StatusCode::INVALID_ARGUMENT);
  }
  ASSERT_TRUE(Unregister("r").ok());
  AwaitIoThread();
  EXPECT_TRUE(region.expired());
}

}  // namespace
}  // namespace sluice::rpc
