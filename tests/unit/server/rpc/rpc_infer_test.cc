// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "base/thread.h"
#include "rpc_fixture.h"
#include "server/rpc/grpc_status.h"

namespace sluice::rpc {
namespace {

using testing::HasSubstr;

constexpr char kInferMethod[] = "/inference.GRPCInferenceService/ModelInfer";

void Echo(std::shared_ptr<server::InferRequest> request) { request->Finish(EchoResult(*request)); }

// Goal: one request there and back with all that a client looks at. Method: echo backend, real client.
TEST_F(RpcTest, Infer) {
  backend_.OnSubmit(Echo);
  StartServer();
  auto stub = NewStub();
  inference::ModelInferRequest request = EchoRequest(2);
  request.set_id("id-7 \xc3\x9f");
  (*request.mutable_parameters())["sluice_timings"].set_bool_param(true);
  (*request.mutable_parameters())["priority"].set_uint64_param(1);
  inference::ModelInferResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), request.id());
  EXPECT_EQ(response.model_name(), "echo");
  EXPECT_EQ(response.model_version(), "3");
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "y");
  EXPECT_THAT(response.outputs(0).shape(), testing::ElementsAre(2, 4));
  EXPECT_EQ(response.raw_output_contents(0), request.raw_input_contents(0));
  EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "latency");
  EXPECT_EQ(response.parameters().at("sluice_queue_us").int64_param(), 7);
  EXPECT_EQ(response.parameters().at("sluice_compute_us").int64_param(), 11);
  EXPECT_GE(response.parameters().at("sluice_total_us").int64_param(), 0);
  EXPECT_LT(response.parameters().at("sluice_total_us").int64_param(), 60'000'000);

  const std::vector<AnsweredCall> answered = observer_.AwaitAnswered(1);
  EXPECT_EQ(answered[0].code, absl::StatusCode::kOk);
  EXPECT_EQ(answered[0].request_class, RequestClass::kLatency);
  EXPECT_TRUE(answered[0].submitted);
  EXPECT_EQ(answered[0].rows, 2);
  EXPECT_EQ(answered[0].request_bytes, request.ByteSizeLong());
  EXPECT_EQ(answered[0].response_bytes, response.ByteSizeLong());
  EXPECT_GE(answered[0].duration, absl::ZeroDuration());
}

// Goal: the class in the metadata wins, and an unknown word is refused. Method: three calls.
TEST_F(RpcTest, ClassMetadata) {
  backend_.OnSubmit(Echo);
  StartServer();
  auto stub = NewStub();
  const auto infer = [&](const std::vector<std::string>& words, inference::ModelInferResponse& response) {
    grpc::ClientContext context;
    for (const std::string& word : words) context.AddMetadata("sluice-class", word);
    return stub->ModelInfer(&context, EchoRequest(), &response);
  };
  inference::ModelInferResponse response;
  EXPECT_TRUE(infer({"batch"}, response).ok());
  EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "batch");
  EXPECT_EQ(infer({"fast"}, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(infer({"batch", "batch"}, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Goal: a message of many slices, plain and compressed, arrives byte by byte. Method: 4 MiB of a
// pattern, echoed: just over the limit that gRPC has unless it is told otherwise.
TEST_F(RpcTest, LargeAndCompressed) {
  backend_.OnSubmit(Echo);
  StartServer();
  auto stub = NewStub();
  inference::ModelInferRequest request = EchoRequest();
  request.mutable_inputs(0)->set_shape(1, 1 << 20);
  std::string raw(4 << 20, '\0');
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i * 7 + i / 65521);
  request.set_raw_input_contents(0, raw);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    inference::ModelInferResponse response;
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.raw_output_contents_size(), 1);
    EXPECT_TRUE(response.raw_output_contents(0) == raw);
  }
}

// Goal: errors keep their code and text, with the request's id, and a full queue its retry hint. Method: a backend that
// refuses.
TEST_F(RpcTest, BackendErrors) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> request) {
    absl::Status full = absl::UnavailableError("Exceeds maximum queue size");
    SetRetryPushback(full, absl::Milliseconds(40));
    request->Finish(full);
    EXPECT_FALSE(request->Finish(absl::InternalError("twice")));
  });
  StartServer();
  auto stub = NewStub();
  inference::ModelInferRequest request = EchoRequest();
  request.set_id("seven");
  AsyncCall call(*stub, request);
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call.Await().error_message(), "[request id: seven] Exceeds maximum queue size");
  const auto& trailers = call.context().GetServerTrailingMetadata();
  ASSERT_EQ(trailers.count("grpc-retry-pushback-ms"), 1u);
  EXPECT_EQ(trailers.find("grpc-retry-pushback-ms")->second, "40");
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kUnavailable);
}

