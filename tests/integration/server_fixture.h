// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/client.h"
#include "inference.grpc.pb.h"
#include "server/config.h"
#include "server/server.h"

namespace sluice::testing {

/// One unary ModelInfer call under way, on a thread of its own inside gRPC's client.
class PendingCall {
 public:
  PendingCall(inference::GRPCInferenceService::Stub& stub, const inference::ModelInferRequest& request,
              std::optional<RequestClass> request_class = std::nullopt,
              absl::Duration deadline = absl::InfiniteDuration());
  ~PendingCall();
  void Cancel() { context_.TryCancel(); }
  /// Waits for the answer.
  grpc::Status Wait();
  bool Done();
  const inference::ModelInferResponse& response() const { return response_; }
  grpc::ClientContext& context() { return context_; }

 private:
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  inference::ModelInferResponse response_;
  grpc::Status status_;
  bool done_ = false;
  std::unique_ptr<grpc::ClientAsyncResponseReader<inference::ModelInferResponse>> reader_;
};

/// A whole server in this process, on free ports, with two models: "double" (y = 2 x, [N,4], up to 8 rows) and "chain"
/// (a long row of matrix products, [N,64], up to 4096 rows in buckets of 8), and real clients.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  /// Starts with `config`; ports and repository are filled in.
  void Start(server::ServerConfig config = {});
  /// One CPU thread and small queues: what the tests count on.
  static server::ServerConfig SmallConfig();

  static constexpr int64_t kChainWidth = 64;
  inference::ModelInferRequest Request(const std::string& model, int64_t rows) const;
  grpc::Status Infer(const inference::ModelInferRequest& request, inference::ModelInferResponse* response = nullptr,
                     const std::string& class_word = "");
  std::unique_ptr<PendingCall> Begin(int64_t chain_rows, std::optional<RequestClass> request_class = std::nullopt,
                                     absl::Duration deadline = absl::InfiniteDuration());
  /// Waits until `count` executions run on the first device (bounded; fails the test otherwise).
  void AwaitExecuting(int count);
  /// Waits until `condition` holds (bounded; fails the test and says `what` otherwise).
  void Await(const char* what, const std::function<bool()>& condition);
  /// The value of one series of /metrics, summed over series that match; 0 when there is none.
  double Metric(const std::string& family, const std::vector<std::string>& label_fragments);

  const MonotonicClock clock_;
  std::string repository_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<client::Client> client_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

}  // namespace sluice::testing
