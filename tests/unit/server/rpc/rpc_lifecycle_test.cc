// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "rpc_fixture.h"

namespace sluice::rpc {
namespace {

using testing::HasSubstr;

// Goal: a drain lets what is under way finish and takes nothing new. Method: hold a request, drain on another thread,
// see that new calls fail, then answer.
TEST_F(RpcTest, DrainFinishesWhatIsUnderWay) {
  StartServer();
  auto stub = NewStub();
  AsyncCall held(*stub, EchoRequest());
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  Thread drainer("drainer", [this] { server_->Drain(absl::Minutes(5)); });
  // The server stops listening at some moment after Drain began: until then new calls are held, and cancelled here.
  while (true) {
    AsyncCall probe(*stub, EchoRequest(), absl::Milliseconds(200));
    if (probe.Await().error_code() == grpc::StatusCode::UNAVAILABLE) break;
  }
  EXPECT_TRUE(request->Finish(EchoResult(*request)));
  EXPECT_TRUE(held.Await().ok()) << held.Await().error_message();
  drainer.Join();
}

// Goal: no backend can keep a server from stopping, and a request it still holds stays valid. Method: a backend that
// never answers and ignores Cancel.
TEST_F(RpcTest, StopCancelsWhatNeverEnds) {
  backend_.OnCancelAnswer(absl::OkStatus());
  StartServer();
  auto stub = NewStub();
  AsyncCall call(*stub, EchoRequest());
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  server_->Drain(absl::Milliseconds(20));
  EXPECT_FALSE(call.Await().ok());
  EXPECT_EQ(backend_.cancelled_count(), 1);
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kCancelled);
  server_->Stop();
  server_.reset();
  EXPECT_TRUE(request->stopped);
  EXPECT_EQ(request->model->name, "echo");
  EXPECT_EQ(EchoResult(*request).outputs[0].bytes, EchoRequest().raw_input_contents(0));
  EXPECT_FALSE(request->Finish(EchoResult(*request)));
}

// Goal: a polling I/O thread serves beside one that sleeps, alone, and lets the server stop. Method: one call each.
TEST_F(RpcTest, PollingThreadsServe) {
  backend_.OnSubmit(
      [](const std::shared_ptr<server::InferRequest>& request) { request->Finish(EchoResult(*request)); });
  for (const int io_threads : {1, 2}) {
    RpcOptions options;
    options.io_threads = io_threads;
    options.polling_threads = 1;
    StartServer(options);
    auto stub = NewStub();
    AsyncCall call(*stub, EchoRequest());
    EXPECT_TRUE(call.Await().ok()) << call.Await().error_message();
    server_->Stop();
  }
}

// Goal: Stop is idempotent from any thread and right after the start. Method: two threads at once, then again.
TEST_F(RpcTest, StopTwice) {
  StartServer();
  Thread other("stopper", [this] { server_->Stop(); });
  server_->Stop();
  other.Join();
  server_->Stop();
}

// Goal: two servers never share a port, and the message names it. Method: start a second one on the first one's port.
TEST_F(RpcTest, PortInUse) {
  StartServer();
  RpcOptions options;
  options.address = "127.0.0.1";
  options.port = server_->port();
  const absl::Status status = RpcServer::Start(options, backend_, observer_, clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(server_->port())));
}

// Goal: options that gRPC would bend or crash on are refused. Method: one of each.
TEST_F(RpcTest, BadOptions) {
  const auto start = [this](auto change) {
    RpcOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    change(options);
    return RpcServer::Start(options, backend_, observer_, clock_).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(start([](RpcOptions& o) { o.port = 99999; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.port = -1; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.io_threads = 0; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.polling_threads = o.io_threads + 1; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.armed_calls = 0; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.max_message_bytes = 0; }), kInvalid);
  EXPECT_EQ(start([](RpcOptions& o) { o.address = "256.1.1.1"; }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(start([](RpcOptions&) {}), absl::StatusCode::kOk);
}

// Goal: a message over the limit is refused by gRPC, one at the limit is served. Method: a limit of exactly one
// request.
TEST_F(RpcTest, MessageLimit) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> request) { request->Finish(EchoResult(*request)); });
  RpcOptions options;
  options.max_message_bytes = static_cast<int>(EchoRequest().ByteSizeLong());
  StartServer(options);
  auto stub = NewStub();
  inference::ModelInferRequest request = EchoRequest();
  AsyncCall at_limit(*stub, request);
  EXPECT_NE(at_limit.Await().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kOk);
  request.set_id("x");
  AsyncCall over_limit(*stub, request);
  EXPECT_EQ(over_limit.Await().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(observer_.received(), 1);
}

}  // namespace
}  // namespace sluice::rpc
