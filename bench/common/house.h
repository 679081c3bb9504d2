// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/memory_budget.h"
#include "gpu/timeline.h"
#include "model/model.h"
#include "server/config.h"
#include "server/execution/device_lanes.h"
#include "server/execution/devices.h"
#include "server/execution/model_instance.h"
#include "server/infer_request.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/expiry.h"
#include "server/served_model.h"
#include "server/spin_budget.h"

namespace sluice::bench {

/// For `config.devices` of a house: the host device with memory of its own and a thread for each direction of copies,
/// so that what a GPU does with its copy engines can be run without one. Slow, and no result.
inline constexpr char kHostWithCopiers[] = "host-copiers";

/// A model of the repository as it was loaded.
struct HouseModel {
  std::shared_ptr<const server::ServedModel> served;
  server::ModelInstance* instance = nullptr;  ///< The house's.
};

/// Where loading a model differs from what its config.pbtxt and the flags say.
struct Variant {
  /// Each plan is one unit, so one graph, on a CUDA device; on the host a unit is one kernel. Batch class only.
  bool uncut = false;
  bool latency_only = false;          ///< One slot of the latency class a plan, and none of the others.
  int batch_slots = 0;                ///< 0: as in config.pbtxt.
  std::vector<int64_t> buckets = {};  ///< Row counts, ascending, instead of those of config.pbtxt; empty: those.
};

/// The server behind its wire: one device with its lanes, gate and launcher, and the models on it, put together as
/// server/execution does. Purpose: run requests without gRPC, with what a benchmark asks for within reach. Bounds: the
/// config's. Ownership: owns devices, lanes and models. Threads: Submit and the timeline from any, the rest from one.
class House {
 public:
  /// Starts the first device that `config.devices` names: "host", "cuda:N" or kHostWithCopiers. Errors: the device's.
  static absl::StatusOr<std::unique_ptr<House>> Create(const server::ServerConfig& config);
  ~House();
  House(const House&) = delete;
  House& operator=(const House&) = delete;

  /// Loads the newest version of a model of `config.model_repository`; the same one again is another model.
  absl::StatusOr<HouseModel> Load(const std::string& name, const Variant& variant = {});

  /// The request will be finished exactly once, at the latest when the house is destroyed.
  void Submit(std::shared_ptr<server::InferRequest> request);

  /// An idle house whose threads poll takes CPUs from the others; off is for houses that wait for their turn.
  void SetPolling(bool polls) { lanes_->SetPolling(polls); }

  gpu::Device& device() { return lanes_->device(); }
  const gpu::TransferTuning& transfer_tuning() const { return lanes_->transfer_tuning(); }
  gpu::Timeline& timeline() { return lanes_->timeline(); }
  const Clock& clock() const { return clock_; }
  const server::ServerConfig& config() const { return config_; }
  bool cuda() { return device().info().backend == gpu::Backend::kCuda; }
  /// A CPU is set aside for a thread that polls for requests, which is what the submitting thread stands for.
  bool polls() const { return spin_.io_thread; }

 private:
  explicit House(const server::ServerConfig& config) : config_(config), expiry_(clock_) {}
  absl::Status Start();
  absl::StatusOr<std::unique_ptr<gpu::Device>> MakeHostWithCopiers();

  const server::ServerConfig config_;
  const MonotonicClock clock_;
  server::SpinBudget spin_;
  std::unique_ptr<metrics::Metrics> metrics_;
  std::unique_ptr<gpu::MemoryBudget> host_memory_;
  scheduler::ExpiryThread expiry_;
  std::unique_ptr<gpu::Device> folding_device_;  ///< A host device for constants; none when the device is one.
  std::vector<std::unique_ptr<model::Model>> models_;
  std::vector<std::shared_ptr<const server::ExecutableModel>> executables_;  ///< After the files they refer to.
  uint64_t last_model_id_ = 0;
  std::atomic<uint64_t> last_request_id_ = 0;
  std::unique_ptr<server::DeviceLanes> lanes_;  // last: it ends what uses the others
};

}  // namespace sluice::bench
