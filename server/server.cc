// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/version.h"

namespace sluice::server {

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config, const Clock& clock) {
  SLUICE_RETURN_IF_ERROR(ValidateConfig(config));
  SLUICE_ASSIGN_OR_RETURN(std::vector<DeviceSpec> specs, ResolveDevices(config));
  std::unique_ptr<Server> server(new Server());
  server->clock_ = &clock;
  metrics::MetricsOptions metrics_options;
  metrics_options.devices = DeviceNames(specs);
  metrics_options.version = kVersion;
  server->metrics_ = std::make_unique<metrics::Metrics>(std::move(metrics_options));
  SLUICE_ASSIGN_OR_RETURN(server->serving_, Serving::Create(config, std::move(specs), clock, *server->metrics_));
  server->call_metrics_ = std::make_unique<CallMetrics>(*server->metrics_, *server->serving_);

  metrics::HealthProbes probes;
  probes.live = [serving = server->serving_.get()] { return serving->live(); };
  probes.ready = [serving = server->serving_.get()] { return serving->ready(); };
  metrics::TraceSource trace = [serving = server->serving_.get()](absl::Duration duration) {
    return serving->RecordTrace(duration);
  };
  metrics::InspectSource inspect = [serving = server->serving_.get()](const std::string& model,
                                                                      const std::string& version) {
    return serving->Inspect(model, version);
  };
  SLUICE_ASSIGN_OR_RETURN(
      server->metrics_server_,
      metrics::MetricsServer::Start({.address = config.address, .port = config.metrics_port}, *server->metrics_,
                                    std::move(probes), std::move(trace), std::move(inspect)));
  rpc::RpcOptions rpc_options;
  rpc_options.address = config.address;
  rpc_options.port = config.grpc_port;
  rpc_options.io_threads = config.io_threads;
  rpc_options.max_message_bytes = static_cast<int>(config.max_message_bytes);
  rpc_options.max_infer_streams = config.max_infer_streams;
  rpc_options.stream_requests = config.stream_requests;
  rpc_options.polling_threads = server->serving_->spin_budget().io_thread ? 1 : 0;
  rpc_options.policy.strict_class = config.strict_class;
  SLUICE_ASSIGN_OR_RETURN(server->rpc_,
                          rpc::RpcServer::Start(rpc_options, *server->serving_, *server->call_metrics_, clock));
  Log(Severity::kInfo, "listening", {{"grpc_port", server->grpc_port()}, {"metrics_port", server->metrics_port()}});
  return server;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::Status Server::LoadModels() {
  return serving_->LoadRepository([this] { rpc_->HealthChanged(); });
}

std::string Server::ReadyLine() const {
  nlohmann::json line = {{"event", ready() ? "ready" : "not_ready"},
                         {"version", kVersion},
                         {"grpc_port", grpc_port()},
                         {"metrics_port", metrics_port()}};
  line["models"] = nlohmann::json::array();
  for (const auto& model : serving_->ReadyModels()) {
    line["models"].push_back({{"name", model->name},
                              {"version", model->version},
                              {"default_class", std::string(RequestClassName(model->class_rules.default_class))}});
  }
  return line.dump();
}

bool Server::Shutdown(absl::Duration grace) {
  if (stopped_ || rpc_ == nullptr) {
    if (serving_ != nullptr) serving_->Stop();
    return true;
  }
  stopped_ = true;
  Log(Severity::kInfo, "draining", {{"grace_seconds", absl::ToDoubleSeconds(grace)}});
  serving_->Drain();
  rpc_->HealthChanged();
  // Returns when every call is over: in time when the lanes finished them, else gRPC cancels them and the lanes stop
  // between units.
  const Time start = clock_->Now();
  rpc_->Drain(grace);
  const bool in_time = clock_->Now() - start <= grace;
  serving_->Stop();
  metrics_server_->Stop();
  Log(Severity::kInfo, "stopped", {{"in_time", in_time}});
  return in_time;
}

}  // namespace sluice::server
