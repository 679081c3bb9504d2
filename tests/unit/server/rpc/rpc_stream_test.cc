// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/thread.h"
#include "rpc_fixture.h"
#include "server/rpc/grpc_status.h"

namespace sluice::rpc {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using testing::HasSubstr;

void Echo(std::shared_ptr<server::InferRequest> request) { request->Finish(EchoResult(*request)); }

/// One ModelStreamInfer call of a client of its own.
class Stream {
 public:
  explicit Stream(std::unique_ptr<inference::GRPCInferenceService::Stub> stub,
                  const std::vector<std::pair<std::string, std::string>>& metadata = {})
      : stub_(std::move(stub)) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    stream_ = stub_->ModelStreamInfer(&context_);
  }
  bool Send(const ModelInferRequest& request) { return stream_->Write(request); }
  /// The next response; a failure when the stream ended instead.
  ModelStreamInferResponse Receive() {
    ModelStreamInferResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  /// The next response; empty when the stream ended instead.
  ModelStreamInferResponse ReceiveAny() {
    ModelStreamInferResponse response;
    stream_->Read(&response);
    return response;
  }
  void Cancel() { context_.TryCancel(); }
  /// Sends no more, expects no further response, and returns the status.
  grpc::Status HalfClose() {
    stream_->WritesDone();
    return AwaitEnd();
  }
  grpc::Status AwaitEnd() {
    ModelStreamInferResponse response;
    EXPECT_FALSE(stream_->Read(&response)) << response.ShortDebugString();
    return stream_->Finish();
  }
  grpc::ClientContext& context() { return context_; }

 private:
  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>> stream_;
};

ModelInferRequest WithId(ModelInferRequest request, const std::string& id, uint64_t priority = 0) {
  request.set_id(id);
  if (priority > 0) (*request.mutable_parameters())["priority"].set_uint64_param(priority);
  return request;
}

// Goal: each request of a stream gets one response, in order, with all that a client looks at. Method: 500 requests
// answered by two threads, in turns of different sizes.
TEST_F(RpcTest, StreamKeepsOrder) {
  constexpr int kRequests = 500;
  StartServer();
  std::vector<Thread> answerers;
  for (int i = 0; i < 2; ++i) {
    answerers.emplace_back("answerer", [this] {
      while (const std::shared_ptr<server::InferRequest> request = backend_.Take()) Echo(request);
    });
  }
  Stream stream(NewStub());
  Thread sender("sender", [&stream] {
    for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(stream.Send(WithId(EchoRequest(1 + i % 8), std::to_string(i))));
  });
  for (int i = 0; i < kRequests; ++i) {
    const ModelStreamInferResponse response = stream.Receive();
    ASSERT_EQ(response.error_message(), "");
    EXPECT_EQ(response.infer_response().id(), std::to_string(i));
    EXPECT_EQ(response.infer_response().model_name(), "echo");
    EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
    EXPECT_EQ(response.infer_response().parameters().at("sluice_class").string_param(), "standard");
    EXPECT_EQ(response.infer_response().raw_output_contents(0), EchoRequest(1 + i % 8).raw_input_contents(0));
  }
  sender.Join();
  EXPECT_TRUE(stream.HalfClose().ok());
  backend_.Close();
  EXPECT_EQ(observer_.received(), kRequests);
  EXPECT_EQ(observer_.AwaitAnswered(kRequests).size(), static_cast<size_t>(kRequests));
  EXPECT_EQ(observer_.written(), kRequests);
}

// Goal: an error is a response like any other and the stream goes on. Method: a request with an unknown model, one that
// the backend refuses and one that it drops, between good ones.
TEST_F(RpcTest, StreamErrorsAreInBand) {
  backend_.OnSubmit([](std::shared_ptr<server::InferRequest> request) {
    if (request->rows == 2) request->Finish(absl::UnavailableError("Exceeds maximum queue size"));
    if (request->rows == 1) Echo(request);
  });
  StartServer();
  Stream stream(NewStub());
  ModelInferRequest unknown = WithId(EchoRequest(), "b");
  unknown.set_model_name("nobody");
  for (const ModelInferRequest& request : {WithId(EchoRequest(), "a"), unknown, WithId(EchoRequest(2), "c"),
                                           WithId(EchoRequest(3), "d"), WithId(EchoRequest(), "e")}) {
    ASSERT_TRUE(stream.Send(request));
  }
  const auto receive = [&stream](const std::string& id, const std::string& error) {
    const ModelStreamInferResponse response = stream.Receive();
    EXPECT_EQ(response.infer_response().id(), id);
    EXPECT_EQ(response.infer_response().outputs_size(), error.empty() ? 1 : 0);
    if (error.empty()) {
      EXPECT_EQ(response.error_message(), "");
    } else {
      EXPECT_THAT(response.error_message(), HasSubstr(error));
    }
  };
  receive("a", "");
  receive("b", "[request id: b] unknown model");
  receive("c", "Exceeds maximum queue size");
  receive("d", "dropped");
  receive("e", "");
  EXPECT_TRUE(stream.HalfClose().ok());
  const std::vector<AnsweredCall> answered = observer_.AwaitAnswered(5);
  EXPECT_EQ(answered[1].code, absl::StatusCode::kNotFound);
  EXPECT_FALSE(answered[1].submitted);
}

// Goal: bytes that are no request are answered as any bad request. Method: a raw stream with junk, then a good request.
TEST_F(RpcTest, StreamOfJunk) {
  backend_.OnSubmit(Echo);
  StartServer();
  grpc::GenericStub stub(NewChannel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, "/inference.GRPCInferenceService/ModelStreamInfer", &queue);
  stream->StartCall(nullptr);
  ASSERT_TRUE(await());
  std::vector<ModelStreamInferResponse> responses;
  for (const std::string& message : {std::string("\xff\xff junk"), EchoRequest().SerializeAsString()}) {
    const grpc::Slice slice(message);
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ASSERT_TRUE(await());
    grpc::ByteBuffer read;
    stream->Read(&read, nullptr);
    ASSERT_TRUE(await());
    grpc::Slice whole;
    ASSERT_TRUE(read.DumpToSingleSlice(&whole).ok());
    ASSERT_TRUE(responses.emplace_back().ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  }
  EXPECT_NE(responses[0].error_message(), "");
  EXPECT_EQ(responses[1].error_message(), "");
  EXPECT_EQ(responses[1].infer_response().outputs_size(), 1);
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  await();
  queue.Shutdown();
  while (await()) {
  }
}

// Goal: a client that asks for it gets the first error as the call's status, with its retry hint. Method: an error
// behind a good request, before one that is never answered.
TEST_F(RpcTest, StreamErrorAsStatus) {
  std::shared_ptr<server::InferRequest> kept;
  backend_.OnSubmit([&kept](std::shared_ptr<server::InferRequest> request) {
    absl::Status full = absl::UnavailableError("Exceeds maximum queue size");
    SetRetryPushback(full, absl::Milliseconds(40));
    if (request->rows == 2) request->Finish(full);
    if (request->rows == 1) Echo(request);
    if (request->rows == 3) kept = std::move(request);
  });
  StartServer();
  Stream stream(NewStub(), {{"triton_grpc_error", "true"}});
  ASSERT_TRUE(stream.Send(WithId(EchoRequest(), "a")));
  EXPECT_EQ(stream.Receive().infer_response().id(), "a");
  ASSERT_TRUE(stream.Send(WithId(EchoRequest(3), "b", /*priority=*/3)));
  observer_.AwaitReceived(2);
  ASSERT_TRUE(stream.Send(WithId(EchoRequest(2), "c")));
  const grpc::Status status = stream.AwaitEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "[request id: c] Exceeds maximum queue size");
  EXPECT_EQ(stream.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  backend_.AwaitCancelled(1);
  EXPECT_EQ(observer_.AwaitAnswered(3)[2].code, absl::StatusCode::kCancelled);
}

// Goal: a class keeps its order and waits for no other class. Method: batch, batch, latency, latency; answer the second
// of each first, and the latency ones while no batch one is answered.
TEST_F(RpcTest, StreamOrderIsPerClass) {
  StartServer();
  Stream stream(NewStub());
  for (const char* id : {"b1", "b2"}) ASSERT_TRUE(stream.Send(WithId(EchoRequest(), id, 3)));
  for (const char* id : {"l1", "l2"}) ASSERT_TRUE(stream.Send(WithId(EchoRequest(), id, 1)));
  std::vector<std::shared_ptr<server::InferRequest>> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(backend_.Take());
  for (const size_t next : {3u, 2u}) Echo(requests[next]);
  EXPECT_EQ(stream.Receive().infer_response().id(), "l1");
  EXPECT_EQ(stream.Receive().infer_response().id(), "l2");
  for (const size_t next : {1u, 0u}) Echo(requests[next]);
  EXPECT_EQ(stream.Receive().infer_response().id(), "b1");
  const ModelStreamInferResponse last = stream.Receive();
  EXPECT_EQ(last.infer_response().id(), "b2");
  EXPECT_EQ(last.infer_response().parameters().at("sluice_class").string_param(), "batch");
  EXPECT_TRUE(stream.HalfClose().ok());
}

// Goal: the class in the call's metadata is every request's. Method: one stream with it, one with an unknown word,
// whose requests are refused, and one with two, which is refused itself.
TEST_F(RpcTest, StreamClassMetadata) {
  backend_.OnSubmit(Echo);
  StartServer();
  Stream batch(NewStub(), {{"sluice-class", "batch"}});
  ASSERT_TRUE(batch.Send(WithId(EchoRequest(), "a", 1)));
  EXPECT_EQ(batch.Receive().infer_response().parameters().at("sluice_class").string_param(), "batch");
  EXPECT_TRUE(batch.HalfClose().ok());
  Stream unknown(NewStub(), {{"sluice-class", "fast"}});
  ASSERT_TRUE(unknown.Send(EchoRequest()));
  EXPECT_THAT(unknown.Receive().error_message(), HasSubstr("fast"));
  EXPECT_TRUE(unknown.HalfClose().ok());
  Stream twice(NewStub(), {{"sluice-class", "batch"}, {"sluice-class", "batch"}});
  EXPECT_EQ(twice.AwaitEnd().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Goal: a stream reads no further than its bound. Method: a bound of 4 and 12 requests at once; after every answer the
// bound holds, and all are answered in the end.
TEST_F(RpcTest, StreamReadsWithinItsBound) {
  constexpr int kBound = 4;
  constexpr int kRequests = 12;
  RpcOptions options;
  options.stream_requests = kBound;
  options.io_threads = 1;
  StartServer(options);
  Stream stream(NewStub());
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(stream.Send(WithId(EchoRequest(), std::to_string(i))));
  for (int i = 0; i < kRequests; ++i) {
    observer_.AwaitReceived(std::min(i + kBound, kRequests));
    // The one I/O thread has handled what the stream had for it before it answers this.
    EXPECT_TRUE(CallRaw("/inference.GRPCInferenceService/ServerLive", "").ok());
    EXPECT_LE(observer_.received(), i + kBound);
    Echo(backend_.Take());
    EXPECT_EQ(stream.Receive().infer_response().id(), std::to_string(i));
  }
  EXPECT_TRUE(stream.HalfClose().ok());
}

// Goal: a client that goes takes its requests with it. Method: keep three, cancel the stream.
TEST_F(RpcTest, StreamClientCancels) {
  StartServer();
  std::vector<std::shared_ptr<server::InferRequest>> requests;
  Stream stream(NewStub());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(stream.Send(EchoRequest()));
    requests.push_back(backend_.Take());
  }
  stream.Cancel();
  EXPECT_EQ(stream.AwaitEnd().error_code(), grpc::StatusCode::CANCELLED);
  backend_.AwaitCancelled(3);
  for (const AnsweredCall& call : observer_.AwaitAnswered(3)) EXPECT_EQ(call.code, absl::StatusCode::kCancelled);
  for (const auto& request : requests) {
    EXPECT_TRUE(request->stopped);
    EXPECT_FALSE(request->Finish(EchoResult(*request)));
  }
  server_->Stop();
}

// Goal: a stream's deadline is its requests'. Method: one that only the server enforces, and a backend that ignores it.
TEST_F(RpcTest, StreamDeadlinePasses) {
  backend_.OnCancelAnswer(absl::OkStatus());
  StartServer();
  Stream stream(NewStub(), {{"grpc-timeout", "100m"}});
  ASSERT_TRUE(stream.Send(EchoRequest()));
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  EXPECT_FALSE(request->deadline.is_infinite());
  EXPECT_EQ(stream.AwaitEnd().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(observer_.AwaitAnswered(1)[0].code, absl::StatusCode::kDeadlineExceeded);
}

// Goal: a drain ends idle streams at once and others when what they have read is answered. Method: an idle stream, one
// with a request under way, and a drain with a long grace.
TEST_F(RpcTest, DrainEndsStreams) {
  StartServer();
  Stream idle(NewStub());
  Stream busy(NewStub());
  ASSERT_TRUE(busy.Send(WithId(EchoRequest(), "a")));
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  Thread drain("drain", [this] { server_->Drain(absl::Minutes(10)); });
  EXPECT_EQ(idle.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
  Echo(request);
  EXPECT_EQ(busy.Receive().infer_response().id(), "a");
  const grpc::Status status = busy.AwaitEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the server is shutting down");
  drain.Join();
}

// Goal: the end of a server waits for no backend. Method: a stream with a request that is never answered, and Stop.
TEST_F(RpcTest, StopCancelsStreams) {
  StartServer();
  Stream stream(NewStub());
  ASSERT_TRUE(stream.Send(EchoRequest()));
  const std::shared_ptr<server::InferRequest> request = backend_.Take();
  server_->Stop();
  EXPECT_FALSE(stream.AwaitEnd().ok());
  EXPECT_EQ(observer_.AwaitAnswered(1).size(), 1u);
  server_.reset();
  EXPECT_FALSE(request->Finish(EchoResult(*request)));  // the request outlives its server
}

// Goal: only so many streams are open at once. Method: a bound of one; the second is refused until the first is over.
TEST_F(RpcTest, StreamsAreBounded) {
  backend_.OnSubmit(Echo);
  RpcOptions options;
  options.max_infer_streams = 1;
  StartServer(options);
  Stream first(NewStub());
  ASSERT_TRUE(first.Send(EchoRequest()));
  first.Receive();
  EXPECT_EQ(Stream(NewStub()).AwaitEnd().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(first.HalfClose().ok());
  while (true) {  // the client may have its status before the server has let go of the call
    Stream next(NewStub());
    next.Send(EchoRequest());
    const bool answered = next.ReceiveAny().has_infer_response();
    const grpc::Status status = answered ? next.HalfClose() : next.AwaitEnd();
    if (status.ok()) break;
    ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

// Goal: streams cancelled around the moment of an answer lose nothing and answer nothing twice. Method: 200 streams of
// 4 requests each, answered by two threads while the client cancels after a random number of answers.
TEST_F(RpcTest, StreamCancelRacesWithAnswers) {
  constexpr int kStreams = 200;
  StartServer();
  std::vector<Thread> answerers;
  for (int i = 0; i < 2; ++i) {
    answerers.emplace_back("answerer", [this] {
      while (const std::shared_ptr<server::InferRequest> request = backend_.Take()) Echo(request);
    });
  }
  std::mt19937 random(7);
  for (int i = 0; i < kStreams; ++i) {
    Stream stream(NewStub());
    for (int n = 0; n < 4; ++n) stream.Send(WithId(EchoRequest(), std::to_string(n), 1 + random() % 3));
    for (uint32_t left = random() % 5; left > 0; --left) stream.Receive();
    stream.Cancel();
  }
  server_->Stop();
  backend_.Close();
  answerers.clear();
  EXPECT_EQ(observer_.AwaitAnswered(static_cast<size_t>(observer_.received())).size(),
            static_cast<size_t>(observer_.received()));
}

}  // namespace
}  // namespace sluice::rpc
