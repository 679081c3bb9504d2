// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/serving.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "server/container_memory.h"
#include "server/execution/inspect.h"
#include "server/execution/statistics.h"

namespace sluice::server {
namespace {

/// Nothing for a device that has none, and without a folder.
void LogTuning(const gpu::TuningTable* tuning) {
  if (tuning == nullptr || tuning->path().empty()) return;
  const bool found = tuning->size() > 0;
  Log(found ? Severity::kInfo : Severity::kWarning, found ? "tuning" : "no tuning: kernels are tried at each load",
      {{"file", tuning->path()}, {"environment", tuning->environment()}, {"choices", tuning->size()}});
}

std::unique_ptr<SharedMemoryRegions> MakeSharedMemory(const ServerConfig& config) {
  if (!config.system_shared_memory) return nullptr;
  return std::make_unique<SharedMemoryRegions>(
      SharedMemoryLimits{.regions = static_cast<size_t>(config.max_shared_memory_regions),
                         .bytes = static_cast<uint64_t>(config.max_shared_memory_bytes),
                         .name_bytes = config.listen.limits.name_bytes});
}

}  // namespace

Serving::Serving(const ServerConfig& config, std::vector<DeviceSpec> specs, const Clock& clock,
                 metrics::Metrics& metrics)
    : config_(config),
      specs_(std::move(specs)),
      clock_(clock),
      metrics_(metrics),
      shared_memory_(MakeSharedMemory(config)),
      expiry_(std::make_unique<scheduler::ExpiryThread>(clock)),
      traces_(clock) {}

absl::StatusOr<std::unique_ptr<Serving>> Serving::Create(const ServerConfig& config, std::vector<DeviceSpec> specs,
                                                         const Clock& clock, metrics::Metrics& metrics,
                                                         DeviceMaker make) {
  std::unique_ptr<Serving> serving(new Serving(config, std::move(specs), clock, metrics));
  SLUICE_RETURN_IF_ERROR(serving->StartDevices(std::move(make)));
  serving->models_ = std::make_unique<ModelControl>(serving->config_, serving->specs_, serving->devices_,
                                                    serving->spin_, clock, metrics, serving->table_);
  serving->readings_ = metrics.AddSource([raw = serving.get()] { return raw->Read(); });
  return serving;
}

absl::Status Serving::StartDevices(DeviceMaker make) {
  const int cpus = UsableCpuCount();
  if (config_.polling) {
    spin_ = MakeSpinBudget(cpus, static_cast<int>(CudaDeviceCount()), config_.latency_threads, config_.request_threads);
  }
  Log(Severity::kInfo, "polling threads",
      {{"cpus", cpus},
       {"launchers", spin_.launchers},
       {"latency_threads", spin_.latency_threads},
       {"io_thread", spin_.io_thread},
       {"standard_threads", spin_.standard_threads}});
  if (!config_.tuning_cache.empty() && CudaDeviceCount() == 0) {
    Log(Severity::kWarning, "setting without effect",
        {{"setting", "--tuning-cache"}, {"reason", "no CUDA device is used, and only their kernels are tuned"}});
  }
  SLUICE_ASSIGN_OR_RETURN(host_memory_, MakeHostMemoryBudget(config_.pinned_memory_limit, "/",
                                                             static_cast<size_t>(config_.response_pool_bytes)));
  responses_ = ResponsePool::Create({.limit_bytes = static_cast<size_t>(config_.response_pool_bytes),
                                     .reserved_share = config_.response_reserved_share});
  std::vector<WatchedGpu> gpus;
  for (size_t i = 0; i < specs_.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto device, make(specs_[i], config_, clock_, *host_memory_));
    Log(Severity::kInfo, "device",
        {{"name", device->info().name},
         {"description", device->info().description},
         {"uuid", device->info().uuid},
         {"memory", device->memory().ToString()}});
    LogTuning(device->kernels().tuning());
    if (!device->info().uuid.empty()) gpus.push_back({.device = device->info().name, .uuid = device->info().uuid});
    SLUICE_ASSIGN_OR_RETURN(
        auto lanes, DeviceLanes::Create(std::move(device), i, config_, clock_, metrics_, *expiry_, responses_, spin_));
    traces_.AddDevice(lanes->device().info().name, lanes->timeline());
    devices_.push_back(std::move(lanes));
  }
  if (config_.gpu_metrics.enabled && !gpus.empty()) {
    gpus_ = std::make_unique<GpuMonitor>(std::move(gpus), config_.gpu_metrics, clock_);
  }
  return absl::OkStatus();
}

size_t Serving::CudaDeviceCount() const {
  return static_cast<size_t>(std::count_if(specs_.begin(), specs_.end(),
                                           [](const DeviceSpec& spec) { return spec.backend == gpu::Backend::kCuda; }));
}

Serving::~Serving() {
  Stop();
  readings_ = metrics::SourceRegistration();
  table_.Clear();  // what it has gives its memory back to the devices
}

absl::Status Serving::LoadRepository(absl::AnyInvocable<void()> on_change) {
  return models_->LoadAtStart(std::move(on_change));
}

bool Serving::DeviceLost() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& lanes) { return lanes->device().lost(); });
}

