// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/model_control.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

void LogReady(const LoadedVersion& loaded) {
  const ServedModel& served = *loaded.served;
  const ModelInstance& instance = *loaded.executables.front().instance;
  const RowChoice& choice = instance.row_choice(0);
  const PreparedPlan& micro_batch = instance.micro_batch(0);
  Log(choice.uncuttable ? Severity::kWarning : Severity::kInfo, "model ready",
      {{"model", served.name},
       {"version", served.version},
       {"opset", loaded.file->opset()},
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
       {"seconds", absl::ToDoubleSeconds(loaded.load_time)}});
}

void LogFailure(const std::string& model, int64_t version, const absl::Status& status) {
  Log(Severity::kError, "model cannot be loaded",
      {{"model", model}, {"version", version}, {"error", status.ToString()}});
}

bool HasCuda(const std::vector<DeviceSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [](const DeviceSpec& spec) { return spec.backend == gpu::Backend::kCuda; });
}

}  // namespace

ModelControl::ModelControl(const ServerConfig& config, const std::vector<DeviceSpec>& specs,
                           const std::vector<std::unique_ptr<DeviceLanes>>& devices, const SpinBudget& spin,
                           const Clock& clock, metrics::Metrics& metrics, ModelTable& table)
    : config_(config), specs_(specs), devices_(devices), spin_(spin), clock_(clock), metrics_(metrics), table_(table) {
  index_.Start();
}

void ModelControl::Drain() {
  stopping_.store(true, std::memory_order_release);
  control_.Drain();
  index_.Drain();
}

void ModelControl::Stop() {
  Drain();
  control_.Stop();
  index_.Stop();
}

absl::Status ModelControl::LoadAtStart(absl::AnyInvocable<void()> on_change) {
  on_change_ = std::move(on_change);
  Mutex mutex;
  CondVar changed;
  bool over = false;
  absl::Status result;
  control_.Start([&](const absl::Status& status) {
    absl::Status loaded = status;
    if (loaded.ok()) {
      const absl::StatusOr<std::vector<RepositoryModel>> found = FindAtStart();
      loaded = found.status();
      if (found.ok()) LoadFound(*found);
    }
    if (loaded.ok()) {
      loaded_.store(true, std::memory_order_release);
      Changed();
    }
    MutexLock lock(mutex);
    result = std::move(loaded);
    over = true;
    changed.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!over) changed.Wait(mutex);
  return result;
}

absl::StatusOr<std::vector<RepositoryModel>> ModelControl::FindAtStart() {
  if (!allows_model_control()) return ScanRepository(config_.model_repository);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListModels(config_.model_repository));
  table_.SetRepository(names);
  const std::vector<std::string>& wanted = config_.load_models;
  if (std::count(wanted.begin(), wanted.end(), "*") > 0) return ScanRepository(config_.model_repository);
  std::vector<RepositoryModel> found;
  for (const std::string& name : wanted) {
    if (std::count(names.begin(), names.end(), name) == 0) {
      return absl::NotFoundError(absl::StrCat("--load-model: expected a model of ", config_.model_repository, ", got '",
                                              name, "', which is none"));
    }
    const bool again = std::any_of(found.begin(), found.end(), [&](const auto& model) { return model.name == name; });
    if (!again) found.push_back(ScanModel(config_.model_repository, name));
  }
  return found;
}

void ModelControl::LoadFound(const std::vector<RepositoryModel>& found) {
  for (const RepositoryModel& model : found) {
    if (!model.status.ok()) table_.SetFailed(model.name, 0, model.status);
    for (const RepositoryVersion& version : model.versions) table_.SetLoading(model.name, version.version);
  }
  size_t failed = 0;
  for (const RepositoryModel& model : found) {
    if (!model.status.ok()) {
      LogFailure(model.name, 0, model.status);
      ++failed;
    }
    for (const RepositoryVersion& version : model.versions) {
      absl::StatusOr<std::unique_ptr<LoadedVersion>> prepared = Prepare(model, version);
      const absl::Status status = prepared.ok() ? Publish(*std::move(prepared)) : prepared.status();
      if (!status.ok()) {
        table_.SetFailed(model.name, version.version, status);
        LogFailure(model.name, version.version, status);
        ++failed;
      }
      Changed();
    }
  }
  Log(failed == 0 ? Severity::kInfo : Severity::kWarning, "repository loaded",
      {{"path", config_.model_repository}, {"ready", table_.ReadyModels().size()}, {"failed", failed}});
}

