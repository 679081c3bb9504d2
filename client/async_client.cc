// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/async_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/convert.h"
#include "client/errors.h"
#include "grpcpp/alarm.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/codegen/serialization_traits.h"

namespace sluice::client {
namespace {

constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr int kMostThreads = 16;

}  // namespace

class AsyncClient::Call final : public Operation {
 public:
  explicit Call(OnAnswer on_answer) : on_answer_(std::move(on_answer)) {}
  void Start(grpc::GenericStub& stub, const EncodedRequest& request, grpc::CompletionQueue& queue) {
    reader_ = stub.PrepareUnaryCall(&context_, kMethod, request.bytes(), &queue);
    reader_->StartCall();
    reader_->Finish(&response_, &status_, static_cast<Operation*>(this));
  }
  void Cancel() override { context_.TryCancel(); }
  grpc::ClientContext& context() { return context_; }

 private:
  void Complete(bool /*ok*/, Time now) override {
    on_answer_({FromGrpc(status_, context_), now, std::move(response_)});
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  OnAnswer on_answer_;
};

class AsyncClient::Timer final : public Operation {
 public:
  explicit Timer(OnTime on_time) : on_time_(std::move(on_time)) {}
  void Start(absl::Duration wait, grpc::CompletionQueue& queue) {
    alarm_.Set(&queue, MonotonicDeadline(wait), static_cast<Operation*>(this));
  }
  void Cancel() override { alarm_.Cancel(); }

 private:
  void Complete(bool ok, Time /*now*/) override { on_time_(ok); }

  grpc::Alarm alarm_;
  OnTime on_time_;
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

absl::StatusOr<EncodedRequest> EncodedRequest::EncodeViews(const std::string& model,
                                                           const std::vector<TensorView>& inputs,
                                                           const InferOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<grpc::Slice> slices, EncodeInferRequest(model, inputs, options));
  return EncodedRequest(grpc::ByteBuffer(slices.data(), slices.size()));
}

absl::StatusOr<std::unique_ptr<AsyncClient>> AsyncClient::Connect(const ClientOptions& options, int thread_count) {
  if (thread_count < 1 || thread_count > kMostThreads) {
    return absl::InvalidArgumentError(absl::StrCat("thread_count: must be 1 to ", kMostThreads));
  }
  SLUICE_ASSIGN_OR_RETURN(auto channels, OpenChannels(options));
  return Create(std::move(channels), thread_count);
}

std::unique_ptr<AsyncClient> AsyncClient::Create(std::vector<std::shared_ptr<grpc::Channel>> channels,
                                                 int thread_count) {
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
  {
    MutexLock lock(mutex_);
    going_ = true;
  }
  CancelAll();
  {
    MutexLock lock(mutex_);
    while (!operations_.empty()) all_over_.Wait(mutex_);
  }
  queue_.Shutdown();
  threads_.clear();
}

size_t AsyncClient::outstanding() const {
  MutexLock lock(mutex_);
  return operations_.size();
}

bool AsyncClient::Register(const std::shared_ptr<Operation>& operation) {
  MutexLock lock(mutex_);
  operations_.emplace(operation.get(), operation);
  return !going_;
}

std::shared_ptr<AsyncClient::Operation> AsyncClient::StartInfer(const EncodedRequest& request, absl::Duration deadline,
                                                                std::optional<RequestClass> request_class,
                                                                OnAnswer on_answer) {
  auto call = std::make_shared<Call>(std::move(on_answer));
  PrepareContext(call->context(), deadline, request_class);
  const bool stays = Register(call);  // before it starts: its answer may come before the next line here
  call->Start(*stubs_[next_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()], request, queue_);
  if (!stays) call->Cancel();
  return call;
}

std::shared_ptr<AsyncClient::Operation> AsyncClient::StartTimer(Time time, OnTime on_time) {
  auto timer = std::make_shared<Timer>(std::move(on_time));
  const bool stays = Register(timer);
  timer->Start(time - clock_.Now(), queue_);
  if (!stays) timer->Cancel();
  return timer;
}

void AsyncClient::CancelAll() {
  std::vector<std::shared_ptr<Operation>> operations;
  {
    MutexLock lock(mutex_);
    operations.reserve(operations_.size());
    for (const auto& [key, operation] : operations_) operations.push_back(operation);
  }
  for (const auto& operation : operations) operation->Cancel();
}

void AsyncClient::Poll() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const Time now = clock_.Now();
    std::shared_ptr<Operation> operation;
    {
      MutexLock lock(mutex_);
      operation = operations_.find(static_cast<Operation*>(tag))->second;
    }
    operation->Complete(ok, now);
    // Forgotten after its callback, so that a call started there keeps the client from looking idle.
    MutexLock lock(mutex_);
    operations_.erase(operation.get());
    if (operations_.empty()) all_over_.NotifyAll();
  }
}

}  // namespace sluice::client
