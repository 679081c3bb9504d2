// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "inference.grpc.pb.h"
#include "puppet_backend.h"
#include "server/rpc/rpc_server.h"

namespace sluice::rpc {

/// Counts, and lets a test wait for an answer. The model pointer of an AnsweredCall is not kept.
class RecordingObserver final : public RpcObserver {
 public:
  void OnReceived() override;
  void OnAccepted(const server::InferRequest& request) override;
  void OnAnswered(const AnsweredCall& call) override;
  void OnWritten(RequestClass request_class, absl::Duration duration, bool written) override;

  /// Waits until so many calls are answered and returns all of them, in order.
  std::vector<AnsweredCall> AwaitAnswered(size_t count);
  void AwaitReceived(int count);
  int received();
  int accepted();
  int written();

 private:
  Mutex mutex_;
  CondVar changed_;
  int received_ ABSL_GUARDED_BY(mutex_) = 0;
  int accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  int written_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<AnsweredCall> answered_ ABSL_GUARDED_BY(mutex_);
};

/// A server on a free port of the loopback interface with the echo model, and clients with connections of their own.
class RpcTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void StartServer(RpcOptions options = {});
  std::shared_ptr<grpc::Channel> NewChannel() const;
  std::unique_ptr<inference::GRPCInferenceService::Stub> NewStub() const;
  /// `rows` rows of 4 floats.
  static inference::ModelInferRequest EchoRequest(int rows = 1);
  /// Calls a method by its full name with a message that need not be well-formed.
  grpc::Status CallRaw(const std::string& method, const std::string& message) const;

  MonotonicClock clock_;
  RecordingObserver observer_;
  PuppetBackend backend_;
  std::unique_ptr<RpcServer> server_;
};

/// One call under way on a client's own queue.
class AsyncCall {
 public:
  AsyncCall(inference::GRPCInferenceService::Stub& stub, const inference::ModelInferRequest& request,
            absl::Duration deadline = absl::InfiniteDuration(), const std::string& timeout_header = "");
  ~AsyncCall();
  void Cancel() { context_.TryCancel(); }
  /// Waits for the end.
  const grpc::Status& Await();
  const inference::ModelInferResponse& response() const { return response_; }
  const grpc::ClientContext& context() const { return context_; }

 private:
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<inference::ModelInferResponse>> reader_;
  inference::ModelInferResponse response_;
  grpc::Status status_;
  bool ended_ = false;
};

}  // namespace sluice::rpc