void ModelControl::ReadIndex(const std::string& repository, bool only_ready, RepositoryControl::IndexDone done) {
  if (!repository.empty() && repository != config_.model_repository) {
    done(absl::InvalidArgumentError("repository_name: expected nothing, since this server has one model repository"));
    return;
  }
  index_.Post([this, only_ready, done = std::move(done)](const absl::Status& status) mutable {
    if (!status.ok()) {
      done(status);
      return;
    }
    if (allows_model_control()) {
      if (const absl::Status refreshed = RefreshTable(); !refreshed.ok()) {
        done(absl::InternalError(refreshed.message()));
        return;
      }
    }
    done(table_.Index(only_ready));
  });
}

absl::Status ModelControl::RefreshTable() {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListModels(config_.model_repository));
  table_.SetRepository(names);
  return absl::OkStatus();
}

void ModelControl::PostControl(const char* verb, std::string name, RepositoryControl::Abandoned abandoned,
                               absl::AnyInvocable<absl::Status()> act, RepositoryControl::Done done) {
  if (!allows_model_control()) {
    done(absl::UnavailableError(
        absl::StrCat("explicit model ", verb, " is not allowed: the server runs with --model-control-mode=none")));
    return;
  }
  if (!IsSafeModelName(name)) {  // before it takes a place, of whatever length it is
    done(absl::InternalError(absl::StrCat("failed to ", verb, ": there is no such model in the repository")));
    return;
  }
  control_.Post([verb, name = std::move(name), abandoned = std::move(abandoned), act = std::move(act),
                 done = std::move(done)](const absl::Status& status) mutable {
    if (!status.ok()) {
      done(status);
      return;
    }
    if (abandoned->load(std::memory_order_acquire)) {
      done(absl::CancelledError(absl::StrCat("nobody waits for the ", verb, " any more; it was not begun")));
      return;
    }
    const absl::Status outcome = act();
    act = nullptr;  // What it held is free before anybody hears that it is over.
    // Whatever went wrong with the model is the server's affair to a client of the protocol; what is wrong with the
    // call itself, or passes, keeps its code.
    const bool keeps_code = outcome.ok() || absl::IsInvalidArgument(outcome) || absl::IsUnavailable(outcome);
    done(keeps_code ? outcome
                    : absl::InternalError(absl::StrCat("failed to ", verb, " '", name, "': ", outcome.message())));
  });
}

void ModelControl::LoadModel(std::string name, GivenModel given, RepositoryControl::Abandoned abandoned,
                             RepositoryControl::Done done) {
  // What waits is bounded in bytes too.
  if (given.config.has_value() && given.config->size() > kMaxConfigBytes) {
    done(absl::InvalidArgumentError(
        absl::StrCat("parameter 'config': expected at most ", kMaxConfigBytes, " bytes, got ", given.config->size())));
    return;
  }
  absl::Status status = CheckGivenFiles(name, given.files);
  GivenFiles files;
  if (status.ok()) {
    absl::StatusOr<GivenFiles> held = Hold(std::move(given.files));
    status = held.status();
    if (held.ok()) files = *std::move(held);
  }
  if (!status.ok()) {
    done(status);
    return;
  }
  absl::AnyInvocable<absl::Status()> act = [this, name, config = std::move(given.config), files = std::move(files)] {
    return Load(name, config, files);
  };
  PostControl("load", std::move(name), std::move(abandoned), std::move(act), std::move(done));
}

