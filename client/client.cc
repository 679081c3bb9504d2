// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/convert.h"
#include "client/errors.h"
#include "client/flight.h"
#include "client/pause.h"
#include "health.grpc.pb.h"

namespace sluice::client {
namespace {

// One unary call of a generated stub: context, call, status.
template <class Response, class Request, class Stub, class Method>
absl::StatusOr<Response> Call(Stub& stub, Method method, const Request& request, absl::Duration deadline) {
  grpc::ClientContext context;
  PrepareContext(context, deadline, std::nullopt);
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, context);
  return response;
}

using Stub = inference::GRPCInferenceService::StubInterface;

template <class Message>
std::vector<TensorInfo> ReadTensorInfos(const Message& messages) {
  std::vector<TensorInfo> infos;
  for (const auto& message : messages) {
    infos.push_back({message.name(), ParseWireName(message.datatype()).value_or(DataType::kInvalid),
                     std::vector<int64_t>(message.shape().begin(), message.shape().end())});
  }
  return infos;
}

StageCount ReadStage(const inference::StatisticDuration& duration) {
  return {duration.count(), absl::Nanoseconds(static_cast<int64_t>(duration.ns()))};
}

template <class Request>
Request ModelRequest(const std::string& model, const std::string& version) {
  Request request;
  request.set_name(model);
  request.set_version(version);
  return request;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  SLUICE_ASSIGN_OR_RETURN(auto channels, OpenChannels(options));
  return std::unique_ptr<Client>(new Client(std::move(options), std::move(channels)));
}

Client::Client(ClientOptions options, std::vector<std::shared_ptr<grpc::Channel>> channels)
    : options_(std::move(options)), channels_(std::move(channels)), async_(AsyncClient::Create(channels_, 1)) {
  for (const auto& channel : channels_) stubs_.push_back(inference::GRPCInferenceService::NewStub(channel));
}

const std::shared_ptr<grpc::Channel>& Client::NextChannel() {
  return channels_[next_.fetch_add(1, std::memory_order_relaxed) % channels_.size()];
}

inference::GRPCInferenceService::StubInterface& Client::NextStub() {
  return *stubs_[next_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()];
}

absl::StatusOr<InferReply> Client::InferOnce(const inference::ModelInferRequest& request, const InferOptions& options,
                                             Time deadline) {
  grpc::ClientContext context;
  PrepareContext(context, deadline - clock_.Now(), options.request_class);
  inference::ModelInferResponse response;
  const grpc::Status status = NextStub().ModelInfer(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, context);
  return ReadInferResponse(std::move(response));
}

absl::StatusOr<InferReply> Client::Infer(const std::string& model, std::vector<Tensor> inputs,
                                         const InferOptions& options) {
  if (options.hedge_after.has_value()) return InferAsync(model, std::move(inputs), options).get();
  // Not by a future: the thread that waits for gRPC's answer would have to wake this one.
  const Time deadline = clock_.Now() + options.deadline.value_or(options_.default_deadline);
  SLUICE_ASSIGN_OR_RETURN(const inference::ModelInferRequest request,
                          BuildInferRequest(model, std::move(inputs), options));
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<InferReply> reply = InferOnce(request, options, deadline);
    if (reply.ok()) return reply;
    const std::optional<Time> again = NextAttempt(options_.retry, attempt, reply.status(), clock_.Now(), deadline);
    if (!again.has_value()) return reply;
    PauseUntil(*again);
  }
}

std::future<absl::StatusOr<InferReply>> Client::InferAsync(const std::string& model, std::vector<Tensor> inputs,
                                                           const InferOptions& options) {
  const auto owned = std::make_shared<const std::vector<Tensor>>(std::move(inputs));
  std::vector<TensorView> views;
  for (const Tensor& tensor : *owned) views.push_back(ViewOf(tensor, owned));
  return InferViewsAsync(model, views, options);
}

std::future<absl::StatusOr<InferReply>> Client::InferViewsAsync(const std::string& model,
                                                                const std::vector<TensorView>& inputs,
                                                                const InferOptions& options) {
  absl::StatusOr<EncodedRequest> request = EncodedRequest::EncodeViews(model, inputs, options);
  absl::Status status = request.status();
  if (options.hedge_after.has_value() && options.request_class != RequestClass::kLatency) {
    status = absl::InvalidArgumentError("hedge_after: is for request_class latency only");
  }
  if (!status.ok()) {
    std::promise<absl::StatusOr<InferReply>> refused;
    refused.set_value(std::move(status));
    return refused.get_future();
  }
  const Time deadline = clock_.Now() + options.deadline.value_or(options_.default_deadline);
  return Flight::Start(*async_, clock_,
                       {*std::move(request), options.request_class, deadline, options_.retry, options.hedge_after});
}

absl::StatusOr<bool> Client::ServerLive() {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::ServerLiveResponse>(NextStub(), &Stub::ServerLive,
                                                                                    inference::ServerLiveRequest(),
                                                                                    options_.default_deadline)));
  return response.live();
}

absl::StatusOr<bool> Client::ServerReady() {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::ServerReadyResponse>(NextStub(), &Stub::ServerReady,
                                                                                     inference::ServerReadyRequest(),
                                                                                     options_.default_deadline)));
  return response.ready();
}

