// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/memory_budget.h"
#include "server/config.h"
#include "server/execution/device_lanes.h"
#include "server/execution/devices.h"
#include "server/execution/gpu_monitor.h"
#include "server/execution/model_control.h"
#include "server/execution/trace_recorder.h"
#include "server/infer_request.h"
#include "server/metrics/metrics.h"
#include "server/metrics/neighbour_activity.h"
#include "server/model_table.h"
#include "server/response_pool.h"
#include "server/scheduler/expiry.h"
#include "server/shared_memory.h"
#include "server/spin_budget.h"

namespace sluice::server {

/// Everything behind the wire: devices with their lanes, and the models on them. Purpose: answer rpc's questions and
/// run its requests. Bounds: the config's. Ownership: owns devices, models and threads; clock and metrics must outlive
/// it; every handle that FindModel gave must be gone, or its request submitted, before it goes. Threads:
/// InferenceBackend's methods from any I/O thread; the others from the main thread.
class Serving final : public InferenceBackend {
 public:
  /// Starts the devices, by `make`, and their lanes; no model yet. FAILED_PRECONDITION when a lane lacks its priority.
  static absl::StatusOr<std::unique_ptr<Serving>> Create(
      const ServerConfig& config, std::vector<DeviceSpec> specs, const Clock& clock, metrics::Metrics& metrics,
      DeviceMaker make = [](const DeviceSpec& spec, const ServerConfig& config, const Clock& clock,
                            gpu::MemoryBudget& host_memory) { return MakeDevice(spec, config, clock, host_memory); });
  ~Serving() override;

  /// Loads what --model-control-mode and --load-model say, as ModelControl::LoadAtStart.
  absl::Status LoadRepository(absl::AnyInvocable<void()> on_change);

  /// Readiness off, new requests refused; what was admitted runs on.
  void Drain();
  bool Idle() const;
  /// True once a device is lost: the process should end.
  bool DeviceLost() const;
  /// Ends all threads; every request is answered. Idempotent.
  void Stop();

  /// Records what every device does for `duration` and returns it as a Chrome trace; see TraceRecorder::Record. Blocks
  /// its caller, at the longest until Stop. Any thread.
  absl::StatusOr<std::string> RecordTrace(absl::Duration duration);
  bool recording_trace() const { return traces_.recording(); }

  /// What a model became when it was loaded, as InspectModel writes it. NOT_FOUND, UNAVAILABLE and INVALID_ARGUMENT as
  /// FindModel. Any thread.
  absl::StatusOr<std::string> Inspect(const std::string& name, const std::string& version) const;

  const SpinBudget& spin_budget() const { return spin_; }

  const metrics::NeighbourActivity& neighbours(size_t device_index) const {
    return devices_[device_index]->neighbours();
  }

  // InferenceBackend.
  bool live() const override { return !DeviceLost(); }
  bool ready() const override;
  absl::StatusOr<std::shared_ptr<const ServedModel>> FindModel(const std::string& name,
                                                               const std::string& version) const override;
  absl::StatusOr<std::vector<int64_t>> ReadyVersions(const std::string& name) const override {
    return table_.ReadyVersions(name);
  }
  std::vector<std::shared_ptr<const ServedModel>> ReadyModels() const override { return table_.ReadyModels(); }
  SharedMemoryRegions* shared_memory() const override { return shared_memory_.get(); }
  void Submit(std::shared_ptr<InferRequest> request) override;
  void Cancel(const std::shared_ptr<InferRequest>& request) override;
  bool allows_model_control() const override { return models_->allows_model_control(); }
  void ReadIndex(const std::string& repository, bool only_ready, IndexDone done) override {
    models_->ReadIndex(repository, only_ready, std::move(done));
  }
  void LoadModel(std::string name, GivenModel given, Abandoned abandoned, Done done) override {
    models_->LoadModel(std::move(name), std::move(given), std::move(abandoned), std::move(done));
  }
  void UnloadModel(std::string name, Abandoned abandoned, Done done) override {
    models_->UnloadModel(std::move(name), std::move(abandoned), std::move(done));
  }
  absl::Status FillStatistics(const std::string& name, const std::string& version,
                              inference::ModelStatisticsResponse& response) const override;

 private:
  Serving(const ServerConfig& config, std::vector<DeviceSpec> specs, const Clock& clock, metrics::Metrics& metrics);
  absl::Status StartDevices(DeviceMaker make);
  size_t CudaDeviceCount() const;
  std::vector<metrics::ReadingSample> Read();
  void ReadSharedMemory(std::vector<metrics::ReadingSample>& samples) const;

  const ServerConfig config_;
  const std::vector<DeviceSpec> specs_;  ///< In the order of devices_.
  const Clock& clock_;
  metrics::Metrics& metrics_;
  ModelTable table_;
  const std::unique_ptr<SharedMemoryRegions> shared_memory_;  ///< Null without --shared-memory=system.
  std::atomic<uint64_t> last_request_id_ = 0;
  std::atomic<bool> draining_ = false;
  SpinBudget spin_;
  std::unique_ptr<gpu::MemoryBudget> host_memory_;  ///< Of pinned memory and host devices, which it outlives.
  std::shared_ptr<ResponsePool> responses_;         ///< Shared with responses that are being written.
  std::unique_ptr<scheduler::ExpiryThread> expiry_;
  std::vector<std::unique_ptr<DeviceLanes>> devices_;
  std::unique_ptr<ModelControl> models_;  ///< What is on the devices; after them.
  TraceRecorder traces_;                  ///< Of the devices' timelines.
  std::unique_ptr<GpuMonitor> gpus_;      ///< Null where no device is a GPU.
  metrics::SourceRegistration readings_;  // last: nothing reads what is being destroyed
};

}  // namespace sluice::server
