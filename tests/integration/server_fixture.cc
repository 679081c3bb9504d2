// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/server_fixture.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/tiny_models.h"
#include "tests/support/http_get.h"

namespace sluice::testing {
namespace {

constexpr char kDoubleConfig[] = "max_batch_size: 8\n";
constexpr char kChainConfig[] =
    "max_batch_size: 4096\n"
    "parameters { key: \"sluice.buckets\" value { string_value: \"8\" } }\n";

}  // namespace

PendingCall::PendingCall(inference::GRPCInferenceService::Stub& stub, const inference::ModelInferRequest& request,
                         std::optional<RequestClass> request_class, absl::Duration deadline) {
  if (request_class) context_.AddMetadata("sluice-class", std::string(RequestClassName(*request_class)));
  if (deadline != absl::InfiniteDuration()) {
    context_.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                       gpr_time_from_micros(absl::ToInt64Microseconds(deadline), GPR_TIMESPAN)));
  }
  reader_ = stub.AsyncModelInfer(&context_, request, &queue_);
  reader_->Finish(&response_, &status_, this);
}

PendingCall::~PendingCall() {
  if (!done_) {
    Cancel();
    Wait();
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

grpc::Status PendingCall::Wait() {
  void* tag;
  bool ok;
  if (!done_ && queue_.Next(&tag, &ok)) done_ = true;
  return status_;
}

bool PendingCall::Done() {
  void* tag;
  bool ok;
  if (!done_ && queue_.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC)) == grpc::CompletionQueue::GOT_EVENT) {
    done_ = true;
  }
  return done_;
}

ServerTest::ServerTest() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice_test_XXXXXX").string();
  repository_ = mkdtemp(pattern.data());
  AddToRepository(repository_, "double", DoublingModel(4), kDoubleConfig);
  AddToRepository(repository_, "chain", ChainModel(kChainWidth, 12), kChainConfig);
}

ServerTest::~ServerTest() {
  client_.reset();
  stub_.reset();
  channel_.reset();
  server_.reset();
  std::filesystem::remove_all(repository_);
}

server::ServerConfig ServerTest::SmallConfig() {
  server::ServerConfig config;
  config.host_threads = 1;
  return config;
}

void ServerTest::Start(server::ServerConfig config) {
  config.model_repository = repository_;
  config.address = "127.0.0.1";
  config.grpc_port = 0;
  config.metrics_port = 0;
  auto server = server::Server::Start(config, clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const absl::Status loaded = server_->LoadModels();
  ASSERT_TRUE(loaded.ok()) << loaded;
  const std::string address = absl::StrCat("127.0.0.1:", server_->grpc_port());
  client::ClientOptions options;
  options.address = address;
  auto client = client::Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
  channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  stub_ = inference::GRPCInferenceService::NewStub(channel_);
}

inference::ModelInferRequest ServerTest::Request(const std::string& model, int64_t rows) const {
  const int64_t columns = model == "chain" ? kChainWidth : 4;
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_id("request 1");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(rows);
  input.add_shape(columns);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
  request.add_raw_input_contents(values.data(), values.size() * sizeof(float));
  return request;
}

grpc::Status ServerTest::Infer(const inference::ModelInferRequest& request, inference::ModelInferResponse* response,
                               const std::string& class_word) {
  grpc::ClientContext context;
  if (!class_word.empty()) context.AddMetadata("sluice-class", class_word);
  inference::ModelInferResponse ignored;
  return stub_->ModelInfer(&context, request, response != nullptr ? response : &ignored);
}

std::unique_ptr<PendingCall> ServerTest::Begin(int64_t chain_rows, std::optional<RequestClass> request_class,
                                               absl::Duration deadline) {
  return std::make_unique<PendingCall>(*stub_, Request("chain", chain_rows), request_class, deadline);
}

void ServerTest::AwaitExecuting(int count) {
  Await("fewer execute", [&] { return Metric("sluice_executing", {"device=\"host:0\""}) >= count; });
}

void ServerTest::Await(const char* what, const std::function<bool()>& condition) {
  const Time end = clock_.Now() + absl::Seconds(100);
  while (!condition()) {
    ASSERT_LT(clock_.Now(), end) << what;
    std::this_thread::yield();
  }
}

double ServerTest::Metric(const std::string& family, const std::vector<std::string>& label_fragments) {
  double sum = 0;
  const std::string text = HttpGet(server_->metrics_port(), "/metrics");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, family)) continue;
    const char next = line.size() > family.size() ? line[family.size()] : '\0';
    if (next != '{' && next != ' ') continue;
    bool matches = true;
    for (const std::string& fragment : label_fragments) matches = matches && absl::StrContains(line, fragment);
    double value = 0;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
    if (matches && absl::SimpleAtod(absl::StripTrailingAsciiWhitespace(parts.back()), &value)) sum += value;
  }
  return sum;
}

}  // namespace sluice::testing
