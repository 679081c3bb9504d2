// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "model/model.h"
#include "server/config.h"
#include "server/execution/control_thread.h"
#include "server/execution/device_lanes.h"
#include "server/execution/devices.h"
#include "server/execution/executor.h"
#include "server/metrics/metrics.h"
#include "server/model_table.h"
#include "server/repository/model_settings.h"
#include "server/repository/repository.h"
#include "server/repository_control.h"
#include "server/spin_budget.h"

namespace sluice::server {

/// A model version with everything that serves it. What the table gives out and what requests hold are handles of the
/// whole, so it goes when the last request that may still run it is over.
struct LoadedVersion {
  std::unique_ptr<model::Model> file;  ///< The instances refer to it.
  std::shared_ptr<const ServedModel> served;
  std::vector<ExecutableModel> executables;  ///< In the order of served->devices.
  std::array<int, kRequestClassCount> slots{};
  absl::Duration load_time;
};

/// Loads, replaces and unloads models. Purpose: every change of what is served, one after another, off the I/O threads.
/// Bounds: kMostWaiting calls wait for the control thread and as many for the index, with the config's
/// model_file_bytes of files together with those of models; two sets of a model's versions exist while it is replaced.
/// Ownership: shares LoadedVersions with the table; everything it is given must outlive it, and the table must be
/// cleared before the devices go. Threads: RepositoryControl's methods from any; loads and unloads happen on
/// `model-control`, the repository is listed on `model-index`, so that a load that runs can be seen. Errors: a load
/// that fails leaves nothing behind and what was served before as it was.
class ModelControl {
 public:
  static constexpr size_t kMostWaiting = 64;

  ModelControl(const ServerConfig& config, const std::vector<DeviceSpec>& specs,
               const std::vector<std::unique_ptr<DeviceLanes>>& devices, const SpinBudget& spin, const Clock& clock,
               metrics::Metrics& metrics, ModelTable& table);
  ~ModelControl() { Stop(); }

  /// Loads what is to be there at start, one after another; other calls wait for it. A model that cannot be loaded is
  /// logged and stays not ready; others are not affected. `on_change` is called after each change, then and later, on
  /// any thread. Blocks. Once. Errors: the repository itself, and models in --load-model that it does not have.
  absl::Status LoadAtStart(absl::AnyInvocable<void()> on_change);
  /// What is to be there at start has been tried.
  bool loaded() const { return loaded_.load(std::memory_order_acquire); }

  // As RepositoryControl.
  bool allows_model_control() const { return config_.model_control_mode == ModelControlMode::kExplicit; }
  void ReadIndex(const std::string& repository, bool only_ready, RepositoryControl::IndexDone done);
  void LoadModel(std::string name, GivenModel given, RepositoryControl::Abandoned abandoned,
                 RepositoryControl::Done done);
  void UnloadModel(std::string name, RepositoryControl::Abandoned abandoned, RepositoryControl::Done done);

  /// Refuses what waits and whatever comes; a load that runs ends before its next plan.
  void Drain();
  /// Drains, waits for what runs and ends the threads. From here on versions go on whatever thread drops the last
  /// handle. Idempotent.
  void Stop();

 private:
  absl::StatusOr<std::vector<RepositoryModel>> FindAtStart();
  void LoadFound(const std::vector<RepositoryModel>& found);
  using GivenFiles = std::shared_ptr<const model::FilesInMemory>;
  /// Counts the bytes until the last handle goes; null for no files. RESOURCE_EXHAUSTED over the config's bound.
  absl::StatusOr<GivenFiles> Hold(model::FilesInMemory files);
  absl::Status Load(const std::string& name, const std::optional<std::string>& config, const GivenFiles& files);
  absl::StatusOr<RepositoryModel> FindForLoad(const std::string& name, const std::optional<std::string>& config,
                                              const GivenFiles& files) const;
  /// Tells the table what the repository has now.
  absl::Status RefreshTable();
  absl::Status Replace(const RepositoryModel& found);
  absl::Status Unload(const std::string& name);
  void PostControl(const char* verb, std::string name, RepositoryControl::Abandoned abandoned,
                   absl::AnyInvocable<absl::Status()> act, RepositoryControl::Done done);

  /// Indices of the devices that a model runs on.
  absl::StatusOr<std::vector<size_t>> PlaceModel(const ModelSettings& settings) const;
  /// The device that folds constants.
  gpu::Device& HostDevice() const;
  /// Prepared on every device, shown on none: dropping it leaves nothing behind.
  absl::StatusOr<std::unique_ptr<LoadedVersion>> Prepare(const RepositoryModel& model,
                                                         const RepositoryVersion& version);
  absl::Status Publish(std::unique_ptr<LoadedVersion> version);
  /// Its requests are answered.
  void Retire(std::unique_ptr<LoadedVersion> version);
  void Free(std::unique_ptr<LoadedVersion> version);
  void Changed() {
    if (on_change_ != nullptr) on_change_();
  }

  const ServerConfig& config_;
  const std::vector<DeviceSpec>& specs_;
  const std::vector<std::unique_ptr<DeviceLanes>>& devices_;  ///< In the order of specs_.
  const SpinBudget& spin_;
  const Clock& clock_;
  metrics::Metrics& metrics_;
  ModelTable& table_;
  absl::AnyInvocable<void()> on_change_;  ///< Set before the control thread starts.
  uint64_t last_model_id_ = 0;            ///< The control thread's.
  /// Of files that came with loads. Shared with them: a model may outlive this.
  const std::shared_ptr<std::atomic<int64_t>> given_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> loaded_ = false;
  std::atomic<bool> stopping_ = false;
  ControlThread control_{"model-control", kMostWaiting};
  ControlThread index_{"model-index", kMostWaiting};
};

}  // namespace sluice::server
