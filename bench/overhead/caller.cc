// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/caller.h"

#include <utility>

#include "base/status_macros.h"
#include "client/channel.h"
#include "client/convert.h"
#include "client/errors.h"
#include "grpcpp/client_context.h"

namespace sluice::bench {

absl::StatusOr<std::unique_ptr<Caller>> Caller::Connect(const std::string& address) {
  client::ClientOptions options;
  options.address = address;
  SLUICE_ASSIGN_OR_RETURN(auto channels, client::OpenChannels(options));
  return std::unique_ptr<Caller>(new Caller(std::move(channels.front())));
}

Caller::~Caller() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::StatusOr<Caller::Answer> Caller::Call(const grpc::ByteBuffer& request,
                                            std::optional<RequestClass> request_class) {
  Answer answer;
  grpc::ClientContext context;
  client::PrepareContext(context, absl::Seconds(10), request_class);
  grpc::Status status;
  const Time begin = clock_.Now();
  const auto reader = stub_.PrepareUnaryCall(&context, "/inference.GRPCInferenceService/ModelInfer", request, &queue_);
  reader->StartCall();
  reader->Finish(&answer.body, &status, &answer);
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  answer.latency = clock_.Now() - begin;
  if (!status.ok()) return client::FromGrpc(status, context);
  return answer;
}

}  // namespace sluice::bench