// Goal: what cannot be parsed or does not fit the model never reaches the backend. Method: junk, an unknown model, a
// model name with bytes that are not UTF-8.
TEST_F(RpcTest, BadRequests) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> /*request*/) { FAIL() << "submitted"; });
  StartServer();
  EXPECT_EQ(CallRaw(kInferMethod, "\xff\xff junk").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallRaw(kInferMethod, std::string("\x0a\x01\xff", 3)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallRaw(kInferMethod, "").error_code(), grpc::StatusCode::NOT_FOUND);
  inference::ModelInferRequest request = EchoRequest();
  request.mutable_raw_input_contents(0)->pop_back();
  const grpc::Status short_by_one = CallRaw(kInferMethod, request.SerializeAsString());
  EXPECT_EQ(short_by_one.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(short_by_one.error_message(), HasSubstr("expected 16 bytes"));
  const std::vector<AnsweredCall> answered = observer_.AwaitAnswered(4);
  EXPECT_EQ(answered[0].model, nullptr);
  EXPECT_FALSE(answered[3].submitted);
  EXPECT_EQ(observer_.accepted(), 0);
}

// Goal: a request that is dropped is answered all the same. Method: a backend that forgets.
TEST_F(RpcTest, DroppedRequestIsInternal) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> request) { request.reset(); });
  StartServer();
  auto stub = NewStub();
  AsyncCall call(*stub, EchoRequest());
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::INTERNAL);
}

// Goal: an answer with other outputs than asked for never goes out; clients index them by position. Method: a backend
// that answers with none.
TEST_F(RpcTest, MissingOutputIsInternal) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> request) { request->Finish(server::InferResult()); });
  StartServer();
  auto stub = NewStub();
  AsyncCall call(*stub, EchoRequest());
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::INTERNAL);
}

// Goal: a client that cancels is seen, told to the backend, and counted. Method: keep the request, cancel, wait.
TEST_F(RpcTest, ClientCancels) {
  StartServer();
  auto stub = NewStub();
  AsyncCall call(*stub, EchoRequest());
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  EXPECT_FALSE(request->stopped);
  call.Cancel();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::CANCELLED);
  backend_.AwaitCancelled(1);
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kCancelled);
  EXPECT_TRUE(request->stopped);
  EXPECT_FALSE(request->Finish(EchoResult(*request)));
}

// Goal: a call ends at its deadline even if the backend does nothing, and is counted as that. Method: a deadline that
// only the server enforces (a client's own would cancel the call first) and a backend that ignores Cancel; the
// request's inputs must stay readable.
TEST_F(RpcTest, DeadlinePasses) {
  backend_.OnCancelAnswer(absl::OkStatus());
  StartServer();
  auto stub = NewStub();
  AsyncCall call(*stub, EchoRequest(), absl::InfiniteDuration(), "100m");
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  EXPECT_FALSE(request->deadline.is_infinite());
  EXPECT_LE(request->deadline - request->arrival, absl::Milliseconds(101));
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  backend_.AwaitCancelled(1);
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(EchoResult(*request).outputs[0].bytes, EchoRequest().raw_input_contents(0));
  EXPECT_FALSE(request->Finish(EchoResult(*request)));
}

// Goal: many calls at once, answered from other threads, each get their own answer. Method: 1,000 calls over four
// connections, two threads that answer in the order the requests come.
TEST_F(RpcTest, ThousandCallsAtOnce) {
  constexpr int kCalls = 1000;
  RpcOptions options;
  options.armed_calls = 16;
  StartServer(options);
  std::vector<Thread> answerers;
  for (int i = 0; i < 2; ++i) {
    answerers.emplace_back("answerer", [this] {
      for (int n = 0; n < kCalls / 2; ++n) Echo(backend_.Take());
    });
  }
  std::vector<std::unique_ptr<inference::GRPCInferenceService::Stub>> stubs;
  for (int i = 0; i < 4; ++i) stubs.push_back(NewStub());
  std::deque<AsyncCall> calls;
  for (int i = 0; i < kCalls; ++i) {
    inference::ModelInferRequest request = EchoRequest(1 + i % 8);
    request.set_id(std::to_string(i));
    calls.emplace_back(*stubs[static_cast<size_t>(i) % stubs.size()], request);
  }
  for (int i = 0; i < kCalls; ++i) {
    AsyncCall& call = calls[static_cast<size_t>(i)];
    ASSERT_TRUE(call.Await().ok()) << call.Await().error_message();
    EXPECT_EQ(call.response().id(), std::to_string(i));
    EXPECT_EQ(call.response().raw_output_contents(0), EchoRequest(1 + i % 8).raw_input_contents(0));
  }
  EXPECT_EQ(observer_.received(), kCalls);
  EXPECT_EQ(observer_.AwaitAnswered(kCalls).size(), static_cast<size_t>(kCalls));
}

// Goal: cancelling around the moment of the answer never answers twice or loses a call. Method: 300 calls, each
// answered by one thread while another cancels it; every call is answered once.
TEST_F(RpcTest, CancelRacesWithAnswer) {
  constexpr int kCalls = 300;
  StartServer();
  auto stub = NewStub();
  Thread answerer("answerer", [this] {
    while (const std::shared_ptr<server::InferRequest> request = backend_.Take()) Echo(request);
  });
  for (int i = 0; i < kCalls; ++i) {
    AsyncCall call(*stub, EchoRequest());
    observer_.AwaitReceived(i + 1);  // a call cancelled before that may never come
    call.Cancel();
    const grpc::StatusCode code = call.Await().error_code();
    EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(observer_.AwaitAnswered(kCalls).size(), static_cast<size_t>(kCalls));
  server_->Stop();
  backend_.Close();
  EXPECT_EQ(observer_.received(), kCalls);
  EXPECT_EQ(observer_.written(), kCalls);
}

}  // namespace
}  // namespace sluice::rpc
