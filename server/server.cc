// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "server/version.h"

namespace sluice::server {

namespace {

absl::StatusOr<rpc::RpcOptions> OptionsOfThePort(const ServerConfig& config) {
  rpc::RpcOptions options;
  options.address = config.address;
  options.port = config.grpc_port;
  options.io_threads = config.io_threads;
  options.max_message_bytes = static_cast<int>(config.max_message_bytes);
  options.max_infer_streams = config.max_infer_streams;
  options.stream_requests = config.stream_requests;
  options.connections = config.listen.connections;
  options.unix_socket = config.listen.unix_socket;
  options.reflection = config.listen.reflection;
  if (config.listen.use_tls || config.listen.mutual_tls) options.tls = config.listen.tls;
  options.policy.strict_class = config.strict_class;
  options.policy.limits = config.listen.limits;
  SLUICE_ASSIGN_OR_RETURN(options.policy.access, ParseRestrictedProtocols(config.listen.restricted_protocols));
  return options;
}

/// The port of the latency class: as the other one, but with one thread and no socket.
rpc::RpcOptions OptionsOfTheLatencyPort(rpc::RpcOptions options, int port) {
  options.port = port;
  options.io_threads = 1;
  options.thread_name = "rpc-latency";
  options.unix_socket.clear();
  options.policy.class_of_the_port = RequestClass::kLatency;
  return options;
}

}  // namespace

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
  SLUICE_RETURN_IF_ERROR(server->Listen(config, clock));
  return server;
}

absl::Status Server::Listen(const ServerConfig& config, const Clock& clock) {
  SLUICE_ASSIGN_OR_RETURN(rpc::RpcOptions options, OptionsOfThePort(config));
  const int polling_threads = serving_->spin_budget().io_thread ? 1 : 0;
  const bool has_latency_port = config.listen.latency_port.has_value();
  options.polling_threads = has_latency_port ? 0 : polling_threads;
  SLUICE_ASSIGN_OR_RETURN(rpc_, rpc::RpcServer::Start(options, *serving_, *call_metrics_, clock));
  if (has_latency_port) {
    rpc::RpcOptions latency_options = OptionsOfTheLatencyPort(options, *config.listen.latency_port);
    latency_options.polling_threads = polling_threads;
    SLUICE_ASSIGN_OR_RETURN(latency_rpc_, rpc::RpcServer::Start(latency_options, *serving_, *call_metrics_, clock));
  }
  unix_socket_ = options.unix_socket;
  Log(Severity::kInfo, "listening",
      {{"grpc_port", grpc_port()},
       {"latency_port", latency_port().value_or(0)},
       {"grpc_unix_socket", unix_socket_},
       {"metrics_port", metrics_port()},
       {"tls", options.tls.has_value()}});
  return absl::OkStatus();
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::Status Server::LoadModels() {
  return serving_->LoadRepository([this] { HealthChanged(); });
}

std::string Server::ReadyLine() const {
  nlohmann::json line = {{"event", ready() ? "ready" : "not_ready"},
                         {"version", kVersion},
                         {"grpc_port", grpc_port()},
                         {"metrics_port", metrics_port()}};
  if (latency_rpc_ != nullptr) line["latency_port"] = *latency_port();
  if (!unix_socket_.empty()) line["grpc_unix_socket"] = unix_socket_;
  line["models"] = nlohmann::json::array();
  for (const auto& model : serving_->ReadyModels()) {
    line["models"].push_back({{"name", model->name},
                              {"version", model->version},
                              {"default_class", std::string(RequestClassName(model->class_rules.default_class))}});
  }
  return line.dump();
}

void Server::HealthChanged() {
  rpc_->HealthChanged();
  if (latency_rpc_ != nullptr) latency_rpc_->HealthChanged();
}

void Server::DrainPorts(absl::Duration grace) {
  // Together: each may take the whole grace.
  Thread latency;
  if (latency_rpc_ != nullptr) {
    latency = Thread("drain-latency", [this, grace] { latency_rpc_->Drain(grace); });
  }
  rpc_->Drain(grace);
}

bool Server::Shutdown(absl::Duration grace) {
  if (stopped_ || rpc_ == nullptr) {
    if (serving_ != nullptr) serving_->Stop();
    return true;
  }
  stopped_ = true;
  Log(Severity::kInfo, "draining", {{"grace_seconds", absl::ToDoubleSeconds(grace)}});
  serving_->Drain();
  HealthChanged();
  // Returns when every call is over: in time when the lanes finished them, else gRPC cancels them and the lanes stop
  // between units.
  const Time start = clock_->Now();
  DrainPorts(grace);
  const bool in_time = clock_->Now() - start <= grace;
  serving_->Stop();
  metrics_server_->Stop();
  Log(Severity::kInfo, "stopped", {{"in_time", in_time}});
  return in_time;
}

}  // namespace sluice::server
