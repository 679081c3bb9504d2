// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "rpc_fixture.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::rpc {

void RecordingObserver::OnReceived() {
  MutexLock lock(mutex_);
  ++received_;
  changed_.NotifyAll();
}

void RecordingObserver::OnAccepted(const server::InferRequest& /*request*/) {
  MutexLock lock(mutex_);
  ++accepted_;
}

void RecordingObserver::OnAnswered(const AnsweredCall& call) {
  MutexLock lock(mutex_);
  answered_.push_back(call);
  changed_.NotifyAll();
}

void RecordingObserver::OnWritten(RequestClass /*request_class*/, absl::Duration /*duration*/, bool /*written*/) {
  MutexLock lock(mutex_);
  ++written_;
}

std::vector<AnsweredCall> RecordingObserver::AwaitAnswered(size_t count) {
  MutexLock lock(mutex_);
  while (answered_.size() < count) changed_.Wait(mutex_);
  return answered_;
}

void RecordingObserver::AwaitReceived(int count) {
  MutexLock lock(mutex_);
  while (received_ < count) changed_.Wait(mutex_);
}

int RecordingObserver::received() {
  MutexLock lock(mutex_);
  return received_;
}

int RecordingObserver::accepted() {
  MutexLock lock(mutex_);
  return accepted_;
}

int RecordingObserver::written() {
  MutexLock lock(mutex_);
  return written_;
}

void RpcTest::SetUp() { backend_.AddModel(MakeEchoModel()); }

void RpcTest::TearDown() {
  if (server_ != nullptr) server_->Stop();
}

void RpcTest::StartServer(RpcOptions options) {
  options.address = "127.0.0.1";
  options.port = 0;
  auto started = RpcServer::Start(options, backend_, observer_, clock_);
  ASSERT_TRUE(started.ok()) << started.status();
  server_ = *std::move(started);
  ASSERT_GT(server_->port(), 0);
}

std::shared_ptr<grpc::Channel> RpcTest::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::unique_ptr<inference::GRPCInferenceService::Stub> RpcTest::NewStub() const {
  return inference::GRPCInferenceService::NewStub(NewChannel());
}

inference::ModelInferRequest RpcTest::EchoRequest(int rows) {
  inference::ModelInferRequest request;
  request.set_model_name("echo");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(rows);
  input.add_shape(4);
  std::string raw;
  for (int i = 0; i < rows * 4; ++i) {
    const auto value = static_cast<float>(i);
    raw.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  request.add_raw_input_contents(raw);
  return request;
}

grpc::Status RpcTest::CallRaw(const std::string& method, const std::string& message) const {
  grpc::GenericStub stub(NewChannel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(message);
  const auto reader = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  reader->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  reader->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

AsyncCall::AsyncCall(inference::GRPCInferenceService::Stub& stub, const inference::ModelInferRequest& request,
                     absl::Duration deadline, const std::string& timeout_header) {
  if (!timeout_header.empty()) context_.AddMetadata("grpc-timeout", timeout_header);
  if (deadline != absl::InfiniteDuration()) {
    const gpr_timespec span = gpr_time_from_millis(absl::ToInt64Milliseconds(deadline), GPR_TIMESPAN);
    context_.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span));
  }
  reader_ = stub.AsyncModelInfer(&context_, request, &queue_);
  reader_->Finish(&response_, &status_, this);
}

AsyncCall::~AsyncCall() {
  if (!ended_) {
    Cancel();
    Await();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

const grpc::Status& AsyncCall::Await() {
  void* tag = nullptr;
  bool ok = false;
  if (!ended_) queue_.Next(&tag, &ok);
  ended_ = true;
  return status_;
}

}  // namespace sluice::rpc