absl::StatusOr<ModelControl::GivenFiles> ModelControl::Hold(model::FilesInMemory files) {
  if (files.empty()) return GivenFiles();
  int64_t bytes = 0;
  for (const auto& [path, content] : files) bytes += static_cast<int64_t>(path.size() + content.size());
  const int64_t before = given_bytes_->fetch_add(bytes, std::memory_order_relaxed);
  GivenFiles held(new model::FilesInMemory(std::move(files)),
                  [bytes, all = given_bytes_](const model::FilesInMemory* gone) {
                    delete gone;
                    all->fetch_sub(bytes, std::memory_order_relaxed);
                  });
  if (before + bytes <= config_.model_file_bytes) return held;
  return absl::ResourceExhaustedError(absl::StrCat("parameters 'file:...': expected at most ", config_.model_file_bytes,
                                                   " bytes of all such models (--model-file-bytes), got ", bytes,
                                                   " beside ", before));
}

void ModelControl::UnloadModel(std::string name, RepositoryControl::Abandoned abandoned, RepositoryControl::Done done) {
  absl::AnyInvocable<absl::Status()> act = [this, name] { return Unload(name); };
  PostControl("unload", std::move(name), std::move(abandoned), std::move(act), std::move(done));
}

absl::StatusOr<RepositoryModel> ModelControl::FindForLoad(const std::string& name,
                                                          const std::optional<std::string>& config,
                                                          const GivenFiles& files) const {
  std::optional<ParsedConfig> instead;
  if (config.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(instead, ParseConfigJson(*config));
  }
  if (files != nullptr && instead.has_value()) return ScanGivenFiles(name, files, *instead);
  return ScanModel(config_.model_repository, name, instead.has_value() ? &*instead : nullptr);
}

absl::Status ModelControl::Load(const std::string& name, const std::optional<std::string>& config,
                                const GivenFiles& files) {
  SLUICE_ASSIGN_OR_RETURN(const RepositoryModel found, FindForLoad(name, config, files));
  if (files != nullptr) {
    Log(Severity::kInfo, "loading files that a client gave", {{"model", name}, {"files", files->size()}});
  }
  // A name that is no model's gets no place in the table.
  const bool is_model = !found.path.empty();
  absl::Status status = found.status;
  if (status.ok()) {
    status = Replace(found);
  } else if (is_model) {
    table_.SetFailed(name, 0, status);
  }
  // Nor do names that clients made up and that answer nothing, since there is no end of them.
  if (files != nullptr) {
    const absl::Status refreshed = RefreshTable();
    if (!refreshed.ok()) Log(Severity::kWarning, "the repository cannot be listed", {{"error", refreshed.ToString()}});
  }
  if (!status.ok()) LogFailure(name, 0, status);
  Changed();
  if (absl::IsUnavailable(status)) return status;
  return status.ok() ? status : absl::InternalError(status.message());
}

absl::Status ModelControl::Replace(const RepositoryModel& found) {
  std::vector<int64_t> versions;
  for (const RepositoryVersion& version : found.versions) {
    versions.push_back(version.version);
    table_.SetLoading(found.name, version.version);
  }
  Changed();
  std::vector<std::unique_ptr<LoadedVersion>> prepared;
  for (const RepositoryVersion& version : found.versions) {
    absl::StatusOr<std::unique_ptr<LoadedVersion>> next = Prepare(found, version);
    if (!next.ok()) {
      prepared.clear();
      const absl::Status failure(next.status().code(),
                                 absl::StrCat("version ", version.version, ": ", next.status().message()));
      for (const int64_t other : versions) table_.SetFailed(found.name, other, failure);
      return failure;
    }
    prepared.push_back(*std::move(next));
  }
  for (std::unique_ptr<LoadedVersion>& version : prepared) SLUICE_RETURN_IF_ERROR(Publish(std::move(version)));
  for (const auto& gone : table_.Unload(found.name, versions)) gone->metrics->SetReady(false);
  return absl::OkStatus();
}