bool Serving::ready() const {
  return models_->loaded() && !draining_.load(std::memory_order_acquire) && !DeviceLost() &&
         (!config_.strict_readiness || table_.AllReady());
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
  const std::vector<size_t>& places = request->model->devices;
  for (const size_t place : places) {
    DeviceLanes& lanes = *devices_[place];
    if (lanes.device().lost()) continue;
    const absl::Duration delay =
        places.size() == 1 ? absl::ZeroDuration() : lanes.PredictedDelay(request->request_class);
    if (best == nullptr || delay < best_delay) {
      best = &lanes;
      best_delay = delay;
    }
  }
  if (best == nullptr) {
    metrics_.OnRejected(request->request_class, metrics::RejectReason::kDeviceLost);
    request->Finish(absl::UnavailableError("every device that runs this model is lost"));
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

absl::StatusOr<std::string> Serving::RecordTrace(absl::Duration duration) {
  return traces_.Record(duration, [this] {
    TraceRecorder::ModelNames names;
    for (const auto& model : table_.ReadyModels()) names[model->id.value()] = model->name;
    return names;
  });
}

absl::StatusOr<std::string> Serving::Inspect(const std::string& name, const std::string& version) const {
  SLUICE_ASSIGN_OR_RETURN(const auto served, table_.Find(name, version));
  std::vector<std::shared_ptr<const ExecutableModel>> models;  // They keep the instances.
  std::vector<InspectedInstance> instances;
  for (const size_t place : served->devices) {
    models.push_back(devices_[place]->FindModel(served->id));
    if (models.back() == nullptr) return absl::InternalError(absl::StrCat("model '", name, "' is ready on no device"));
    instances.push_back({devices_[place]->device().info().name, models.back()->instance.get()});
  }
  return InspectModel(instances);
}

std::vector<metrics::ReadingSample> Serving::Read() {
  std::vector<metrics::ReadingSample> samples;
  for (const auto& lanes : devices_) lanes->Read(samples);
  if (gpus_ != nullptr) gpus_->Read(samples);
  const gpu::MemoryUse pinned = host_memory_->use();
  for (const gpu::MemoryKind kind : gpu::kMemoryKinds) {
    samples.push_back({metrics::Reading::kPinnedMemoryBytes,
                       {std::string(gpu::MemoryKindName(kind))},
                       static_cast<double>(pinned.counted_bytes[static_cast<size_t>(kind)])});
  }
  samples.push_back({metrics::Reading::kPinnedMemoryLimitBytes, {}, static_cast<double>(host_memory_->limit_bytes())});
  for (const RequestClass request_class : kRequestClasses) {
    const ResponsePoolUse use = responses_->use(request_class);
    const auto add = [&](metrics::Reading reading, double value) {
      samples.push_back({reading, {std::string(RequestClassName(request_class))}, value});
    };
    add(metrics::Reading::kResponsePoolBytes, static_cast<double>(use.used_bytes));
    add(metrics::Reading::kResponsePoolLimitBytes, static_cast<double>(use.limit_bytes));
    add(metrics::Reading::kResponsePoolWaits, static_cast<double>(use.waits));
    add(metrics::Reading::kResponsePoolTimeouts, static_cast<double>(use.timeouts));
  }
  samples.push_back({metrics::Reading::kResponsePoolKeptBytes, {}, static_cast<double>(responses_->kept_bytes())});
  if (shared_memory_ != nullptr) ReadSharedMemory(samples);
  const auto spinning = [&](const char* role, size_t count) {
    samples.push_back({metrics::Reading::kPollingThreads, {role}, static_cast<double>(count)});
  };
  spinning("launcher", spin_.launchers ? CudaDeviceCount() : 0);
  spinning("latency", static_cast<size_t>(spin_.latency_threads) * CudaDeviceCount());
  spinning("io", spin_.io_thread ? 1 : 0);
  spinning("standard", spin_.standard_threads ? static_cast<size_t>(config_.request_threads) * CudaDeviceCount() : 0);
  return samples;
}

void Serving::ReadSharedMemory(std::vector<metrics::ReadingSample>& samples) const {
  const SharedMemoryUse use = shared_memory_->use();
  const SharedMemoryLimits& limits = shared_memory_->limits();
  const auto add = [&](metrics::Reading reading, std::vector<std::string> labels, double value) {
    samples.push_back({reading, std::move(labels), value});
  };
  add(metrics::Reading::kSharedMemoryRegions, {"registered"}, static_cast<double>(use.registered_regions));
  add(metrics::Reading::kSharedMemoryRegions, {"leaving"}, static_cast<double>(use.leaving_regions));
  add(metrics::Reading::kSharedMemoryBytes, {"registered"}, static_cast<double>(use.registered_bytes));
  add(metrics::Reading::kSharedMemoryBytes, {"leaving"}, static_cast<double>(use.leaving_bytes));
  add(metrics::Reading::kSharedMemoryRegionLimit, {}, static_cast<double>(limits.regions));
  add(metrics::Reading::kSharedMemoryByteLimit, {}, static_cast<double>(limits.bytes));
}

void Serving::Drain() {
  draining_.store(true, std::memory_order_release);
  models_->Drain();
  for (const auto& lanes : devices_) lanes->Drain();
}

bool Serving::Idle() const {
  return std::all_of(devices_.begin(), devices_.end(), [](const auto& lanes) { return lanes->Idle(); });
}

void Serving::Stop() {
  draining_.store(true, std::memory_order_release);
  traces_.Stop();
  if (models_ != nullptr) models_->Stop();
  for (const auto& lanes : devices_) lanes->Stop();
  expiry_->Stop();
  if (gpus_ != nullptr) gpus_->Stop();  // last: NVML may hang, and everything else is over by then
}

}  // namespace sluice::server
