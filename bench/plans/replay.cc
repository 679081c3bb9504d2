// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/plans/replay.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/request_class.h"
#include "base/status_macros.h"
#include "bench/common/values.h"
#include "gpu/slot.h"

namespace sluice::bench {
namespace {

constexpr int64_t kMostReplays = 1'000'000;

/// How many replays of one that takes `once` come to `wanted`.
int64_t TimesFor(absl::Duration wanted, absl::Duration once) {
  return std::clamp<int64_t>(wanted / std::max(once, absl::Nanoseconds(100)), 1, kMostReplays);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Replay>> Replay::Create(House& house, const HouseModel& model,
                                                       const server::PreparedPlan& plan) {
  gpu::SlotPool* const slots = plan.slots[static_cast<size_t>(RequestClass::kLatency)].get();
  gpu::SlotLease slot = slots == nullptr ? gpu::SlotLease() : slots->TryAcquire();
  if (!slot) {
    return absl::UnavailableError(absl::StrCat("model '", model.served->name, "' has no free latency slot"));
  }
  std::unique_ptr<Replay> replay(new Replay(house.device(), std::move(slot)));
  SLUICE_RETURN_IF_ERROR(replay->Prepare(model));
  return replay;
}

absl::Status Replay::Prepare(const HouseModel& model) {
  // As the latency lane's, although nothing else is running.
  SLUICE_ASSIGN_OR_RETURN(stream_, device_.CreateStream(gpu::StreamPriority::kHigh));
  SLUICE_ASSIGN_OR_RETURN(start_, device_.CreateTimedEvent());
  SLUICE_ASSIGN_OR_RETURN(end_, device_.CreateTimedEvent());
  for (size_t i = 0; i < slot_->inputs.size(); ++i) {
    const gpu::SlotTensor& input = slot_->inputs[i];
    FillInput(model.served->inputs[i], std::span(input.pinned.data, input.pinned.size_bytes));
    if (device_.info().unified_memory || input.pinned.size_bytes == 0) continue;
    SLUICE_RETURN_IF_ERROR(device_.CopyToDevice(stream_, input.pinned, input.device));
  }
  SLUICE_RETURN_IF_ERROR(device_.Synchronize(stream_));
  SLUICE_ASSIGN_OR_RETURN(graph_, gpu::CaptureLaunches(*slot_, 1, kernel_count()));
  return absl::OkStatus();
}

absl::Status Replay::Issue(int64_t times) {
  SLUICE_RETURN_IF_ERROR(device_.Record(stream_, start_.view()));
  for (; times > 0; --times) SLUICE_RETURN_IF_ERROR(device_.LaunchGraph(stream_, graph_));
  SLUICE_RETURN_IF_ERROR(device_.Record(stream_, end_.view()));
  return device_.Synchronize(end_.view());
}

absl::StatusOr<absl::Duration> Replay::Run(int64_t times) {
  if (absl::Status issued = Issue(times); !issued.ok()) {
    device_.Synchronize(stream_).IgnoreError();  // Nothing is running when the slot is given back.
    return issued;
  }
  return device_.Elapsed(start_, end_);
}

absl::StatusOr<absl::Duration> Replay::Measure(absl::Duration warmup, absl::Duration phase) {
  SLUICE_ASSIGN_OR_RETURN(absl::Duration once, Run(1));
  // The first one is slow, and a guess by it would make the warm-up short.
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration second, Run(1));
  once = std::min(once, second);
  const int64_t warmup_times = TimesFor(warmup, once);
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration warmed, Run(warmup_times));
  const int64_t times = TimesFor(phase, warmed / warmup_times);
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration all, Run(times));
  return all / times;
}

}  // namespace sluice::bench
