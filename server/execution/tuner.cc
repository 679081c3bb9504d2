// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/tuner.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "server/container_memory.h"
#include "server/execution/devices.h"
#include "server/execution/model_instance.h"
#include "server/repository/model_settings.h"
#include "server/repository/repository.h"

namespace sluice::server {
namespace {

/// The model's plans on one device, without slots or lanes: a load, for what it tries and measures.
class TuningLoad {
 public:
  TuningLoad(const ServerConfig& config, const RepositoryModel& found, const Clock& clock)
      : config_(config), found_(found), clock_(clock) {}

  /// Starts the device anew, so that nothing is known from an earlier load.
  absl::Status Run(const DeviceSpec& spec, bool tune) {
    SLUICE_ASSIGN_OR_RETURN(host_memory_, MakeHostMemoryBudget(config_.pinned_memory_limit));
    SLUICE_ASSIGN_OR_RETURN(host_, MakeDevice({.backend = gpu::Backend::kHost}, config_, clock_, *host_memory_));
    SLUICE_ASSIGN_OR_RETURN(device_, MakeDevice(spec, config_, clock_, *host_memory_, tune));
    const Time start = clock_.Now();
    for (const RepositoryVersion& version : found_.versions) {
      SLUICE_RETURN_IF_ERROR(version.status);
      SLUICE_RETURN_IF_ERROR(LoadVersion(version));
    }
    took_ = clock_.Now() - start;
    return absl::OkStatus();
  }

  gpu::Device& device() { return *device_; }
  gpu::TuningTable& tuning() { return *device_->kernels().tuning(); }
  absl::Duration took() const { return took_; }
  /// In the order in which they were built; `before` is their time.
  const std::vector<TunedPlan>& plans() const { return plans_; }

 private:
  absl::Status LoadVersion(const RepositoryVersion& version) {
    SLUICE_ASSIGN_OR_RETURN(const auto model, model::LoadOnnxModel(version.path));
    SLUICE_ASSIGN_OR_RETURN(ModelSettings settings,
                            MakeModelSettings(found_.name, found_.config.has_value() ? &*found_.config : nullptr,
                                              model->signature(), SettingsOptions{.has_gpu = true}));
    if (settings.placement == Placement::kHost) {
      return absl::FailedPreconditionError(
          absl::StrCat("model '", found_.name, "' is of KIND_CPU (config.pbtxt: instance_group): nothing to tune"));
    }
    settings.slots = {0, 0, 0};
    InstanceOptions options = MakeInstanceOptions(settings, config_);
    SLUICE_ASSIGN_OR_RETURN(const auto instance,
                            ModelInstance::Create(*model, *device_, *host_,
                                                  settings.MakeServedModel(ModelId(1), version.version), options));
    for (size_t bucket = 0; bucket < instance->served().shape_buckets.size(); ++bucket) {
      for (const PreparedPlan& prepared : instance->plans(bucket)) {
        plans_.push_back({.device = device_->info().name,
                          .version = version.version,
                          .input_shapes = prepared.plan->bucket().input_shapes,
                          .rows = prepared.rows,
                          .before = prepared.plan->profile(),
                          .after = {}});
      }
    }
    return absl::OkStatus();
  }

  const ServerConfig& config_;
  const RepositoryModel& found_;
  const Clock& clock_;
  std::unique_ptr<gpu::MemoryBudget> host_memory_;
  std::unique_ptr<gpu::Device> host_, device_;
  std::vector<TunedPlan> plans_;
  absl::Duration took_;
};

absl::Status TuneOn(const DeviceSpec& spec, const ServerConfig& config, const RepositoryModel& found,
                    const Clock& clock, absl::FunctionRef<void(absl::string_view)> progress, TuneReport& report) {
  TuneReport::DeviceReport& device = report.devices.emplace_back();
  device.name = spec.Name();
  const auto say = [&](absl::string_view what) { progress(absl::StrCat(found.name, " on ", device.name, ": ", what)); };
  std::vector<TunedPlan> plans;
  {
    say("load as it is");
    TuningLoad before(config, found, clock);
    SLUICE_RETURN_IF_ERROR(before.Run(spec, /*tune=*/false));
    plans = before.plans();
    device.load_before = before.took();
  }
  {
    say("try at length");
    TuningLoad tuning(config, found, clock);
    SLUICE_RETURN_IF_ERROR(tuning.Run(spec, /*tune=*/true));
    SLUICE_RETURN_IF_ERROR(tuning.tuning().Write());
    device.tuning = tuning.took();
    device.choices = tuning.tuning().recorded_count();
  }
  say("load from the file");
  TuningLoad after(config, found, clock);
  SLUICE_RETURN_IF_ERROR(after.Run(spec, /*tune=*/false));
  device.load_after = after.took();
  device.environment = after.tuning().environment();
  device.path = after.tuning().path();
  device.all_choices = after.tuning().size();
  for (size_t i = 0; i < plans.size(); ++i) plans[i].after = after.plans()[i].before;
  report.plans.insert(report.plans.end(), plans.begin(), plans.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TuneReport> TuneModel(const ServerConfig& config, const std::string& model, const Clock& clock,
                                     absl::FunctionRef<void(absl::string_view)> progress) {
  if (config.tuning_cache.empty()) {
    return absl::FailedPreconditionError("--tuning-cache: expected a folder to write to, got nothing");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto repository, ScanRepository(config.model_repository));
  const auto found = std::find_if(repository.begin(), repository.end(),
                                  [&](const RepositoryModel& candidate) { return candidate.name == model; });
  if (found == repository.end()) {
    return absl::NotFoundError(absl::StrCat("model '", model, "' is not in '", config.model_repository, "'"));
  }
  SLUICE_RETURN_IF_ERROR(found->status);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> specs, ResolveDevices(config));
  if (specs.front().backend != gpu::Backend::kCuda) {
    return absl::FailedPreconditionError(
        absl::StrCat("--devices: expected a CUDA device, got '", config.devices,
                     "' without any: a host device's library chooses by itself, and there is nothing to tune"));
  }
  TuneReport report;
  for (const DeviceSpec& spec : specs) {
    if (spec.backend != gpu::Backend::kCuda) continue;
    SLUICE_RETURN_IF_ERROR(TuneOn(spec, config, *found, clock, progress, report));
  }
  return report;
}

std::string ToJson(const TuneReport& report) {
  nlohmann::ordered_json json = {{"devices", nlohmann::ordered_json::array()},
                                 {"plans", nlohmann::ordered_json::array()}};
  for (const TuneReport::DeviceReport& device : report.devices) {
    json["devices"].push_back({{"name", device.name},
                               {"environment", device.environment},
                               {"file", device.path},
                               {"choices", device.choices},
                               {"choices_in_file", device.all_choices},
                               {"load_seconds_before", absl::ToDoubleSeconds(device.load_before)},
                               {"tuning_seconds", absl::ToDoubleSeconds(device.tuning)},
                               {"load_seconds_after", absl::ToDoubleSeconds(device.load_after)}});
  }
  for (const TunedPlan& plan : report.plans) {
    json["plans"].push_back({{"device", plan.device},
                             {"version", plan.version},
                             {"input_shapes", plan.input_shapes},
                             {"rows", plan.rows},
                             {"us_before", absl::ToDoubleMicroseconds(plan.before)},
                             {"us_after", absl::ToDoubleMicroseconds(plan.after)}});
  }
  return json.dump();
}

}  // namespace sluice::server
