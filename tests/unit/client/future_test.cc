// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "base/wakeup.h"
#include "client/client.h"
#include "client/errors.h"
#include "fake_server.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

using Future = std::future<absl::StatusOr<InferReply>>;

std::unique_ptr<Client> ConnectTo(const FakeServer& server, RetryPolicy retry = {}) {
  ClientOptions options;
  options.address = server.address();
  options.retry = retry;
  options.channel_count = 2;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

std::vector<Tensor> Row(int32_t first) {
  const int32_t values[] = {first, 2};
  return {{"x", DataType::kInt32, {1, 2}, std::string(reinterpret_cast<const char*>(values), sizeof(values))}};
}

InferOptions Hedged(absl::Duration after) {
  InferOptions options;
  options.request_class = RequestClass::kLatency;
  options.hedge_after = after;
  return options;
}

// Goal: futures come back with their own answers. Method: 100 at once.
TEST(Future, EachHasItsAnswer) {
  const FakeServer server;
  const auto client = ConnectTo(server);
  std::vector<Future> futures;
  for (int i = 0; i < 100; ++i) {
    InferOptions options;
    options.id = std::to_string(i);
    futures.push_back(client->InferAsync("echo", Row(i), options));
  }
  for (int i = 0; i < 100; ++i) {
    const auto reply = futures[static_cast<size_t>(i)].get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->id, std::to_string(i));
    EXPECT_EQ(reply->outputs[0].bytes, Row(i)[0].bytes);
  }
  EXPECT_EQ(server.seen().size(), 100u);
}

// Goal: an encoded message is the protocol's, and the tensors' bytes in it are the caller's own. Method: encode two
// tensors, one empty; parse the whole, and look for the address of the bytes among the slices; the owner is let go of.
TEST(Future, ViewsAreNotCopied) {
  const auto owner = std::make_shared<const std::string>(std::string(1 << 20, '\5'));
  const std::vector<TensorView> views = {{"x", DataType::kUint8, {1 << 10, 1 << 10}, *owner, owner},
                                         {"z", DataType::kUint8, {0}, "", nullptr}};
  {
    InferOptions options;
    options.id = "seven";
    options.outputs = {"y"};
    const auto encoded = EncodedRequest::EncodeViews("echo", views, options);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(encoded->bytes().Dump(&slices).ok());
    std::string whole;
    int same_memory = 0;
    for (const grpc::Slice& slice : slices) {
      whole.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      same_memory += static_cast<const void*>(slice.begin()) == owner->data() ? 1 : 0;
    }
    EXPECT_EQ(same_memory, 1);
    inference::ModelInferRequest request;
    ASSERT_TRUE(request.ParseFromString(whole));
    EXPECT_EQ(request.id(), "seven");
    EXPECT_EQ(request.outputs(0).name(), "y");
    ASSERT_EQ(request.raw_input_contents_size(), 2);
    EXPECT_EQ(request.raw_input_contents(0), *owner);
    EXPECT_EQ(request.raw_input_contents(1), "");
    EXPECT_EQ(request.inputs(1).name(), "z");
    EXPECT_EQ(owner.use_count(), 3);  // ours, the view's, the message's
  }
  EXPECT_EQ(owner.use_count(), 2);
}

// Goal: a view's owner is there until the call has its answer. Method: drop every other reference while the server
// holds the call, which would end the bytes before they are sent again by the retry.
TEST(Future, OwnersStayForRetries) {
  std::atomic<int> calls = 0;
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    return ++calls == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "full") : grpc::Status::OK;
  });
  RetryPolicy retry;
  retry.max_attempts = 2;
  retry.first_wait = absl::Milliseconds(1);
  const auto client = ConnectTo(server, retry);
  // More than gRPC's own retries would keep (256 KiB).
  auto owner = std::make_shared<const std::string>(std::string(1 << 20, '\5'));
  Future future =
      client->InferViewsAsync("echo", std::vector<TensorView>{{"x", DataType::kUint8, {1 << 20}, *owner, owner}});
  owner.reset();
  const auto reply = future.get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->outputs[0].bytes, std::string(1 << 20, '\5'));
  ASSERT_EQ(server.seen().size(), 2u);
  EXPECT_EQ(server.seen()[1].bytes, size_t{1} << 20);
}

