// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/pipeline/bare.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/transfer.h"
#include "server/execution/micro_batch.h"

namespace sluice::bench {
namespace {

/// Takes every free batch slot of the plans that `cut` names, and gives them to the micro-batches in turn.
absl::StatusOr<Parts> TakeSlots(const HouseModel& model, const std::vector<server::MicroBatch>& cut) {
  Parts parts;
  const std::span<const server::PreparedPlan> plans = model.instance->plans(0);
  std::map<size_t, std::vector<size_t>> slots_of_plan;
  std::map<size_t, size_t> next;
  for (const server::MicroBatch& micro_batch : cut) {
    const server::PreparedPlan& plan = plans[micro_batch.plan_index];
    const auto [found, is_new] = slots_of_plan.try_emplace(micro_batch.plan_index);
    gpu::SlotPool* const pool = plan.slots[static_cast<size_t>(RequestClass::kBatch)].get();
    while (is_new && pool != nullptr) {
      gpu::SlotLease lease = pool->TryAcquire();
      if (!lease) break;
      found->second.push_back(parts.slots.size());
      parts.slots.push_back(std::move(lease));
    }
    if (found->second.empty()) {
      return absl::UnavailableError(absl::StrCat("model '", model.served->name, "' has no free batch slot"));
    }
    parts.parts.push_back({micro_batch.first_row, micro_batch.row_count,
                           found->second[next[micro_batch.plan_index]++ % found->second.size()]});
  }
  for (const auto& [plan_index, slots] : slots_of_plan) parts.plan_rows.push_back(plans[plan_index].rows);
  return parts;
}

absl::Status LaunchUnit(gpu::Device& device, gpu::StreamRef stream, const gpu::Slot& slot, size_t index) {
  if (const gpu::GraphRef graph = slot.unit_graphs[index]; graph) return device.LaunchGraph(stream, graph);
  const gpu::Unit& unit = slot.units[index];
  for (size_t i = 0; i < unit.launch_count; ++i) {
    const gpu::BoundLaunch& launch = slot.launches[unit.first_launch + i];
    SLUICE_RETURN_IF_ERROR(device.Launch(stream, *launch.kernel, launch.args));
  }
  return absl::OkStatus();
}

}  // namespace

const model::Plan& PlanFor(const HouseModel& model, int64_t plan_rows) {
  const std::span<const server::PreparedPlan> plans = model.instance->plans(0);
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const server::PreparedPlan& plan) { return plan.rows == plan_rows; });
  return *(found == plans.end() ? plans.back() : *found).plan;
}

absl::StatusOr<Parts> CutLikeTheLane(const HouseModel& model, int64_t rows) {
  return TakeSlots(model,
                   server::CutRows(rows, model.instance->plan_rows(0, RequestClass::kBatch), RequestClass::kBatch));
}

absl::StatusOr<std::unique_ptr<BareRunner>> BareRunner::Create(House& house, int stream_count) {
  std::unique_ptr<BareRunner> runner(new BareRunner(house));
  gpu::Device& device = house.device();
  for (int i = 0; i < stream_count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(gpu::Stream stream, device.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(gpu::Event end, device.CreateEvent(gpu::WaitMode::kSpin));
    runner->streams_.push_back(std::move(stream));
    runner->ends_.push_back(std::move(end));
  }
  return runner;
}

absl::Status BareRunner::Issue(gpu::StreamRef stream, const gpu::Slot& slot, Stage stage) {
  if (stage == Stage::kUnits) {
    for (size_t unit = 0; unit < slot.units.size(); ++unit) {
      SLUICE_RETURN_IF_ERROR(LaunchUnit(device_, stream, slot, unit));
    }
    return absl::OkStatus();
  }
  if (device_.info().unified_memory) return absl::OkStatus();
  const bool in = stage == Stage::kCopiesIn;
  for (gpu::ChunkCursor chunks(in ? slot.inputs : slot.outputs, chunk_bytes_); !chunks.done();) {
    const gpu::Chunk chunk = chunks.Next();
    SLUICE_RETURN_IF_ERROR(in ? device_.CopyToDevice(stream, chunk.pinned, chunk.device)
                              : device_.CopyToHost(stream, chunk.device, chunk.pinned));
  }
  return absl::OkStatus();
}

absl::Status BareRunner::IssueAll(const Parts& parts, Stage stage, int64_t times) {
  for (; times > 0; --times) {
    for (const Parts::Part& part : parts.parts) {
      SLUICE_RETURN_IF_ERROR(Issue(streams_[part.slot % streams_.size()], *parts.slots[part.slot], stage));
    }
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(device_.Record(streams_[i], ends_[i].view()));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> BareRunner::Run(const Parts& parts, Stage stage, int64_t times) {
  const Time begin = clock_.Now();
  absl::Status first = IssueAll(parts, stage, times);
  // Whatever happened, nothing is running when the slots are given back.
  for (size_t i = 0; i < streams_.size(); ++i) {
    const absl::Status awaited =
        first.ok() ? device_.Synchronize(ends_[i].view()) : device_.Synchronize(streams_[i].view());
    if (first.ok() && !awaited.ok()) first = awaited;
  }
  SLUICE_RETURN_IF_ERROR(first);
  return clock_.Now() - begin;
}

}  // namespace sluice::bench
