// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>

#include "base/wakeup.h"
#include "client/async_client.h"
#include "client/errors.h"
#include "fake_server.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Client> ConnectTo(const FakeServer& server, RetryPolicy retry = {}) {
  ClientOptions options;
  options.address = server.address();
  options.retry = retry;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

std::vector<Tensor> OneRow() { return {{"x", DataType::kInt32, {1, 2}, std::string("\1\0\0\0\2\0\0\0", 8)}}; }

// Goal: an inference goes there and back whole: bytes, id, class in metadata and in the reply. Method: the server
// echoes.
TEST(Client, InferEchoes) {
  const FakeServer server;
  const auto client = ConnectTo(server);
  InferOptions options;
  options.request_class = RequestClass::kBatch;
  options.id = "seven";
  const auto reply = client->Infer("echo", OneRow(), options);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->id, "seven");
  EXPECT_EQ(reply->model_version, "1");
  EXPECT_EQ(reply->effective_class, RequestClass::kBatch);
  ASSERT_EQ(reply->outputs.size(), 1u);
  EXPECT_EQ(reply->outputs[0].name, "y");
  EXPECT_EQ(reply->outputs[0].bytes, OneRow()[0].bytes);
  ASSERT_EQ(server.seen().size(), 1u);
  EXPECT_EQ(server.seen()[0].class_name, "batch");
}

// Goal: without a class no metadata is sent, so that the server decides. Method: look at what came.
TEST(Client, NoClassNoMetadata) {
  const FakeServer server;
  ASSERT_TRUE(ConnectTo(server)->Infer("echo", OneRow()).ok());
  EXPECT_EQ(server.seen()[0].class_name, "");
}

// Goal: messages above gRPC's default of 4 MiB pass in both directions. Method: echo 8 MiB.
TEST(Client, LargeMessages) {
  const FakeServer server;
  const std::string bytes(8 << 20, '\7');
  const auto reply = ConnectTo(server)->Infer("echo", {{"x", DataType::kUint8, {1 << 20, 8}, bytes}});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->outputs[0].bytes, bytes);
}

// Goal: each gRPC code arrives as the same absl code with its message. Method: the server answers with all of them.
TEST(Client, ErrorsKeepCodeAndMessage) {
  std::atomic<int> code = 0;
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    return grpc::Status(static_cast<grpc::StatusCode>(code.load()), "because");
  });
  const auto client = ConnectTo(server);
  for (code = 1; code <= 16; ++code) {
    const auto reply = client->Infer("echo", OneRow());
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(static_cast<int>(reply.status().code()), code.load());
    EXPECT_EQ(reply.status().message(), "because");
  }
}

// Goal: the deadline ends a call the server does not answer. Method: the server waits until the test lets it go.
TEST(Client, DeadlineIsHonoured) {
  std::latch over(1);
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    over.wait();
    return grpc::Status::OK;
  });
  const auto client = ConnectTo(server);
  InferOptions options;
  options.deadline = absl::Milliseconds(50);
  EXPECT_EQ(client->Infer("echo", OneRow(), options).status().code(), absl::StatusCode::kDeadlineExceeded);
  over.count_down();
}

// Goal: a mistake in a tensor is found before anything is sent. Method: a tensor of the wrong size.
TEST(Client, BadTensorIsNotSent) {
  const FakeServer server;
  const auto reply = ConnectTo(server)->Infer("echo", {{"x", DataType::kInt32, {1, 2}, "abc"}});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(server.seen().empty());
}

// Goal: retries are off by default, bounded when on, and stop at success. Method: a server that is full twice.
TEST(Client, RetriesWhenAsked) {
  std::atomic<int> calls = 0;
  const FakeServer server([&](grpc::ServerContext& context, const inference::ModelInferRequest&) {
    if (++calls % 3 == 0) return grpc::Status::OK;
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  });
  const auto once = ConnectTo(server)->Infer("echo", OneRow());
  EXPECT_EQ(once.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryPushback(once.status()), absl::Milliseconds(1));
  EXPECT_EQ(calls, 1);
  calls = 0;
  RetryPolicy retry;
  retry.max_attempts = 2;
  EXPECT_FALSE(ConnectTo(server, retry)->Infer("echo", OneRow()).ok());
  EXPECT_EQ(calls, 2);
  calls = 0;
  retry.max_attempts = 5;
  EXPECT_TRUE(ConnectTo(server, retry)->Infer("echo", OneRow()).ok());
  EXPECT_EQ(calls, 3);
}

