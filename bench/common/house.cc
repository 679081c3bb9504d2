// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/house.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "server/container_memory.h"
#include "server/repository/model_settings.h"
#include "server/repository/repository.h"
#include "server/response_pool.h"

namespace sluice::bench {
absl::StatusOr<std::unique_ptr<House>> House::Create(const server::ServerConfig& config) {
  std::unique_ptr<House> house(new House(config));
  SLUICE_RETURN_IF_ERROR(house->Start());
  return house;
}

absl::Status House::Start() {
  const bool copiers = config_.devices == kHostWithCopiers;
  server::ServerConfig config = config_;
  if (copiers) config.devices = "host";
  SLUICE_RETURN_IF_ERROR(server::ValidateConfig(config));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<server::DeviceSpec> specs, server::ResolveDevices(config));
  const bool cuda = specs.front().backend == gpu::Backend::kCuda;
  spin_ =
      server::MakeSpinBudget(server::UsableCpuCount(), cuda ? 1 : 0, config_.latency_threads, config_.request_threads);
  metrics_ = std::make_unique<metrics::Metrics>(metrics::MetricsOptions{.devices = {specs.front().Name()}});
  SLUICE_ASSIGN_OR_RETURN(host_memory_, server::MakeHostMemoryBudget(config_.pinned_memory_limit));
  SLUICE_ASSIGN_OR_RETURN(
      auto device, copiers ? MakeHostWithCopiers() : server::MakeDevice(specs.front(), config, clock_, *host_memory_));
  if (cuda) {
    SLUICE_ASSIGN_OR_RETURN(folding_device_, server::MakeDevice(specs.back(), config, clock_, *host_memory_));
  }
  auto responses = server::ResponsePool::Create({.limit_bytes = static_cast<size_t>(config_.response_pool_bytes),
                                                 .reserved_share = config_.response_reserved_share});
  SLUICE_ASSIGN_OR_RETURN(lanes_, server::DeviceLanes::Create(std::move(device), 0, config, clock_, *metrics_, expiry_,
                                                              std::move(responses), spin_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<gpu::Device>> House::MakeHostWithCopiers() {
  const int threads = std::max(config_.host_threads, 1);
  return gpu::CreateHostDevice({.threads = threads, .copiers = true, .memory = host_memory_.get()}, clock_,
                               gpu::MakeHostKernelLibrary(clock_, {.threads = threads}));
}

House::~House() {
  if (lanes_ != nullptr) lanes_->Stop();
  executables_.clear();  // while their device, which the lanes own, is there
  expiry_.Stop();
}

absl::StatusOr<HouseModel> House::Load(const std::string& name, const Variant& variant) {
  SLUICE_ASSIGN_OR_RETURN(const auto repository, server::ScanRepository(config_.model_repository));
  const auto found = std::find_if(repository.begin(), repository.end(),
                                  [&](const server::RepositoryModel& model) { return model.name == name; });
  if (found == repository.end()) {
    return absl::NotFoundError(absl::StrCat("model '", name, "' is not in '", config_.model_repository, "'"));
  }
  SLUICE_RETURN_IF_ERROR(found->status);
  if (found->versions.empty()) return absl::NotFoundError(absl::StrCat("model '", name, "' has no version"));
  const server::RepositoryVersion& version = found->versions.back();
  SLUICE_RETURN_IF_ERROR(version.status);
  SLUICE_ASSIGN_OR_RETURN(auto model, model::LoadOnnxModel(version.path));
  SLUICE_ASSIGN_OR_RETURN(
      server::ModelSettings settings,
      server::MakeModelSettings(
          name, found->config.has_value() ? &*found->config : nullptr, model->signature(),
          server::SettingsOptions{.has_gpu = cuda(),
                                  .latency_slots = server::LatencyThreads(spin_, config_.request_threads)}));
  if (variant.uncut) settings.slots = {0, 0, settings.slots[static_cast<size_t>(RequestClass::kBatch)]};
  if (variant.latency_only) settings.slots = {1, 0, 0};
  if (variant.batch_slots > 0) settings.slots[static_cast<size_t>(RequestClass::kBatch)] = variant.batch_slots;
  // A version each: the same model loaded again has counters of its own.
  ++last_model_id_;
  auto served = std::make_shared<server::ServedModel>(
      *settings.MakeServedModel(ModelId(last_model_id_), static_cast<int64_t>(last_model_id_)));
  served->metrics = metrics_->AddModel(served->name, served->version);
  server::InstanceOptions options = server::MakeInstanceOptions(settings, config_);
  const bool has_batches = !settings.batch_buckets.empty();
  if (has_batches && !variant.buckets.empty()) options.batch_buckets = variant.buckets;
  if (variant.uncut) {  // The very rows that are asked for, however long they take.
    options.batch_rows = options.batch_buckets.back();
    options.plan.unit_target = absl::Hours(1);
  }
  lanes_->CompletePlanOptions(options.plan);
  gpu::Device& host = folding_device_ != nullptr ? *folding_device_ : device();
  SLUICE_ASSIGN_OR_RETURN(auto instance, server::ModelInstance::Create(*model, device(), host, served, options));
  HouseModel loaded{served, instance.get()};
  models_.push_back(std::move(model));
  executables_.push_back(std::make_shared<server::ExecutableModel>(
      server::ExecutableModel{.instance = std::move(instance), .metrics = served->metrics}));
  SLUICE_RETURN_IF_ERROR(lanes_->AddModel(executables_.back(), settings.slots));
  return loaded;
}

void House::Submit(std::shared_ptr<server::InferRequest> request) {
  request->id = RequestId(last_request_id_.fetch_add(1, std::memory_order_relaxed) + 1);
  lanes_->Submit(std::move(request));
}

}  // namespace sluice::bench
