// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "client/async_client.h"
#include "client/channel.h"
#include "client/types.h"
#include "inference.grpc.pb.h"
#include "model_config.pb.h"

namespace sluice::client {

/// A client of one server.
/// Purpose: the Open Inference Protocol with Sluice's classes, as blocking calls and futures. Bounds: every call has a
/// deadline (ClientOptions::default_deadline unless the call names one); messages up to 2 GiB - 1.
/// Ownership: owns its channels; nothing handed to a call is kept after it.
/// Threads: all methods may be called from any thread at any time; all but InferAsync block their caller until the
/// answer or deadline. One thread of its own ("answers") serves the futures. Errors: the server's status with the same
/// code (see client/errors.h: IsRetryable, RetryPushback).
class Client {
 public:
  /// Opens the channels and waits until connected (ClientOptions::connect_timeout). INVALID_ARGUMENT, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);

  /// One inference. Retried as ClientOptions::retry says, within the one deadline.
  absl::StatusOr<InferReply> Infer(const std::string& model, std::vector<Tensor> inputs,
                                   const InferOptions& options = {});

  /// The same without blocking, and without a copy of the tensors' bytes on the way to gRPC. INVALID_ARGUMENT comes in
  /// the future too. A client that goes cancels what is under way.
  std::future<absl::StatusOr<InferReply>> InferAsync(const std::string& model, std::vector<Tensor> inputs,
                                                     const InferOptions& options = {});
  /// The same with tensors that stay where they are.
  std::future<absl::StatusOr<InferReply>> InferViewsAsync(const std::string& model,
                                                          const std::vector<TensorView>& inputs,
                                                          const InferOptions& options = {});

  absl::StatusOr<bool> ServerLive();
  absl::StatusOr<bool> ServerReady();
  /// NOT_FOUND for a model the server does not know. An empty version asks about the newest.
  absl::StatusOr<bool> ModelReady(const std::string& model, const std::string& version = "");
  absl::StatusOr<ServerInfo> ServerMetadata();
  absl::StatusOr<ModelInfo> ModelMetadata(const std::string& model, const std::string& version = "");
  absl::StatusOr<inference::ModelConfig> ModelConfig(const std::string& model, const std::string& version = "");
  /// Counters of one model, or of every model when `model` is empty.
  absl::StatusOr<std::vector<ModelCounters>> ModelStatistics(const std::string& model = "",
                                                             const std::string& version = "");
  /// All models of the server's repository.
  absl::StatusOr<std::vector<ModelIndexEntry>> RepositoryIndex();
  /// Loads what the repository has of a model, replacing what is loaded, with `config` (JSON) in place of its
  /// config.pbtxt; or, with `files` (contents by "VERSION/NAME", such as "1/model.onnx"), these in place of the
  /// repository's, which needs a config. Answered when it is over: long loads need a long
  /// ClientOptions::default_deadline. UNAVAILABLE unless the server lets clients do this.
  absl::Status LoadModel(const std::string& model, const std::optional<std::string>& config = std::nullopt,
                         const std::map<std::string, std::string>& files = {});
  /// Answered when the model takes no more requests.
  absl::Status UnloadModel(const std::string& model);
  /// The standard health service. NOT_FOUND for a service name the server does not know.
  absl::StatusOr<HealthState> Health(const std::string& service = "");

  const ClientOptions& options() const { return options_; }

 private:
  Client(ClientOptions options, std::vector<std::shared_ptr<grpc::Channel>> channels);

  const std::shared_ptr<grpc::Channel>& NextChannel();
  inference::GRPCInferenceService::StubInterface& NextStub();
  absl::StatusOr<InferReply> InferOnce(const inference::ModelInferRequest& request, const InferOptions& options,
                                       Time deadline);

  const ClientOptions options_;
  const std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<inference::GRPCInferenceService::Stub>> stubs_;
  const MonotonicClock clock_;
  std::atomic<uint64_t> next_ = 0;            // Relaxed: only spreads calls over the channels.
  const std::unique_ptr<AsyncClient> async_;  // last: its operations use what is above
};

}  // namespace sluice::client
