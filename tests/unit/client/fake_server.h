// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "grpcpp/server.h"
#include "health.grpc.pb.h"
#include "inference.grpc.pb.h"

namespace sluice::client {

/// What a test wants to know of a request that came.
struct SeenRequest {
  std::string model;
  std::string class_name;  ///< Metadata sluice-class; empty when there was none.
  size_t bytes = 0;
};

/// An in-process server on a free port of loopback. Its model "echo" has one input x INT32 [-1,2] and answers it as y.
class FakeServer : public inference::GRPCInferenceService::Service {
 public:
  /// Called for each ModelInfer, from several threads; what it returns other than OK is answered.
  using Behaviour = std::function<grpc::Status(grpc::ServerContext&, const inference::ModelInferRequest&)>;

  explicit FakeServer(Behaviour behaviour = nullptr);
  ~FakeServer() override;

  std::string address() const;
  std::vector<SeenRequest> seen() const;
  void Stop();

  grpc::Status ServerLive(grpc::ServerContext*, const inference::ServerLiveRequest*,
                          inference::ServerLiveResponse* response) override;
  grpc::Status ServerReady(grpc::ServerContext*, const inference::ServerReadyRequest*,
                           inference::ServerReadyResponse* response) override;
  grpc::Status ModelReady(grpc::ServerContext*, const inference::ModelReadyRequest* request,
                          inference::ModelReadyResponse* response) override;
  grpc::Status ServerMetadata(grpc::ServerContext*, const inference::ServerMetadataRequest*,
                              inference::ServerMetadataResponse* response) override;
  grpc::Status ModelMetadata(grpc::ServerContext*, const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override;
  grpc::Status ModelConfig(grpc::ServerContext*, const inference::ModelConfigRequest* request,
                           inference::ModelConfigResponse* response) override;
  grpc::Status ModelStatistics(grpc::ServerContext*, const inference::ModelStatisticsRequest*,
                               inference::ModelStatisticsResponse* response) override;
  grpc::Status ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override;

 private:
  class HealthService : public grpc::health::v1::Health::Service {
    grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                       grpc::health::v1::HealthCheckResponse* response) override;
  };

  const Behaviour behaviour_;
  HealthService health_;
  int port_ = 0;
  mutable Mutex mutex_;
  std::vector<SeenRequest> seen_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::client