absl::StatusOr<bool> Client::ModelReady(const std::string& model, const std::string& version) {
  SLUICE_ASSIGN_OR_RETURN(const auto response,
                          (Call<inference::ModelReadyResponse>(
                              NextStub(), &Stub::ModelReady, ModelRequest<inference::ModelReadyRequest>(model, version),
                              options_.default_deadline)));
  return response.ready();
}

absl::StatusOr<ServerInfo> Client::ServerMetadata() {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::ServerMetadataResponse>(
                                                   NextStub(), &Stub::ServerMetadata,
                                                   inference::ServerMetadataRequest(), options_.default_deadline)));
  return ServerInfo{response.name(), response.version(), {response.extensions().begin(), response.extensions().end()}};
}

absl::StatusOr<ModelInfo> Client::ModelMetadata(const std::string& model, const std::string& version) {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::ModelMetadataResponse>(
                                                   NextStub(), &Stub::ModelMetadata,
                                                   ModelRequest<inference::ModelMetadataRequest>(model, version),
                                                   options_.default_deadline)));
  return ModelInfo{response.name(),
                   {response.versions().begin(), response.versions().end()},
                   response.platform(),
                   ReadTensorInfos(response.inputs()),
                   ReadTensorInfos(response.outputs())};
}

absl::StatusOr<inference::ModelConfig> Client::ModelConfig(const std::string& model, const std::string& version) {
  SLUICE_ASSIGN_OR_RETURN(
      auto response, (Call<inference::ModelConfigResponse>(NextStub(), &Stub::ModelConfig,
                                                           ModelRequest<inference::ModelConfigRequest>(model, version),
                                                           options_.default_deadline)));
  return std::move(*response.mutable_config());
}

absl::StatusOr<std::vector<ModelCounters>> Client::ModelStatistics(const std::string& model,
                                                                   const std::string& version) {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::ModelStatisticsResponse>(
                                                   NextStub(), &Stub::ModelStatistics,
                                                   ModelRequest<inference::ModelStatisticsRequest>(model, version),
                                                   options_.default_deadline)));
  std::vector<ModelCounters> all;
  for (const inference::ModelStatistics& message : response.model_stats()) {
    ModelCounters counters;
    counters.name = message.name();
    counters.version = message.version();
    counters.inference_count = message.inference_count();
    counters.execution_count = message.execution_count();
    const inference::InferStatistics& stages = message.inference_stats();
    counters.success = ReadStage(stages.success());
    counters.fail = ReadStage(stages.fail());
    counters.queue = ReadStage(stages.queue());
    counters.compute_input = ReadStage(stages.compute_input());
    counters.compute_infer = ReadStage(stages.compute_infer());
    counters.compute_output = ReadStage(stages.compute_output());
    all.push_back(std::move(counters));
  }
  return all;
}

absl::StatusOr<std::vector<ModelIndexEntry>> Client::RepositoryIndex() {
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<inference::RepositoryIndexResponse>(
                                                   NextStub(), &Stub::RepositoryIndex,
                                                   inference::RepositoryIndexRequest(), options_.default_deadline)));
  std::vector<ModelIndexEntry> models;
  for (const auto& model : response.models()) {
    models.push_back({model.name(), model.version(), model.state(), model.reason()});
  }
  return models;
}

absl::Status Client::LoadModel(const std::string& model, const std::optional<std::string>& config,
                               const std::map<std::string, std::string>& files) {
  inference::RepositoryModelLoadRequest request;
  request.set_model_name(model);
  if (config.has_value()) (*request.mutable_parameters())["config"].set_string_param(*config);
  for (const auto& [path, bytes] : files) {
    (*request.mutable_parameters())[absl::StrCat("file:", path)].set_bytes_param(bytes);
  }
  return Call<inference::RepositoryModelLoadResponse>(NextStub(), &Stub::RepositoryModelLoad, request,
                                                      options_.default_deadline)
      .status();
}

absl::Status Client::UnloadModel(const std::string& model) {
  inference::RepositoryModelUnloadRequest request;
  request.set_model_name(model);
  return Call<inference::RepositoryModelUnloadResponse>(NextStub(), &Stub::RepositoryModelUnload, request,
                                                        options_.default_deadline)
      .status();
}

absl::StatusOr<HealthState> Client::Health(const std::string& service) {
  using HealthStub = grpc::health::v1::Health::StubInterface;
  const std::unique_ptr<HealthStub> stub = grpc::health::v1::Health::NewStub(NextChannel());
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  SLUICE_ASSIGN_OR_RETURN(const auto response, (Call<grpc::health::v1::HealthCheckResponse>(
                                                   *stub, &HealthStub::Check, request, options_.default_deadline)));
  switch (response.status()) {
    case grpc::health::v1::HealthCheckResponse::SERVING:
      return HealthState::kServing;
    case grpc::health::v1::HealthCheckResponse::NOT_SERVING:
      return HealthState::kNotServing;
    case grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN:
      return HealthState::kServiceUnknown;
    default:
      return HealthState::kUnknown;
  }
}

}  // namespace sluice::client
