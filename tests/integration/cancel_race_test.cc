// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a cancellation at any moment around completion leads to one answer, a right one or CANCELLED, and leaves
// nothing behind. Method: many requests of all classes, each cancelled at a random moment within twice the time that
// such requests take: over the wire, and, so that ThreadSanitizer sees every thread that takes part, without gRPC.
// SLUICE_LONG_REQUESTS says how many.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "server/execution/devices.h"
#include "server/execution/serving.h"
#include "tests/integration/process_memory.h"
#include "tests/integration/server_fixture.h"
#include "tests/unit/server/execution/doubling_request.h"

namespace sluice::testing {
namespace {

constexpr RequestClass kClasses[] = {RequestClass::kLatency, RequestClass::kStandard, RequestClass::kBatch};
constexpr uint64_t kSeed = 7;

/// A long run has a million.
int RequestCount(int usual) {
  const char* const wanted = std::getenv("SLUICE_LONG_REQUESTS");
  int count = usual;
  if (wanted != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(wanted, &count) && count >= usual);
  }
  return count;
}

/// Moments to cancel at: uniform within twice the middle of the durations it is told, which one long pause of a thread
/// does not move, and which grows while all are cancelled.
class CancelTimes {
 public:
  explicit CancelTimes(uint64_t seed) : random_(seed) {}
  absl::Duration Next() { return middle_ * std::uniform_real_distribution<double>(0, 2)(random_); }
  void Took(absl::Duration duration) { middle_ *= duration > middle_ ? 1.02 : 0.98; }
  void Cancelled() { middle_ *= 1.01; }

 private:
  std::mt19937_64 random_;
  absl::Duration middle_ = absl::Milliseconds(1);
};

struct Tally {
  int ok = 0, cancelled = 0;
};

class CancelRaceTest : public ServerTest {
 protected:
  struct Call {
    Call(inference::GRPCInferenceService::Stub& stub, const inference::ModelInferRequest& request,
         grpc::CompletionQueue& queue, RequestClass request_class, Time begin, Time cancel)
        : began(begin), cancel_at(cancel) {
      context.AddMetadata("sluice-class", std::string(RequestClassName(request_class)));
      reader = stub.AsyncModelInfer(&context, request, &queue);
      reader->Finish(&response, &status, this);
    }
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<inference::ModelInferResponse>> reader;
    const Time began;
    const Time cancel_at;
    bool cancelled = false;
  };
  static constexpr size_t kInFlight = 16;

  /// Handles the next end of a call, or cancels what is due until one comes.
  void AwaitAnswer(grpc::CompletionQueue& queue, CancelTimes& times, Tally& tally) {
    while (true) {
      const Time now = clock_.Now();
      Time next = now + absl::Seconds(60);
      for (const std::unique_ptr<Call>& call : calls_) {
        if (call == nullptr || call->cancelled) continue;
        if (call->cancel_at <= now) {
          call->cancelled = true;
          call->context.TryCancel();
        } else {
          next = std::min(next, call->cancel_at);
        }
      }
      const gpr_timespec wait = gpr_time_from_nanos(absl::ToInt64Nanoseconds(next - now), GPR_TIMESPAN);
      void* tag = nullptr;
      bool ok = false;
      const auto got = queue.AsyncNext(&tag, &ok, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait));
      if (got != grpc::CompletionQueue::GOT_EVENT) continue;
      for (std::unique_ptr<Call>& call : calls_) {
        if (call.get() != tag) continue;
        Judge(*call, times, tally);
        call.reset();
      }
      return;
    }
  }

  void Judge(const Call& call, CancelTimes& times, Tally& tally) {
    if (call.status.ok()) {
      times.Took(clock_.Now() - call.began);
      EXPECT_EQ(call.response.raw_output_contents(0), doubled_);
      ++tally.ok;
      return;
    }
    EXPECT_EQ(call.status.error_code(), grpc::StatusCode::CANCELLED) << call.status.error_message();
    times.Cancelled();
    ++tally.cancelled;
  }

  std::array<std::unique_ptr<Call>, kInFlight> calls_;
  std::string doubled_;
};

