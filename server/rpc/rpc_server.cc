// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/rpc_server.h"

#include <grpc/support/time.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/model_calls.h"
#include "server/rpc/reflection.h"
#include "server/rpc/repository_calls.h"
#include "server/rpc/tls.h"

namespace sluice::rpc {
namespace {

/// Armed calls of each small method; they are answered at once, so few are enough.
constexpr int kArmedSmallCalls = 4;
constexpr int kMaxIoThreads = 16;

absl::Status CheckOptions(const RpcOptions& options) {
  // gRPC takes a port over 65535 and listens on its low 16 bits.
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("gRPC port: expected 0 to 65535, got ", options.port));
  }
  if (options.io_threads < 1 || options.io_threads > kMaxIoThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("I/O threads: expected 1 to ", kMaxIoThreads, ", got ", options.io_threads));
  }
  if (options.polling_threads < 0 || options.polling_threads > options.io_threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("polling I/O threads: expected 0 to ", options.io_threads, ", got ", options.polling_threads));
  }
  if (options.armed_calls < 1 || options.connections.max_concurrent_streams < 1 || options.max_message_bytes < 1 ||
      options.max_infer_streams < 1 || options.stream_requests < 1) {
    return absl::InvalidArgumentError(
        "armed calls, concurrent streams, message bytes, inferring streams and requests of one must be 1 or more");
  }
  return absl::OkStatus();
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 0, std::numeric_limits<int32_t>::max()));
}

void LimitConnections(const server::ConnectionLimits& limits, grpc::ServerBuilder& builder) {
  const std::pair<const char*, absl::Duration> durations[] = {
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits.min_ping_interval},
      {GRPC_ARG_KEEPALIVE_TIME_MS, limits.keepalive_time},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, limits.keepalive_timeout},
      {GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, limits.max_age_grace},
  };
  for (const auto& [name, duration] : durations) builder.AddChannelArgument(name, Milliseconds(duration));
  // Left out, they are off: gRPC would take a zero at its word.
  if (limits.max_age > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(limits.max_age));
  }
  if (limits.max_idle > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(limits.max_idle));
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

void Configure(const RpcOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  LimitConnections(options.connections, builder);
  SetReflection(options.reflection, builder);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> PortCredentials(const RpcOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureServerCredentials();
  return MakeTlsCredentials(*options.tls, options.tls_reload_interval);
}

void ServeQueue(grpc::ServerCompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) FromQueue(tag).OnEvent(ok);
}

/// Never sleeps: waking up is the larger part of a small call's latency.
void PollQueue(grpc::ServerCompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (true) {
    const auto next = queue.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (next == grpc::CompletionQueue::SHUTDOWN) return;
    if (next == grpc::CompletionQueue::GOT_EVENT) FromQueue(tag).OnEvent(ok);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcOptions& options,
                                                            server::InferenceBackend& backend, RpcObserver& observer,
                                                            const Clock& clock) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<RpcServer> server(new RpcServer(options, backend, observer, clock));
  SLUICE_RETURN_IF_ERROR(server->Listen(options));
  server->Serve(options);
  SLUICE_RETURN_IF_ERROR(server->acceptor_.Start());
  return server;
}

RpcServer::RpcServer(const RpcOptions& options, server::InferenceBackend& backend, RpcObserver& observer,
                     const Clock& clock)
    : environment_(backend, observer, clock, options.policy, options.stream_requests),
      streams_(static_cast<size_t>(options.max_infer_streams)),
      pool_(std::make_shared<InferCallPool>(static_cast<size_t>(options.armed_calls) * 2)) {}

RpcServer::~RpcServer() { Stop(); }

absl::Status RpcServer::Listen(const RpcOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials, PortCredentials(options));
  grpc::ServerBuilder builder;
  Configure(options, builder);
  constexpr auto kFromDescriptor = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
  SLUICE_ASSIGN_OR_RETURN(
      port_,
      acceptor_.ListenOnPort(options.address, options.port, options.connections.keepalive_timeout,
                             builder.experimental().AddExternalConnectionAcceptor(kFromDescriptor, credentials)));
  if (!options.unix_socket.empty()) {
    // Its guard are the permissions of the file.
    SLUICE_RETURN_IF_ERROR(acceptor_.ListenOnUnixSocket(
        options.unix_socket,
        builder.experimental().AddExternalConnectionAcceptor(kFromDescriptor, grpc::InsecureServerCredentials())));
  }
  builder.RegisterService(&environment_.infer_service);
  builder.RegisterService(&environment_.health_service);
  environment_.queue = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  return server_ != nullptr ? absl::OkStatus() : absl::InternalError("gRPC did not start its server");
}

void RpcServer::Serve(const RpcOptions& options) {
  for (int i = 0; i < options.armed_calls; ++i) InferCall::Arm(environment_, pool_);
  StreamInferCall::Arm(environment_, streams_, kArmedSmallCalls);
  ArmModelCalls(environment_, kArmedSmallCalls);
  ArmRepositoryCalls(environment_, kArmedSmallCalls);
  ArmHealthCalls(environment_, watches_, kArmedSmallCalls);
  for (int i = 0; i < options.io_threads; ++i) {
    const bool polls = i < options.polling_threads;
    io_threads_.emplace_back(absl::StrCat(options.thread_name, "-", i), [this, polls] {
      polls ? PollQueue(*environment_.queue) : ServeQueue(*environment_.queue);
    });
  }
}

void RpcServer::HealthChanged() { watches_.Changed(); }

void RpcServer::Drain(absl::Duration grace) {
  MutexLock lock(drain_mutex_);
  if (drained_) return;
  drained_ = true;
  environment_.stopping.store(true, std::memory_order_release);
  watches_.EndAll();
  streams_.EndAll();
  acceptor_.Stop();
  if (server_ != nullptr) {
    // On the monotonic clock, so that a step of the wall clock does not cut the grace short.
    const gpr_timespec span = gpr_time_from_millis(Milliseconds(grace), GPR_TIMESPAN);
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span));
  }
  // Every armed call has its event now, and every call under way was answered or cancelled. A queue must not be shut
  // down while an operation may still start on it. A server that never listened has used nothing of its queue.
  if (!io_threads_.empty()) {
    environment_.WaitUntilNone();
    environment_.queue->Shutdown();
  }
  io_threads_.clear();
  pool_->Close();
}

}  // namespace sluice::rpc
