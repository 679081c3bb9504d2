// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "gpu/gate.h"
#include "server/scheduler/core.h"
#include "server/scheduler/types.h"

/// Bugs that the checkers must find. They sit between the simulation and the product, as a call that is not passed on
/// or passed on changed; the product knows nothing of them, and the checkers are told nothing.
namespace sluice::sim {

enum class Plant : uint8_t {
  kNone,
  kLostCompletion,
  kWindowOffByOne,
  kChunkWindowOffByOne,
  kStarvedBatch,
  kLapsedTokenKept,
  kLapsedTokenLeaked,
  kAnsweredTwice,
  kLateLimit,
  kUnwantedGoesOn,
  kUngatedUnit,
  kTokensIgnored,
  kLostWakeup,
  kOvertaking,
  kShortPredictions,
  kCountedTwice,
};

struct PlantName {
  Plant plant = Plant::kNone;
  absl::string_view name;
  absl::string_view what;
};
inline constexpr std::array kPlants = {
    PlantName{Plant::kLostCompletion, "lost-completion", "the end of an execution is not passed on"},
    PlantName{Plant::kWindowOffByOne, "window-off-by-one", "the compute window takes one unit too many"},
    PlantName{Plant::kChunkWindowOffByOne, "chunk-window-off-by-one", "the copy windows take one chunk too many"},
    PlantName{Plant::kStarvedBatch, "starved-batch", "the gate is not told that batch has work"},
    PlantName{Plant::kLapsedTokenKept, "lapsed-token-kept", "a token that has lapsed still closes the gate"},
    PlantName{Plant::kLapsedTokenLeaked, "lapsed-token-leaked", "a token that has lapsed is not given back"},
    PlantName{Plant::kAnsweredTwice, "answered-twice", "an execution also answers its expired and cancelled requests"},
    PlantName{Plant::kLateLimit, "late-limit", "limits are noticed 20 ms late"},
    PlantName{Plant::kUnwantedGoesOn, "unwanted-goes-on", "an execution that nobody waits for is not stopped"},
    PlantName{Plant::kUngatedUnit, "ungated-unit", "some batch units are launched without a grant"},
    PlantName{Plant::kTokensIgnored, "tokens-ignored", "tokens hold nothing back"},
    PlantName{Plant::kLostWakeup, "lost-wakeup", "a waiter is not notified now and then"},
    PlantName{Plant::kOvertaking, "overtaking", "a request without a deadline is ordered by its arrival"},
    PlantName{Plant::kShortPredictions, "short-predictions", "executions are said to take half as long as they do"},
    PlantName{Plant::kCountedTwice, "counted-twice", "a refusal of the gate is counted twice"},
};
absl::string_view PlantWord(Plant plant);
std::optional<Plant> PlantOf(absl::string_view name);

/// True at every n-th call.
class EveryNth {
 public:
  explicit EveryNth(int n) : n_(n) {}
  bool operator()() { return ++count_ % n_ == 0; }

 private:
  const int n_;
  int count_ = 0;
};

/// The gate as the simulation reaches it.
class PlantedGate : public gpu::Gate {
 public:
  PlantedGate(const gpu::GateOptions& options, Plant plant)
      : Gate(Changed(options, plant)), plant_(plant), window_(options.compute_window) {}

  gpu::GateToken Announce(Time now, Time ready_at) {
    const gpu::GateToken token = Gate::Announce(now, ready_at);
    if (token) ready_at_[token.value] = ready_at;
    return token;
  }
  void Reannounce(gpu::GateToken token, Time ready_at) {
    Gate::Reannounce(token, ready_at);
    if (token) ready_at_[token.value] = ready_at;
  }
  void EnterDevice(gpu::GateToken token) {
    Gate::EnterDevice(token);
    ready_at_.erase(token.value);
  }
  void Release(gpu::GateToken token, bool entered_device, Time now);
  gpu::Grant TryGrant(gpu::Engine engine, RequestClass request_class, absl::Duration predicted, Time now);
  void SetBatchPending(bool pending, Time now) {
    if (plant_ != Plant::kStarvedBatch) Gate::SetBatchPending(pending, now);
  }
  void SetLatencyCapable(bool any_latency_model) {
    if (plant_ != Plant::kLapsedTokenKept) Gate::SetLatencyCapable(any_latency_model);
  }

 private:
  static gpu::GateOptions Changed(gpu::GateOptions options, Plant plant);

  const Plant plant_;
  const absl::Duration window_;
  std::map<uint32_t, Time> ready_at_;  ///< Of tokens that have not entered.
};

/// A waiter of the gate.
class PlantedWaiter : public gpu::GateWaiter {
 public:
  PlantedWaiter(gpu::Gate& gate, Plant plant) : GateWaiter(gate), plant_(plant) {}
  void Arm() {
    if (plant_ != Plant::kLostWakeup || !forgets_()) GateWaiter::Arm();
  }

 private:
  const Plant plant_;
  EveryNth forgets_{50};
};

/// A scheduler core.
class PlantedCore : public scheduler::SchedulerCore {
 public:
  PlantedCore(const scheduler::CoreOptions& options, Plant plant)
      : SchedulerCore(Changed(options, plant)), plant_(plant) {}

  scheduler::Admission Submit(scheduler::QueuedRequest request, Time now, const scheduler::Prediction& prediction);
  std::optional<scheduler::Pick> PickNext(Time now);
  std::vector<RequestId> OnCompleted(scheduler::ExecutionId execution, Time now,
                                     std::optional<absl::Duration> measured);

 private:
  static scheduler::CoreOptions Changed(scheduler::CoreOptions options, Plant plant);

  const Plant plant_;
  std::map<scheduler::ExecutionId, std::vector<RequestId>> picked_;
};

}  // namespace sluice::sim
