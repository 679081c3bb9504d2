// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "puppet_backend.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "inference.pb.h"

namespace sluice::rpc {

using server::InferRequest;
using server::ServedModel;

std::shared_ptr<ServedModel> MakeModel(const std::string& name, std::vector<server::ServedTensor> inputs,
                                       std::vector<server::ServedTensor> outputs, int64_t max_batch_size,
                                       std::vector<std::vector<std::vector<int64_t>>> buckets) {
  auto model = std::make_shared<ServedModel>();
  model->name = name;
  model->version = 3;
  model->inputs = std::move(inputs);
  model->outputs = std::move(outputs);
  model->max_batch_size = max_batch_size;
  model->shape_buckets = std::move(buckets);
  model->config.set_name(name);
  model->config.set_platform("onnxruntime_onnx");
  model->config.set_max_batch_size(static_cast<int32_t>(max_batch_size));
  return model;
}

std::shared_ptr<ServedModel> MakeEchoModel() {
  return MakeModel("echo", {{"x", DataType::kFp32, {-1, -1}}}, {{"y", DataType::kFp32, {-1, -1}}}, 8,
                   {{{4}}, {{1 << 20}}});
}

server::InferResult EchoResult(const InferRequest& request) {
  server::InferResult result;
  server::ResponseOutput output;
  output.output_index = request.requested_outputs.at(0);
  output.shape = request.inputs.at(0).shape;
  for (const server::Bytes& piece : request.inputs[0].pieces) {
    output.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  result.outputs.push_back(std::move(output));
  result.timings.queue = absl::Microseconds(7);
  result.timings.compute = absl::Microseconds(11);
  return result;
}

void PuppetBackend::AddModel(std::shared_ptr<const ServedModel> model) {
  MutexLock lock(mutex_);
  models_[model->name] = std::move(model);
}

void PuppetBackend::RemoveModel(const std::string& name) {
  MutexLock lock(mutex_);
  models_.erase(name);
}

std::shared_ptr<InferRequest> PuppetBackend::Take() {
  MutexLock lock(mutex_);
  while (kept_.empty() && !closed_) changed_.Wait(mutex_);
  if (kept_.empty()) return nullptr;
  std::shared_ptr<InferRequest> request = std::move(kept_.front());
  kept_.erase(kept_.begin());
  return request;
}

void PuppetBackend::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

void PuppetBackend::AwaitCancelled(int count) {
  MutexLock lock(mutex_);
  while (cancelled_count_ < count) changed_.Wait(mutex_);
}

int PuppetBackend::cancelled_count() {
  MutexLock lock(mutex_);
  return cancelled_count_;
}

absl::StatusOr<std::shared_ptr<const ServedModel>> PuppetBackend::FindModel(const std::string& name,
                                                                            const std::string& version) const {
  MutexLock lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return absl::NotFoundError("unknown model");
  int64_t number = 0;
  if (!version.empty() && !absl::SimpleAtoi(version, &number)) {
    return absl::InvalidArgumentError("model version is not a number");
  }
  if (!version.empty() && number != found->second->version) return absl::NotFoundError("unknown model version");
  if (name == "loading") return absl::UnavailableError("model is not ready");
  return found->second;
}

absl::StatusOr<std::vector<int64_t>> PuppetBackend::ReadyVersions(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return absl::NotFoundError("unknown model");
  return std::vector<int64_t>{1, found->second->version};
}

std::vector<std::shared_ptr<const ServedModel>> PuppetBackend::ReadyModels() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const ServedModel>> all;
  for (const auto& [name, model] : models_) all.push_back(model);
  return all;
}

void PuppetBackend::Submit(std::shared_ptr<InferRequest> request) {
  if (on_submit_ != nullptr) {
    on_submit_(std::move(request));
    return;
  }
  MutexLock lock(mutex_);
  kept_.push_back(std::move(request));
  changed_.NotifyAll();
}

void PuppetBackend::Cancel(const std::shared_ptr<InferRequest>& request) {
  if (!cancel_answer_.ok()) request->Finish(cancel_answer_);
  MutexLock lock(mutex_);
  ++cancelled_count_;
  changed_.NotifyAll();
}

ControlCall PuppetBackend::TakeControl() {
  MutexLock lock(mutex_);
  while (control_.empty()) changed_.Wait(mutex_);
  ControlCall call = std::move(control_.front());
  control_.erase(control_.begin());
  return call;
}

void PuppetBackend::SetIndex(absl::StatusOr<std::vector<server::ModelIndexEntry>> index) {
  MutexLock lock(mutex_);
  index_ = std::move(index);
}

std::string PuppetBackend::last_index_question() {
  MutexLock lock(mutex_);
  return last_index_question_;
}

void PuppetBackend::ReadIndex(const std::string& repository, bool only_ready, IndexDone done) {
  absl::StatusOr<std::vector<server::ModelIndexEntry>> index = absl::InternalError("not read");
  {
    MutexLock lock(mutex_);
    last_index_question_ = absl::StrCat(repository, only_ready ? " ready" : " all");
    index = index_;
  }
  done(std::move(index));
}

void PuppetBackend::LoadModel(std::string name, server::GivenModel given, Abandoned abandoned, Done done) {
  MutexLock lock(mutex_);
  control_.push_back({true, std::move(name), std::move(given), std::move(abandoned), std::move(done)});
  changed_.NotifyAll();
}

void PuppetBackend::UnloadModel(std::string name, Abandoned abandoned, Done done) {
  MutexLock lock(mutex_);
  control_.push_back({false, std::move(name), {}, std::move(abandoned), std::move(done)});
  changed_.NotifyAll();
}

absl::Status PuppetBackend::FillStatistics(const std::string& name, const std::string& /*version*/,
                                           inference::ModelStatisticsResponse& response) const {
  MutexLock lock(mutex_);
  if (!name.empty() && !models_.contains(name)) return absl::NotFoundError("unknown model");
  for (const auto& [model_name, model] : models_) {
    if (!name.empty() && name != model_name) continue;
    inference::ModelStatistics& statistics = *response.add_model_stats();
    statistics.set_name(model_name);
    statistics.set_inference_count(42);
  }
  return absl::OkStatus();
}

}  // namespace sluice::rpc