absl::Status ModelControl::Unload(const std::string& name) {
  if (!table_.Knows(name)) return absl::NotFoundError("there is no such model");
  for (const auto& gone : table_.Unload(name)) gone->metrics->SetReady(false);
  Changed();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadedVersion>> ModelControl::Prepare(const RepositoryModel& found,
                                                                     const RepositoryVersion& version) {
  SLUICE_RETURN_IF_ERROR(version.status);
  const Time start = clock_.Now();
  auto loaded = std::make_unique<LoadedVersion>();
  SLUICE_ASSIGN_OR_RETURN(loaded->file, found.files == nullptr ? model::LoadOnnxModel(version.path)
                                                               : model::LoadOnnxModel(found.files, version.path));
  SLUICE_ASSIGN_OR_RETURN(
      const ModelSettings settings,
      MakeModelSettings(found.name, found.config.has_value() ? &*found.config : nullptr, loaded->file->signature(),
                        SettingsOptions{.has_gpu = HasCuda(specs_),
                                        .latency_slots = LatencyThreads(spin_, config_.request_threads)}));
  for (const std::string& warning : settings.warnings) {
    Log(Severity::kWarning, "setting without effect", {{"model", found.name}, {"setting", warning}});
  }
  auto served = std::make_shared<ServedModel>(*settings.MakeServedModel(ModelId(++last_model_id_), version.version));
  served->metrics = metrics_.AddModel(served->name, served->version);
  InstanceOptions options = MakeInstanceOptions(settings, config_);
  options.stop = &stopping_;

  SLUICE_ASSIGN_OR_RETURN(served->devices, PlaceModel(settings));
  for (const size_t place : served->devices) {
    devices_[place]->CompletePlanOptions(options.plan);
    SLUICE_ASSIGN_OR_RETURN(
        auto instance, ModelInstance::Create(*loaded->file, devices_[place]->device(), HostDevice(), served, options));
    loaded->executables.push_back({.instance = std::move(instance), .metrics = served->metrics});
  }
  loaded->slots = settings.slots;
  loaded->served = std::move(served);
  loaded->load_time = clock_.Now() - start;
  return loaded;
}

absl::Status ModelControl::Publish(std::unique_ptr<LoadedVersion> version) {
  const std::shared_ptr<LoadedVersion> shared(
      version.release(), [this](LoadedVersion* gone) { Retire(std::unique_ptr<LoadedVersion>(gone)); });
  const ServedModel& served = *shared->served;
  for (size_t i = 0; i < shared->executables.size(); ++i) {
    const std::shared_ptr<const ExecutableModel> executable(shared, &shared->executables[i]);
    SLUICE_RETURN_IF_ERROR(devices_[served.devices[i]]->AddModel(executable, shared->slots));
  }
  served.metrics->SetLoadDuration(shared->load_time);
  served.metrics->SetReady(true);
  table_.SetReady(std::shared_ptr<const ServedModel>(shared, &served));
  LogReady(*shared);
  return absl::OkStatus();
}

void ModelControl::Retire(std::unique_ptr<LoadedVersion> version) {
  // The last handle is often a request thread's, and giving memory back may synchronise a device.
  control_.PostCleanup([this, version = std::move(version)]() mutable { Free(std::move(version)); });
}

void ModelControl::Free(std::unique_ptr<LoadedVersion> version) {
  const std::shared_ptr<const ServedModel> served = version->served;
  for (const size_t place : served->devices) devices_[place]->RemoveModel(served->id);
  version.reset();
  for (const size_t place : served->devices) {
    // What libraries gave back shows in metrics; a probe that fails is the next load's affair.
    const absl::Status refreshed = devices_[place]->device().memory().Refresh();
    if (!refreshed.ok()) Log(Severity::kWarning, "memory in use is not known", {{"error", refreshed.ToString()}});
  }
  table_.SetUnloaded(*served);
  if (stopping_.load(std::memory_order_acquire)) return;  // so do all, and nobody listens
  Log(Severity::kInfo, "model unloaded", {{"model", served->name}, {"version", served->version}});
  Changed();
}

absl::StatusOr<std::vector<size_t>> ModelControl::PlaceModel(const ModelSettings& settings) const {
  const bool on_gpu = HasCuda(specs_) && settings.placement != Placement::kHost;
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

gpu::Device& ModelControl::HostDevice() const {
  const auto host = std::find_if(specs_.begin(), specs_.end(),
                                 [](const DeviceSpec& spec) { return spec.backend == gpu::Backend::kHost; });
  return devices_[static_cast<size_t>(host - specs_.begin())]->device();  // There always is one: ResolveDevices.
}

}  // namespace sluice::server
