// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a scrape asks of a device's lanes.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/execution/device_lanes.h"
#include "server/execution/inspect.h"
#include "server/metrics/metrics.h"

namespace sluice::server {

std::pair<size_t, size_t> DeviceLanes::CountSlots(std::span<const std::shared_ptr<const ExecutableModel>> models,
                                                  RequestClass request_class) {
  std::pair<size_t, size_t> all_and_free;
  for (const auto& model : models) {
    for (size_t bucket = 0; bucket < model->instance->served().shape_buckets.size(); ++bucket) {
      for (const PreparedPlan& plan : model->instance->plans(bucket)) {
        const gpu::SlotPool* const slots = plan.slots[Index(request_class)].get();
        if (slots == nullptr) continue;
        all_and_free.first += slots->size();
        all_and_free.second += slots->free_count();
      }
    }
  }
  return all_and_free;
}

namespace {

/// While a version is being replaced two of it are here, under the same labels: the newer one answers.
std::map<std::pair<std::string, int64_t>, const ExecutableModel*> NewestOfEach(
    std::span<const std::shared_ptr<const ExecutableModel>> models) {
  std::map<std::pair<std::string, int64_t>, const ExecutableModel*> newest;
  for (const std::shared_ptr<const ExecutableModel>& model : models) {
    const ServedModel& served = model->instance->served();
    const ExecutableModel*& kept = newest[{served.name, served.version}];
    if (kept == nullptr || kept->instance->served().id.value() < served.id.value()) kept = model.get();
  }
  return newest;
}

}  // namespace

void DeviceLanes::ReadClasses(std::span<const std::shared_ptr<const ExecutableModel>> models,
                              std::vector<metrics::ReadingSample>& samples) {
  using metrics::Reading;
  for (const RequestClass request_class : kRequestClasses) {
    LaneState& state = lanes_[Index(request_class)];
    const scheduler::CoreCounts counts = state.queue->counts();
    const auto add_class = [&](Reading reading, double value) {
      const absl::string_view word = RequestClassName(request_class);
      samples.push_back({reading, {std::string(word), device_->info().name}, value});
    };
    add_class(Reading::kQueueDepth, static_cast<double>(counts.queued));
    add_class(Reading::kQueueLimit, static_cast<double>(queue_limit_));
    add_class(Reading::kExecuting, static_cast<double>(counts.executing_requests));
    add_class(Reading::kStreamPriority, state.highest_number);
    const auto [slots, free_slots] = CountSlots(models, request_class);
    add_class(Reading::kSlots, static_cast<double>(slots));
    add_class(Reading::kSlotsFree, static_cast<double>(free_slots));
    add_class(Reading::kSlotWaits, static_cast<double>(state.slot_waits.load(std::memory_order_relaxed)));
    add_class(Reading::kSlotTimeouts, static_cast<double>(state.slot_timeouts.load(std::memory_order_relaxed)));
  }
}

void DeviceLanes::Read(std::vector<metrics::ReadingSample>& samples) {
  using metrics::Reading;
  const std::string& name = device_->info().name;
  const auto add = [&](Reading reading, double value) { samples.push_back({reading, {name}, value}); };
  // Outside of the lock, which every submission takes.
  const std::vector<std::shared_ptr<const ExecutableModel>> models = Models();
  ReadClasses(models, samples);
  add(Reading::kDeviceHealthy, device_->lost() ? 0 : 1);
  const gpu::GateCounters gate = gate_->counters();
  add(Reading::kGateGrants, static_cast<double>(gate.granted));
  add(Reading::kGateRefusals, static_cast<double>(gate.refused));
  add(Reading::kGateOwedGrants, static_cast<double>(gate.owed_grants));
  add(Reading::kGateLapsedTokens, static_cast<double>(gate.lapsed_tokens));
  add(Reading::kGateUntracked, static_cast<double>(gate.untracked_tokens));
  add(Reading::kLatencyShareUsed, latency_share_.Used(clock_.Now()));
  if (!device_->info().unified_memory) {
    add(Reading::kTransferChunkBytes, static_cast<double>(transfer_tuning_.chunk_bytes));
    add(Reading::kTransferWindow, transfer_tuning_.copy_window);
    add(Reading::kTransferKernelBytes, static_cast<double>(transfer_tuning_.kernel_bytes));
  }
  const gpu::LauncherCounters launcher = launcher_->counters();
  add(Reading::kLauncherUnits, static_cast<double>(launcher.engines[static_cast<size_t>(gpu::Engine::kCompute)].count));
  add(Reading::kLauncherWaits, static_cast<double>(launcher.yields));
  const gpu::MemoryUse memory = device_->memory().use();
  for (const gpu::MemoryKind kind : gpu::kMemoryKinds) {
    samples.push_back({Reading::kDeviceMemoryBytes,
                       {name, std::string(gpu::MemoryKindName(kind))},
                       static_cast<double>(memory.of(kind))});
  }
  size_t left = metrics::Metrics::kMaxModels;
  for (const auto& [version, model] : NewestOfEach(models)) {
    if (left-- == 0) break;
    ReadBatchPlan(*model->instance, name, samples);
  }
  // Of everything that the kinds show, what was not counted included.
  add(Reading::kDeviceMemoryLimitBytes,
      static_cast<double>(device_->memory().limit_bytes()) + static_cast<double>(memory.uncounted_bytes));
}

}  // namespace sluice::server
