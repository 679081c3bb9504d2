// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "fake_server.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace sluice::client {
namespace {

grpc::Status UnknownModel(const std::string& name) {
  return {grpc::StatusCode::NOT_FOUND, absl::StrCat("unknown model '", name, "'")};
}

}  // namespace

FakeServer::FakeServer(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(this);
  builder.RegisterService(&health_);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() { Stop(); }

void FakeServer::Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

std::string FakeServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

std::vector<SeenRequest> FakeServer::seen() const {
  MutexLock lock(mutex_);
  return seen_;
}

grpc::Status FakeServer::ServerLive(grpc::ServerContext*, const inference::ServerLiveRequest*,
                                    inference::ServerLiveResponse* response) {
  response->set_live(true);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ServerReady(grpc::ServerContext*, const inference::ServerReadyRequest*,
                                     inference::ServerReadyResponse* response) {
  response->set_ready(false);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ModelReady(grpc::ServerContext*, const inference::ModelReadyRequest* request,
                                    inference::ModelReadyResponse* response) {
  if (request->name() != "echo") return UnknownModel(request->name());
  response->set_ready(true);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ServerMetadata(grpc::ServerContext*, const inference::ServerMetadataRequest*,
                                        inference::ServerMetadataResponse* response) {
  response->set_name("fake");
  response->set_version("1.2");
  response->add_extensions("statistics");
  return grpc::Status::OK;
}

grpc::Status FakeServer::ModelMetadata(grpc::ServerContext*, const inference::ModelMetadataRequest* request,
                                       inference::ModelMetadataResponse* response) {
  if (request->name() != "echo") return UnknownModel(request->name());
  response->set_name("echo");
  response->add_versions("1");
  response->set_platform("none");
  auto* input = response->add_inputs();
  input->set_name("x");
  input->set_datatype("INT32");
  input->add_shape(-1);
  input->add_shape(2);
  *response->add_outputs() = *input;
  response->mutable_outputs(0)->set_name("y");
  return grpc::Status::OK;
}

grpc::Status FakeServer::ModelConfig(grpc::ServerContext*, const inference::ModelConfigRequest* request,
                                     inference::ModelConfigResponse* response) {
  if (request->name() != "echo") return UnknownModel(request->name());
  response->mutable_config()->set_name("echo");
  response->mutable_config()->set_max_batch_size(8);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ModelStatistics(grpc::ServerContext*, const inference::ModelStatisticsRequest*,
                                         inference::ModelStatisticsResponse* response) {
  auto* model = response->add_model_stats();
  model->set_name("echo");
  model->set_version("1");
  model->set_inference_count(12);
  model->set_execution_count(4);
  model->mutable_inference_stats()->mutable_queue()->set_count(4);
  model->mutable_inference_stats()->mutable_queue()->set_ns(8000);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                                    inference::ModelInferResponse* response) {
  SeenRequest seen{request->model_name(), "", 0};
  const auto& metadata = context->client_metadata();
  if (const auto found = metadata.find("sluice-class"); found != metadata.end()) {
    seen.class_name.assign(found->second.data(), found->second.size());
  }
  for (const std::string& raw : request->raw_input_contents()) seen.bytes += raw.size();
  {
    MutexLock lock(mutex_);
    seen_.push_back(seen);
  }
  if (behaviour_) {
    if (grpc::Status status = behaviour_(*context, *request); !status.ok()) return status;
  }
  response->set_model_name(request->model_name());
  response->set_model_version("1");
  response->set_id(request->id());
  (*response->mutable_parameters())["sluice_class"].set_string_param(seen.class_name.empty() ? "standard"
                                                                                             : seen.class_name);
  for (int i = 0; i < request->inputs_size(); ++i) {
    auto* output = response->add_outputs();
    output->set_name("y");
    output->set_datatype(request->inputs(i).datatype());
    *output->mutable_shape() = request->inputs(i).shape();
    response->add_raw_output_contents(request->raw_input_contents(i));
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::HealthService::Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                                              grpc::health::v1::HealthCheckResponse* response) {
  if (request->service() == "nobody") return {grpc::StatusCode::NOT_FOUND, "no such service"};
  response->set_status(request->service() == "echo" ? grpc::health::v1::HealthCheckResponse::NOT_SERVING
                                                    : grpc::health::v1::HealthCheckResponse::SERVING);
  return grpc::Status::OK;
}

}  // namespace sluice::client
