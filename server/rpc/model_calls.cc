// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/model_calls.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/settings_calls.h"
#include "server/rpc/shared_memory_calls.h"
#include "server/rpc/unary_call.h"

namespace sluice::rpc {
namespace {

/// Extensions of the protocol that are served in full; clients decide by them what they call.
constexpr const char* kExtensions[] = {"model_configuration", "statistics", "schedule_policy"};
/// Where clients may load and unload. No model depends on another, so unload_dependents is obeyed too.
constexpr const char* kControlExtensions[] = {"model_repository", "model_repository(unload_dependents)"};

void DescribeTensor(const server::ServedTensor& tensor, inference::ModelMetadataResponse::TensorMetadata& metadata) {
  metadata.set_name(tensor.name);
  metadata.set_datatype(std::string(WireName(tensor.type)));
  metadata.mutable_shape()->Add(tensor.dims.begin(), tensor.dims.end());
}

}  // namespace

absl::Status AnswerServerLive(const server::InferenceBackend& backend, const inference::ServerLiveRequest& /*request*/,
                              inference::ServerLiveResponse& response) {
  response.set_live(backend.live());
  return absl::OkStatus();
}

absl::Status AnswerServerReady(const server::InferenceBackend& backend,
                               const inference::ServerReadyRequest& /*request*/,
                               inference::ServerReadyResponse& response) {
  response.set_ready(backend.ready());
  return absl::OkStatus();
}

absl::Status AnswerModelReady(const server::InferenceBackend& backend, const inference::ModelReadyRequest& request,
                              inference::ModelReadyResponse& response) {
  const absl::Status found = backend.FindModel(request.name(), request.version()).status();
  if (!found.ok() && !absl::IsUnavailable(found)) return found;
  response.set_ready(found.ok());
  return absl::OkStatus();
}

absl::Status AnswerServerMetadata(const server::InferenceBackend& backend,
                                  const inference::ServerMetadataRequest& /*request*/,
                                  inference::ServerMetadataResponse& response) {
  response.set_name("sluice");
  response.set_version(SLUICE_VERSION);
  for (const char* extension : kExtensions) response.add_extensions(extension);
  if (backend.allows_model_control()) {
    for (const char* extension : kControlExtensions) response.add_extensions(extension);
  }
  if (backend.shared_memory() != nullptr) response.add_extensions("system_shared_memory");
  return absl::OkStatus();
}

absl::Status AnswerModelMetadata(const server::InferenceBackend& backend,
                                 const inference::ModelMetadataRequest& request,
                                 inference::ModelMetadataResponse& response) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<const server::ServedModel> model,
                          backend.FindModel(request.name(), request.version()));
  response.set_name(model->name);
  if (request.version().empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> versions, backend.ReadyVersions(model->name));
    for (const int64_t version : versions) response.add_versions(absl::StrCat(version));
  } else {
    response.add_versions(absl::StrCat(model->version));
  }
  response.set_platform(model->config.platform().empty() ? model->config.backend() : model->config.platform());
  for (const server::ServedTensor& input : model->inputs) DescribeTensor(input, *response.add_inputs());
  for (const server::ServedTensor& output : model->outputs) DescribeTensor(output, *response.add_outputs());
  return absl::OkStatus();
}

absl::Status AnswerModelConfig(const server::InferenceBackend& backend, const inference::ModelConfigRequest& request,
                               inference::ModelConfigResponse& response) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<const server::ServedModel> model,
                          backend.FindModel(request.name(), request.version()));
  *response.mutable_config() = model->config;
  return absl::OkStatus();
}

absl::Status AnswerModelStatistics(const server::InferenceBackend& backend,
                                   const inference::ModelStatisticsRequest& request,
                                   inference::ModelStatisticsResponse& response) {
  return backend.FillStatistics(request.name(), request.version(), response);
}

// The generated Request... methods differ by name only, which no template can bind.
#define SLUICE_ARM_METHOD(name, protocol)                                                                         \
  UnaryCall<inference::name##Request, inference::name##Response>::Arm(                                            \
      environment, {[](CallEnvironment& env, grpc::ServerContext* context, inference::name##Request* request,     \
                       grpc::ServerAsyncResponseWriter<inference::name##Response>* writer, void* tag) {           \
                      env.infer_service.Request##name(context, request, writer, env.queue.get(), env.queue.get(), \
                                                      tag);                                                       \
                    },                                                                                            \
                    &Answer##name, server::Protocol::protocol})

void ArmModelCalls(CallEnvironment& environment, int count) {
  for (int i = 0; i < count; ++i) {
    SLUICE_ARM_METHOD(ServerLive, kHealth);
    SLUICE_ARM_METHOD(ServerReady, kHealth);
    SLUICE_ARM_METHOD(ModelReady, kHealth);
    SLUICE_ARM_METHOD(ServerMetadata, kMetadata);
    SLUICE_ARM_METHOD(ModelMetadata, kMetadata);
    SLUICE_ARM_METHOD(ModelConfig, kModelConfig);
    SLUICE_ARM_METHOD(ModelStatistics, kStatistics);
    SLUICE_ARM_METHOD(TraceSetting, kTrace);
    SLUICE_ARM_METHOD(LogSettings, kLogging);
    SLUICE_ARM_METHOD(SystemSharedMemoryStatus, kSharedMemory);
    SLUICE_ARM_METHOD(SystemSharedMemoryRegister, kSharedMemory);
    SLUICE_ARM_METHOD(SystemSharedMemoryUnregister, kSharedMemory);
  }
}

#undef SLUICE_ARM_METHOD

}  // namespace sluice::rpc
