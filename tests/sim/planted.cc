// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/planted.h"

namespace sluice::sim {

absl::string_view PlantWord(Plant plant) {
  for (const PlantName& each : kPlants) {
    if (each.plant == plant) return each.name;
  }
  return "none";
}

std::optional<Plant> PlantOf(absl::string_view name) {
  for (const PlantName& each : kPlants) {
    if (each.name == name) return each.plant;
  }
  return std::nullopt;
}

gpu::GateOptions PlantedGate::Changed(gpu::GateOptions options, Plant plant) {
  switch (plant) {
    case Plant::kWindowOffByOne:  // A unit is 8 to 50 us long.
      options.compute_window += absl::Microseconds(25);
      options.idle_compute_window += absl::Microseconds(25);
      break;
    case Plant::kChunkWindowOffByOne:
      ++options.copy_window;
      break;
    case Plant::kLapsedTokenKept:  // Tokens lapse one compute window late; units keep the window that they had.
      options.idle_compute_window = options.compute_window;
      options.compute_window = absl::Seconds(100);
      break;
    case Plant::kTokensIgnored:
      options.enabled = false;
      break;
    default:
      break;
  }
  return options;
}

void PlantedGate::Release(gpu::GateToken token, bool entered_device, Time now) {
  const auto it = ready_at_.find(token.value);
  const bool lapsed = it != ready_at_.end() && it->second + window_ <= now;
  if (it != ready_at_.end()) ready_at_.erase(it);
  if (plant_ == Plant::kLapsedTokenLeaked && lapsed) return;
  Gate::Release(token, entered_device);
}

gpu::Grant PlantedGate::TryGrant(gpu::Engine engine, RequestClass request_class, absl::Duration predicted, Time now) {
  const gpu::Grant grant = Gate::TryGrant(engine, request_class, predicted, now);
  if (plant_ == Plant::kCountedTwice && !grant.granted) return Gate::TryGrant(engine, request_class, predicted, now);
  return grant;
}

scheduler::CoreOptions PlantedCore::Changed(scheduler::CoreOptions options, Plant plant) {
  if (plant == Plant::kOvertaking) options.default_horizon = absl::ZeroDuration();
  return options;
}

scheduler::Admission PlantedCore::Submit(scheduler::QueuedRequest request, Time now,
                                         const scheduler::Prediction& prediction) {
  if (plant_ == Plant::kLateLimit) {
    request.deadline = request.deadline + absl::Milliseconds(20);
    request.queue_deadline = request.queue_deadline + absl::Milliseconds(20);
  }
  return SchedulerCore::Submit(request, now, prediction);
}

std::optional<scheduler::Pick> PlantedCore::PickNext(Time now) {
  std::optional<scheduler::Pick> pick = SchedulerCore::PickNext(now);
  if (plant_ == Plant::kAnsweredTwice && pick.has_value()) picked_[pick->execution] = pick->requests;
  return pick;
}

std::vector<RequestId> PlantedCore::OnCompleted(scheduler::ExecutionId execution, Time now,
                                                std::optional<absl::Duration> measured) {
  if (plant_ == Plant::kShortPredictions && measured.has_value()) *measured /= 2;
  std::vector<RequestId> unanswered = SchedulerCore::OnCompleted(execution, now, measured);
  const auto picked = picked_.find(execution);
  if (picked == picked_.end()) return unanswered;
  std::vector<RequestId> all = std::move(picked->second);
  picked_.erase(picked);
  return all;
}

}  // namespace sluice::sim