TEST_F(CancelRaceTest, OverTheWire) {
  const int count = RequestCount(2000);
  Start(SmallConfig());
  const inference::ModelInferRequest request = Request("double", 1);
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(request, &response).ok());
  doubled_ = response.raw_output_contents(0);
  std::vector<std::unique_ptr<inference::GRPCInferenceService::Stub>> stubs;
  for (int i = 0; i < 4; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server_->grpc_port()), grpc::InsecureChannelCredentials(), arguments)));
  }
  grpc::CompletionQueue queue;
  CancelTimes times(kSeed);
  Tally tally;
  double allocated = 0;
  for (int begun = 0; tally.ok + tally.cancelled < count;) {
    for (std::unique_ptr<Call>& call : calls_) {
      if (call != nullptr || begun == count) continue;
      const Time now = clock_.Now();
      call = std::make_unique<Call>(*stubs[static_cast<size_t>(begun) % stubs.size()], request, queue,
                                    kClasses[begun % 3], now, now + times.Next());
      ++begun;
    }
    AwaitAnswer(queue, times, tally);
    if (tally.ok + tally.cancelled == count / 2) allocated = AllocatedMiB();
  }
  queue.Shutdown();
  // Both must have been tried, or the test says nothing.
  EXPECT_GT(tally.ok, count / 20);
  EXPECT_GT(tally.cancelled, count / 20);
  Await("what was cancelled last does not end", [&] {
    return Metric("sluice_slots_free", {}) == Metric("sluice_slots", {}) && Metric("sluice_executing", {}) == 0;
  });
  Await("memory is still held", [&] { return AllocatedMiB() < allocated + 4; });
  std::printf("requests %d: answered %d, cancelled %d; MiB allocated at half and end %.2f, %.2f\n", count, tally.ok,
              tally.cancelled, allocated, AllocatedMiB());
  EXPECT_TRUE(Infer(request).ok());
}

TEST_F(CancelRaceTest, BehindTheWire) {
  const int count = RequestCount(3000);
  server::ServerConfig config = SmallConfig();
  config.model_repository = repository_;
  auto specs = server::ResolveDevices(config);
  ASSERT_TRUE(specs.ok()) << specs.status();
  metrics::MetricsOptions options;
  options.devices = server::DeviceNames(*specs);
  metrics::Metrics metrics(std::move(options));
  auto serving = server::Serving::Create(config, *std::move(specs), clock_, metrics);
  ASSERT_TRUE(serving.ok()) << serving.status();
  ASSERT_TRUE((*serving)->LoadRepository([] {}).ok());
  const auto model = (*serving)->FindModel("double", "");
  ASSERT_TRUE(model.ok()) << model.status();

  constexpr int kClients = 3;
  std::array<Tally, kClients> tallies;
  std::array<std::vector<std::weak_ptr<server::InferRequest>>, kClients> all;
  std::vector<Thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back(absl::StrCat("client-", client), [&, client] {
      CancelTimes times(kSeed + static_cast<uint64_t>(client));
      Tally& tally = tallies[static_cast<size_t>(client)];
      for (int i = 0; i < count / kClients; ++i) {
        const auto request = std::make_shared<server::DoublingRequest>(*model, kClasses[client], clock_, i % 100);
        const Time began = clock_.Now();
        const Time cancel_at = began + times.Next();
        (*serving)->Submit(request);
        bool took = false;  // polled: microseconds matter
        for (Time now = began; now < cancel_at; now = clock_.Now()) {
          if (!took && request->answered()) {
            times.Took(now - began);
            took = true;
          }
        }
        request->stopped.store(true);
        (*serving)->Cancel(request);
        const absl::Status status = request->Wait();
        if (status.ok()) {
          ++tally.ok;
        } else {
          EXPECT_TRUE(absl::IsCancelled(status)) << status;
          times.Cancelled();
          ++tally.cancelled;
        }
        if (i % 100 == 0) all[static_cast<size_t>(client)].push_back(request);
      }
    });
  }
  clients.clear();  // joins
  (*serving)->Stop();
  for (int client = 0; client < kClients; ++client) {
    const Tally& tally = tallies[static_cast<size_t>(client)];
    std::printf("class %d: answered %d, cancelled %d\n", client, tally.ok, tally.cancelled);
    EXPECT_GT(tally.ok, count / kClients / 20);
    EXPECT_GT(tally.cancelled, count / kClients / 20);
    for (const auto& request : all[static_cast<size_t>(client)]) EXPECT_TRUE(request.expired());
  }
}

}  // namespace
}  // namespace sluice::testing