// Goal: a server that says "do not retry" is obeyed. Method: a negative push-back with UNAVAILABLE.
TEST(Client, NegativePushbackStopsRetries) {
  const FakeServer server([&](grpc::ServerContext& context, const inference::ModelInferRequest&) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away");
  });
  RetryPolicy retry;
  retry.max_attempts = 5;
  EXPECT_FALSE(ConnectTo(server, retry)->Infer("echo", OneRow()).ok());
  EXPECT_EQ(server.seen().size(), 1u);
}

// Goal: the other calls read every field. Method: compare with what the fake is known to answer.
TEST(Client, OtherCalls) {
  const FakeServer server;
  const auto client = ConnectTo(server);
  EXPECT_TRUE(*client->ServerLive());
  EXPECT_FALSE(*client->ServerReady());
  EXPECT_TRUE(*client->ModelReady("echo"));
  EXPECT_EQ(client->ModelReady("nobody").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client->ServerMetadata()->version, "1.2");
  const auto model = client->ModelMetadata("echo");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->inputs[0].type, DataType::kInt32);
  EXPECT_EQ(model->inputs[0].shape, (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(client->ModelConfig("echo")->max_batch_size(), 8);
  const auto statistics = client->ModelStatistics();
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ((*statistics)[0].inference_count, 12u);
  EXPECT_EQ((*statistics)[0].queue.mean(), absl::Microseconds(2));
  EXPECT_EQ(*client->Health(), HealthState::kServing);
  EXPECT_EQ(*client->Health("echo"), HealthState::kNotServing);
  EXPECT_EQ(client->Health("nobody").status().code(), absl::StatusCode::kNotFound);
}

// Goal: nobody at the address is told apart from a server that answers, at once. Method: a port that was just closed.
TEST(Client, UnreachableServer) {
  FakeServer server;
  ClientOptions options;
  options.address = server.address();
  server.Stop();
  const auto client = Client::Connect(options);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("cannot connect to 127.0.0.1"));
}

// Goal: options out of range are refused by name. Method: one of each.
TEST(Client, OptionsAreChecked) {
  const auto refused = [](auto change) {
    ClientOptions options;
    options.address = "127.0.0.1:1";
    change(options);
    const auto client = Client::Connect(options);
    EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(client.status().message());
  };
  EXPECT_THAT(refused([](ClientOptions& o) { o.address = ""; }), HasSubstr("address"));
  EXPECT_THAT(refused([](ClientOptions& o) { o.channel_count = 0; }), HasSubstr("channel_count"));
  EXPECT_THAT(refused([](ClientOptions& o) { o.max_message_bytes = int64_t{1} << 31; }),
              HasSubstr("max_message_bytes"));
  EXPECT_THAT(refused([](ClientOptions& o) { o.default_deadline = absl::ZeroDuration(); }),
              HasSubstr("default_deadline"));
  EXPECT_THAT(refused([](ClientOptions& o) { o.retry.max_attempts = 0; }), HasSubstr("max_attempts"));
}

// Goal: every started call is answered exactly once, and one encoded request serves many. Method: 200 calls over two
// channels.
TEST(AsyncClient, AnswersEachCallOnce) {
  const FakeServer server;
  ClientOptions options;
  options.address = server.address();
  options.channel_count = 2;
  auto request = EncodedRequest::Encode("echo", OneRow());
  ASSERT_TRUE(request.ok()) << request.status();
  std::atomic<int> answered = 0;
  {
    auto client = AsyncClient::Connect(options, 2);
    ASSERT_TRUE(client.ok()) << client.status();
    Wakeup done;
    for (int i = 0; i < 200; ++i) {
      (*client)->StartInfer(*request, absl::Seconds(30), RequestClass::kLatency, [&](const AsyncAnswer& answer) {
        EXPECT_TRUE(answer.status.ok()) << answer.status;
        if (++answered == 200) done.Notify();
      });
    }
    done.WaitUntil(Time::Infinite());
  }
  EXPECT_EQ(answered, 200);
  EXPECT_EQ(server.seen().size(), 200u);
  EXPECT_EQ(server.seen()[0].class_name, "latency");
  EXPECT_EQ(server.seen()[199].bytes, 8u);
}

// Goal: destroying the client ends calls the server does not answer. Method: the server holds the call until the test
// is over.
TEST(AsyncClient, DestructionCancels) {
  std::latch over(1);
  FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    over.wait();
    return grpc::Status::OK;
  });
  ClientOptions options;
  options.address = server.address();
  absl::Status status;
  {
    auto client = AsyncClient::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    auto request = EncodedRequest::Encode("echo", OneRow());
    (*client)->StartInfer(*request, absl::Minutes(10), std::nullopt,
                          [&](const AsyncAnswer& answer) { status = answer.status; });
    EXPECT_EQ((*client)->outstanding(), 1u);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  over.count_down();
}

}  // namespace
}  // namespace sluice::client
