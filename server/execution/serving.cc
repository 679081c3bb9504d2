// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/serving.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "server/execution/statistics.h"

namespace sluice::server {
namespace {

int HostThreads(const ServerConfig& config) {
  // One CPU is left to the I/O threads: compute threads that take all of them put every reply into a queue.
  return config.host_threads > 0 ? config.host_threads : std::max(1, UsableCpuCount() - 1);
}

absl::StatusOr<std::unique_ptr<gpu::Device>> MakeHostDevice(const ServerConfig& config, const Clock& clock, int index) {
  const int threads = HostThreads(config);
  return gpu::CreateHostDevice({.index = index, .threads = threads}, clock,
                               gpu::MakeHostKernelLibrary(clock, {.threads = threads}));
}

}  // namespace

std::vector<std::string> DeviceNames(int host_device_count) {
  std::vector<std::string> names;
  for (int i = 0; i < host_device_count; ++i) names.push_back(absl::StrCat("host:", i));
  return names;
}

Serving::Serving(const ServerConfig& config, const Clock& clock, metrics::Metrics& metrics)
    : config_(config), clock_(clock), metrics_(metrics), expiry_(std::make_unique<scheduler::ExpiryThread>(clock)) {}

absl::StatusOr<std::unique_ptr<Serving>> Serving::Create(const ServerConfig& config, const Clock& clock,
                                                         metrics::Metrics& metrics) {
  SLUICE_ASSIGN_OR_RETURN(const int device_count, ParseDevices(config.devices));
  std::unique_ptr<Serving> serving(new Serving(config, clock, metrics));
  for (int i = 0; i < device_count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto device, MakeHostDevice(config, clock, i));
    Log(Severity::kInfo, "device",
        {{"name", device->info().name},
         {"description", device->info().description},
         {"threads", HostThreads(config)},
         {"cpus", UsableCpuCount()}});
    SLUICE_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(std::move(device), static_cast<size_t>(i), config, clock,
                                                            metrics, *serving->expiry_));
    serving->devices_.push_back(std::move(lanes));
  }
  serving->readings_ = metrics.AddSource([raw = serving.get()] { return raw->Read(); });
  return serving;
}

Serving::~Serving() {
  Stop();
  readings_ = metrics::SourceRegistration();
}

absl::Status Serving::LoadRepository(absl::AnyInvocable<void()> on_change) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<RepositoryModel> found, ScanRepository(config_.model_repository));
  for (const RepositoryModel& model : found) {
    if (!model.status.ok()) table_.SetFailed(model.name, 0, model.status);
    for (const RepositoryVersion& version : model.versions) table_.SetLoading(model.name, version.version);
  }
  size_t failed = 0;
  for (const RepositoryModel& model : found) {
    if (!model.status.ok()) {
      Log(Severity::kError, "model cannot be loaded", {{"model", model.name}, {"error", model.status.ToString()}});
      ++failed;
      continue;
    }
    for (const RepositoryVersion& version : model.versions) {
      const absl::Status status = version.status.ok() ? LoadVersion(model, version) : version.status;
      if (!status.ok()) {
        table_.SetFailed(model.name, version.version, status);
        Log(Severity::kError, "model cannot be loaded",
            {{"model", model.name}, {"version", version.version}, {"error", status.ToString()}});
        ++failed;
      }
      on_change();
    }
  }
  loaded_.store(true, std::memory_order_release);
  on_change();
  Log(failed == 0 ? Severity::kInfo : Severity::kWarning, "repository loaded",
      {{"path", config_.model_repository}, {"ready", table_.ReadyModels().size()}, {"failed", failed}});
  return absl::OkStatus();
}

