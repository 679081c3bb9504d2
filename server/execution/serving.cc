// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/serving.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "server/container_memory.h"
#include "server/execution/inspect.h"
#include "server/execution/statistics.h"

namespace sluice::server {
namespace {

/// `instance` is the model on its first device.
void LogReady(const ServedModel& served, const ModelInstance& instance, int64_t opset, absl::Duration took) {
  const RowChoice& choice = instance.row_choice(0);
  const PreparedPlan& micro_batch = instance.micro_batch(0);
  Log(choice.uncuttable ? Severity::kWarning : Severity::kInfo, "model ready",
      {{"model", served.name},
       {"version", served.version},
       {"opset", opset},
       {"precision", NameOf(instance.precision())},
       {"default_class", RequestClassName(served.class_rules.default_class)},
       {"max_batch_size", served.max_batch_size},
       {"weight_bytes", instance.weight_bytes()},
       {"slot_bytes", instance.slot_bytes()},
       {"batch_rows", micro_batch.rows},
       {"rule", RowRuleName(choice.rule)},
       {"units", micro_batch.plan->unit_count()},
       {"longest_unit_us", absl::ToDoubleMicroseconds(micro_batch.plan->longest_unit())},
       {"longest_unit_kernel", micro_batch.plan->longest_unit_kernel()},
       {"plan_us", absl::ToDoubleMicroseconds(micro_batch.plan->profile())},
       {"cost_of_cut", choice.cost},
       {"uncuttable", choice.uncuttable},
       {"seconds", absl::ToDoubleSeconds(took)}});
}

/// Nothing for a device that has none, and without a folder.
void LogTuning(const gpu::TuningTable* tuning) {
  if (tuning == nullptr || tuning->path().empty()) return;
  const bool found = tuning->size() > 0;
  Log(found ? Severity::kInfo : Severity::kWarning, found ? "tuning" : "no tuning: kernels are tried at each load",
      {{"file", tuning->path()}, {"environment", tuning->environment()}, {"choices", tuning->size()}});
}

}  // namespace

Serving::Serving(const ServerConfig& config, std::vector<DeviceSpec> specs, const Clock& clock,
                 metrics::Metrics& metrics)
    : config_(config),
      specs_(std::move(specs)),
      clock_(clock),
      metrics_(metrics),
      expiry_(std::make_unique<scheduler::ExpiryThread>(clock)),
      traces_(clock) {}

absl::StatusOr<std::unique_ptr<Serving>> Serving::Create(const ServerConfig& config, std::vector<DeviceSpec> specs,
                                                         const Clock& clock, metrics::Metrics& metrics,
                                                         DeviceMaker make) {
  std::unique_ptr<Serving> serving(new Serving(config, std::move(specs), clock, metrics));
  SLUICE_RETURN_IF_ERROR(serving->StartDevices(std::move(make)));
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
  for (size_t i = 0; i < specs_.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto device, make(specs_[i], config_, clock_, *host_memory_));
    Log(Severity::kInfo, "device",
        {{"name", device->info().name},
         {"description", device->info().description},
         {"memory", device->memory().ToString()}});
    LogTuning(device->kernels().tuning());
    SLUICE_ASSIGN_OR_RETURN(
        auto lanes, DeviceLanes::Create(std::move(device), i, config_, clock_, metrics_, *expiry_, responses_, spin_));
    traces_.AddDevice(lanes->device().info().name, lanes->timeline());
    devices_.push_back(std::move(lanes));
  }
  return absl::OkStatus();
}

size_t Serving::CudaDeviceCount() const {
  return static_cast<size_t>(std::count_if(specs_.begin(), specs_.end(),
                                           [](const DeviceSpec& spec) { return spec.backend == gpu::Backend::kCuda; }));
}

gpu::Device& Serving::HostDevice() {
  const auto host = std::find_if(specs_.begin(), specs_.end(),
                                 [](const DeviceSpec& spec) { return spec.backend == gpu::Backend::kHost; });
  return devices_[static_cast<size_t>(host - specs_.begin())]->device();  // There always is one: ResolveDevices.
}

absl::StatusOr<std::vector<size_t>> Serving::PlaceModel(const ModelSettings& settings) const {
  const bool on_gpu = CudaDeviceCount() > 0 && settings.placement != Placement::kHost;
  std::vector<size_t> places;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if ((specs_[i].backend == gpu::Backend::kCuda) != on_gpu) continue;
    const bool wanted =
        settings.gpus.empty() || std::count(settings.gpus.begin(), settings.gpus.end(), specs_[i].index) > 0;
    if (!on_gpu || wanted) places.push_back(i);
  }
  if (on_gpu && !settings.gpus.empty() && places.size() < settings.gpus.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("config.pbtxt: instance_group.gpus: expected devices that this server uses (",
                     absl::StrJoin(DeviceNames(specs_), ", "), "), got ", absl::StrJoin(settings.gpus, ", ")));
  }
  return places;
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
  SLUICE_ASSIGN_OR_RETURN(
      const ModelSettings settings,
      MakeModelSettings(found.name, found.config.has_value() ? &*found.config : nullptr, model->signature(),
                        SettingsOptions{.has_gpu = CudaDeviceCount() > 0,
                                        .latency_slots = LatencyThreads(spin_, config_.request_threads)}));
  for (const std::string& warning : settings.warnings) {
    Log(Severity::kWarning, "setting without effect", {{"model", found.name}, {"setting", warning}});
  }
  auto served = std::make_shared<ServedModel>(*settings.MakeServedModel(ModelId(++last_model_id_), version.version));
  served->metrics = metrics_.AddModel(served->name, served->version, served->max_batch_size);
  InstanceOptions options = MakeInstanceOptions(settings, config_);

  // Prepared on every device before any of them shows it, so that a failure leaves nothing behind.
  SLUICE_ASSIGN_OR_RETURN(served->devices, PlaceModel(settings));
  std::vector<std::unique_ptr<ModelInstance>> instances;
  for (const size_t place : served->devices) {
    devices_[place]->CompletePlanOptions(options.plan);
    SLUICE_ASSIGN_OR_RETURN(auto instance,
                            ModelInstance::Create(*model, devices_[place]->device(), HostDevice(), served, options));
    instances.push_back(std::move(instance));
  }
  // Of the first device, for the log: instances stay where they are.
  const ModelInstance& first = *instances.front();
  for (size_t i = 0; i < instances.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        devices_[served->devices[i]]->AddModel(std::move(instances[i]), served->metrics, settings.slots));
  }
  models_.push_back(std::move(model));
  const absl::Duration took = clock_.Now() - start;
  served->metrics->SetLoadDuration(took);
  served->metrics->SetReady(true);
  table_.SetReady(served);
  LogReady(*served, first, models_.back()->opset(), took);
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
  const auto spinning = [&](const char* role, size_t count) {
    samples.push_back({metrics::Reading::kPollingThreads, {role}, static_cast<double>(count)});
  };
  spinning("launcher", spin_.launchers ? CudaDeviceCount() : 0);
  spinning("latency", static_cast<size_t>(spin_.latency_threads) * CudaDeviceCount());
  spinning("io", spin_.io_thread ? 1 : 0);
  spinning("standard", spin_.standard_threads ? static_cast<size_t>(config_.request_threads) * CudaDeviceCount() : 0);
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
  traces_.Stop();
  for (const auto& lanes : devices_) lanes->Stop();
  expiry_->Stop();
}

}  // namespace sluice::server