// Goal: errors come in the future: the server's, with code and push-back, and mistakes, before anything is sent.
// Method: one of each.
TEST(Future, Errors) {
  const FakeServer server([](grpc::ServerContext& context, const inference::ModelInferRequest&) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "7");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "full");
  });
  const auto client = ConnectTo(server);
  const auto full = client->InferAsync("echo", Row(1)).get();
  EXPECT_EQ(full.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RetryPushback(full.status()), absl::Milliseconds(7));
  EXPECT_EQ(server.seen().size(), 1u);
  const auto bad = client->InferAsync("echo", std::vector<Tensor>{{"x", DataType::kInt32, {1, 2}, "abc"}}).get();
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  InferOptions options = Hedged(absl::Seconds(1));
  options.request_class = RequestClass::kBatch;
  const auto hedged = client->InferAsync("echo", Row(1), options).get();
  EXPECT_EQ(hedged.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(hedged.status().message()), HasSubstr("hedge_after"));
  EXPECT_EQ(server.seen().size(), 1u);
}

// Goal: a request that has no answer is sent again, the first success counts, and the other is cancelled. Method: a
// server that holds the first call until it is cancelled; by future and blocking.
TEST(Future, HedgeWins) {
  std::atomic<int> calls = 0;
  std::latch cancelled(2);
  const FakeServer server([&](grpc::ServerContext& context, const inference::ModelInferRequest&) {
    if (++calls % 2 == 0) return grpc::Status::OK;
    Wakeup never;
    const MonotonicClock clock;
    while (!context.IsCancelled()) never.WaitUntil(clock.Now() + absl::Milliseconds(1));
    cancelled.count_down();
    return grpc::Status::CANCELLED;
  });
  const auto client = ConnectTo(server);
  const auto by_future = client->InferAsync("echo", Row(3), Hedged(absl::Milliseconds(1))).get();
  ASSERT_TRUE(by_future.ok()) << by_future.status();
  EXPECT_EQ(by_future->outputs[0].bytes, Row(3)[0].bytes);
  const auto blocking = client->Infer("echo", Row(4), Hedged(absl::Milliseconds(1)));
  ASSERT_TRUE(blocking.ok()) << blocking.status();
  cancelled.wait();
  EXPECT_EQ(calls, 4);
}

// Goal: an answer in time sends no hedge, and a failed attempt waits for the hedge under way. Method: a hedge after ten
// minutes; then a first call that fails once the second is there.
TEST(Future, HedgeOnlyWhenLate) {
  std::atomic<int> calls = 0;
  std::latch second(1);
  const FakeServer server([&](grpc::ServerContext&, const inference::ModelInferRequest&) {
    const int call = ++calls;
    if (call == 2) second.wait();
    if (call == 3) second.count_down();
    return call == 2 ? grpc::Status(grpc::StatusCode::INTERNAL, "broken") : grpc::Status::OK;
  });
  const auto client = ConnectTo(server);
  EXPECT_TRUE(client->InferAsync("echo", Row(1), Hedged(absl::Minutes(10))).get().ok());
  EXPECT_EQ(calls, 1);
  const auto reply = client->InferAsync("echo", Row(1), Hedged(absl::Milliseconds(1))).get();
  EXPECT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(calls, 3);
}

// Goal: a client that goes leaves no future without an answer, whatever is under way. Method: a call that the server
// holds, one that waits for its retry, one that waits for its hedge.
TEST(Future, DestructionCancels) {
  std::latch over(1);
  FakeServer server([&](grpc::ServerContext& context, const inference::ModelInferRequest& request) {
    if (request.id() == "full") {
      context.AddTrailingMetadata("grpc-retry-pushback-ms", "600000");
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "full");
    }
    over.wait();
    return grpc::Status::OK;
  });
  RetryPolicy retry;
  retry.max_attempts = 2;
  auto client = ConnectTo(server, retry);
  InferOptions options;
  options.deadline = absl::Hours(1);
  Future held = client->InferAsync("echo", Row(1), options);
  options.id = "full";
  Future waiting = client->InferAsync("echo", Row(1), options);
  InferOptions hedged = Hedged(absl::Minutes(10));
  hedged.deadline = absl::Hours(1);
  Future hedging = client->InferAsync("echo", Row(1), hedged);
  client.reset();
  EXPECT_EQ(held.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_EQ(hedging.get().status().code(), absl::StatusCode::kCancelled);
  over.count_down();
}

}  // namespace
}  // namespace sluice::client
