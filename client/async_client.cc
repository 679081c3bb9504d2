// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/async_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/convert.h"
#include "client/errors.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/codegen/serialization_traits.h"

namespace sluice::client {
namespace {

constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr int kMostThreads = 16;

}  // namespace

struct AsyncClient::Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
  OnAnswer on_answer;
};

absl::StatusOr<EncodedRequest> EncodedRequest::Encode(const std::string& model, std::vector<Tensor> inputs,
                                                      const InferOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const inference::ModelInferRequest request,
                          BuildInferRequest(model, std::move(inputs), options));
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  const grpc::Status status =
      grpc::SerializationTraits<inference::ModelInferRequest>::Serialize(request, &bytes, &own_buffer);
  if (!status.ok()) return FromGrpc(status);
  return EncodedRequest(std::move(bytes));
}

absl::StatusOr<std::unique_ptr<AsyncClient>> AsyncClient::Connect(const ClientOptions& options, int thread_count) {
  if (thread_count < 1 || thread_count > kMostThreads) {
    return absl::InvalidArgumentError(absl::StrCat("thread_count: must be 1 to ", kMostThreads));
  }
  SLUICE_ASSIGN_OR_RETURN(auto channels, OpenChannels(options));
  auto client = std::unique_ptr<AsyncClient>(new AsyncClient(std::move(channels)));
  for (int i = 0; i < thread_count; ++i) {
    client->threads_.emplace_back("answers", [self = client.get()] { self->Poll(); });
  }
  return client;
}

AsyncClient::AsyncClient(std::vector<std::shared_ptr<grpc::Channel>> channels) : channels_(std::move(channels)) {
  for (const auto& channel : channels_) stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
}

AsyncClient::~AsyncClient() {
  CancelAll();
  {
    MutexLock lock(mutex_);
    while (!calls_.empty()) all_answered_.Wait(mutex_);
  }
  queue_.Shutdown();
  threads_.clear();
}

size_t AsyncClient::outstanding() const {
  MutexLock lock(mutex_);
  return calls_.size();
}

void AsyncClient::StartInfer(const EncodedRequest& request, absl::Duration deadline,
                             std::optional<RequestClass> request_class, OnAnswer on_answer) {
  auto call = std::make_shared<Call>();
  call->on_answer = std::move(on_answer);
  PrepareContext(call->context, deadline, request_class);
  grpc::GenericStub& stub = *stubs_[next_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()];
  call->reader = stub.PrepareUnaryCall(&call->context, kMethod, request.bytes(), &queue_);
  {
    // Registered before it starts: its answer may come before the next line here.
    MutexLock lock(mutex_);
    calls_.emplace(call.get(), call);
  }
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status, call.get());
}

void AsyncClient::CancelAll() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    MutexLock lock(mutex_);
    calls.reserve(calls_.size());
    for (const auto& [key, call] : calls_) calls.push_back(call);
  }
  for (const auto& call : calls) call->context.TryCancel();
}

void AsyncClient::Poll() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const Time answered = clock_.Now();
    std::shared_ptr<Call> call;
    {
      MutexLock lock(mutex_);
      call = calls_.find(static_cast<Call*>(tag))->second;
    }
    call->on_answer({FromGrpc(call->status, call->context), answered, std::move(call->response)});
    // Forgotten after its callback, so that a call started there keeps the client from looking idle.
    MutexLock lock(mutex_);
    calls_.erase(call.get());
    if (calls_.empty()) all_answered_.NotifyAll();
  }
}

}  // namespace sluice::client