absl::Status Serving::LoadVersion(const RepositoryModel& found, const RepositoryVersion& version) {
  const Time start = clock_.Now();
  SLUICE_ASSIGN_OR_RETURN(auto model, model::LoadOnnxModel(version.path));
  SLUICE_ASSIGN_OR_RETURN(const ModelSettings settings,
                          MakeModelSettings(found.name, found.config.has_value() ? &*found.config : nullptr,
                                            model->signature(), SettingsOptions{}));
  for (const std::string& warning : settings.warnings) {
    Log(Severity::kWarning, "setting without effect", {{"model", found.name}, {"setting", warning}});
  }
  auto served = std::make_shared<ServedModel>(*settings.MakeServedModel(ModelId(++last_model_id_), version.version));
  served->metrics = metrics_.AddModel(served->name, served->version, served->max_batch_size);
  InstanceOptions options;
  options.batch_buckets = settings.batch_buckets.empty() ? std::vector<int64_t>{1} : settings.batch_buckets;
  options.slot_counts = settings.slots;

  // Prepared on every device before any of them shows it, so that a failure leaves nothing behind.
  std::vector<std::unique_ptr<ModelInstance>> instances;
  for (const auto& lanes : devices_) {
    SLUICE_ASSIGN_OR_RETURN(auto instance,
                            ModelInstance::Create(*model, lanes->device(), lanes->device(), served, options));
    instances.push_back(std::move(instance));
  }
  const size_t weight_bytes = instances.front()->weight_bytes();
  const size_t slot_bytes = instances.front()->slot_bytes();
  for (size_t i = 0; i < devices_.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(devices_[i]->AddModel(std::move(instances[i]), served->metrics, settings.slots));
  }
  models_.push_back(std::move(model));
  const absl::Duration took = clock_.Now() - start;
  served->metrics->SetLoadDuration(took);
  served->metrics->SetReady(true);
  table_.SetReady(served);
  Log(Severity::kInfo, "model ready",
      {{"model", served->name},
       {"version", served->version},
       {"opset", models_.back()->opset()},
       {"default_class", RequestClassName(served->class_rules.default_class)},
       {"max_batch_size", served->max_batch_size},
       {"weight_bytes", weight_bytes},
       {"slot_bytes", slot_bytes},
       {"seconds", absl::ToDoubleSeconds(took)}});
  return absl::OkStatus();
}

bool Serving::DeviceLost() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& lanes) { return lanes->device().lost(); });
}

bool Serving::ready() const {
  return loaded_.load(std::memory_order_acquire) && !draining_.load(std::memory_order_acquire) && !DeviceLost() &&
         table_.Settled(config_.strict_readiness);
}

absl::StatusOr<std::shared_ptr<const ServedModel>> Serving::FindModel(const std::string& name,
                                                                      const std::string& version) const {
  if (draining_.load(std::memory_order_acquire)) return absl::UnavailableError("the server is shutting down");
  return table_.Find(name, version);
}

void Serving::Submit(std::shared_ptr<InferRequest> request) {
  request->id = RequestId(last_request_id_.fetch_add(1, std::memory_order_relaxed) + 1);
  DeviceLanes* best = nullptr;
  absl::Duration best_delay = absl::InfiniteDuration();
  for (const auto& lanes : devices_) {
    if (lanes->device().lost()) continue;
    const absl::Duration delay =
        devices_.size() == 1 ? absl::ZeroDuration() : lanes->PredictedDelay(request->request_class);
    if (best == nullptr || delay < best_delay) {
      best = lanes.get();
      best_delay = delay;
    }
  }
  if (best == nullptr) {
    metrics_.OnRejected(request->request_class, metrics::RejectReason::kDeviceLost);
    request->Finish(absl::UnavailableError("every device of this server is lost"));
    return;
  }
  best->Submit(std::move(request));
}

void Serving::Cancel(const std::shared_ptr<InferRequest>& request) { devices_[request->device_index]->Cancel(request); }

absl::Status Serving::FillStatistics(const std::string& name, const std::string& version,
                                     inference::ModelStatisticsResponse& response) const {
  int64_t wanted_version = 0;
  if (!name.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto found, table_.Find(name, version));
    if (!version.empty()) wanted_version = found->version;
  }
  const Time now = clock_.Now();
  for (const metrics::ModelStatistics& statistics : metrics_.Statistics(now, WallNow())) {
    if (!name.empty() && statistics.name != name) continue;
    if (wanted_version != 0 && statistics.version != absl::StrCat(wanted_version)) continue;
    AppendStatistics(statistics, response);
  }
  return absl::OkStatus();
}

std::vector<metrics::ReadingSample> Serving::Read() {
  std::vector<metrics::ReadingSample> samples;
  for (const auto& lanes : devices_) lanes->Read(samples);
  return samples;
}

void Serving::Drain() {
  draining_.store(true, std::memory_order_release);
  for (const auto& lanes : devices_) lanes->Drain();
}

bool Serving::Idle() const {
  return std::all_of(devices_.begin(), devices_.end(), [](const auto& lanes) { return lanes->Idle(); });
}

void Serving::Stop() {
  draining_.store(true, std::memory_order_release);
  for (const auto& lanes : devices_) lanes->Stop();
  expiry_->Stop();
}

}  // namespace sluice::server
