// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/echo_server.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_unary_call.h"

namespace sluice::bench {

/// One call, from being armed to the end of its answer; then it is armed again as a new object.
struct EchoServer::Call {
  grpc::ServerContext context;
  grpc::ByteBuffer request;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> responder{&context};
  bool answered = false;

  static void Arm(EchoServer& server) {
    auto* call = new Call;  // The queue owns it through its tag.
    server.service_.RequestModelInfer(&call->context, &call->request, &call->responder, server.queue_.get(),
                                      server.queue_.get(), call);
  }
};

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(grpc::ByteBuffer answer, int thread_count) {
  auto server = std::unique_ptr<EchoServer>(new EchoServer(std::move(answer)));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(std::numeric_limits<int32_t>::max());
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &server->port_);
  builder.RegisterService(&server->service_);
  server->queue_ = builder.AddCompletionQueue();
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ <= 0) {
    return absl::FailedPreconditionError("the echo server cannot listen on the loopback");
  }
  for (int i = 0; i < kArmedCalls; ++i) Call::Arm(*server);
  for (int i = 0; i < thread_count; ++i) {
    server->threads_.emplace_back(absl::StrCat("echo-", i), [self = server.get()] { self->Poll(); });
  }
  return server;
}

EchoServer::~EchoServer() {
  if (server_ != nullptr) server_->Shutdown();
  if (queue_ != nullptr) queue_->Shutdown();
  threads_.clear();
  if (queue_ == nullptr) return;
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) delete static_cast<Call*>(tag);
}

void EchoServer::Poll() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    auto* call = static_cast<Call*>(tag);
    if (!ok || call->answered) {
      delete call;
      continue;
    }
    Call::Arm(*this);
    call->answered = true;
    call->responder.Finish(answer_, grpc::Status::OK, call);
  }
}

}  // namespace sluice::bench
