// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "gpu/gate.h"
#include "tests/sim/checked_gate.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/failure.h"
#include "tests/sim/planted.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_device.h"

namespace sluice::sim {

/// What request threads and the launcher do with one execution, in virtual time: copy in, then latency work is issued
/// at once, standard and batch work chunk by chunk and unit by unit as the gate grants it, each asker waiting the way
/// the real ones do (arm, ask again, sleep until notified or until the time it was told). Checks that a latency
/// execution finds at most one window of lower work in its way. Single-threaded.
class DeviceSide {
 public:
  /// Called once for each execution: it has ended, with a result or without.
  using OnEnd = absl::AnyInvocable<void(uint64_t execution, bool succeeded)>;
  /// Called before anything of an execution is issued to the device: each unit and chunk, latency work once.
  using OnIssue = absl::AnyInvocable<void(uint64_t execution)>;

  DeviceSide(const Scenario& scenario, EventLoop& loop, Failure& failure, Random random, OnIssue on_issue,
             OnEnd on_end);

  struct Start {
    uint64_t execution = 0;
    RequestClass request_class = RequestClass::kBatch;
    const SimModel* model = nullptr;
    int64_t rows = 1;
    std::vector<gpu::GateToken> tokens;  ///< Of its requests; released here from now on.
  };
  void Begin(Start start);
  /// Nobody waits for it any more: nothing further is issued.
  void Stop(uint64_t execution);
  /// Everything in flight ends without a result, now.
  void Lose();
  void Hang() { device_.Hang(); }
  /// Lets those run whom the gate has notified. Call after every event.
  void RunNotified();

  CheckedGate& gate() { return gate_; }
  const SimDevice& device() const { return device_; }
  bool idle() const { return executions_.empty(); }
  static absl::Duration CopyInTime(int64_t rows) { return absl::Microseconds(3) + absl::Nanoseconds(500) * rows; }

 private:
  struct Step {
    gpu::Engine engine = gpu::Engine::kCompute;
    absl::Duration predicted, duration, seen_after;
    bool fails = false;
    bool ungated = false;  ///< Launched without a grant: only if planted.
  };
  struct Execution {
    uint64_t id = 0;
    RequestClass request_class = RequestClass::kBatch;
    std::vector<gpu::GateToken> tokens;
    int stream = 0;
    std::vector<Step> steps;
    size_t next = 0, seen = 0, in_flight = 0;
    bool issued = false, entered = false, stopped = false, failed = false, fails_at_once = false;
    SimDevice::LowerWork lower_at_entry;
  };
  /// A thread that asks the gate: one standard request thread, or the launcher.
  struct Asker {
    Asker(gpu::Gate& gate, Plant plant) : waiter(gate, plant) {}
    PlantedWaiter waiter;
    bool armed = false, asleep = false, counted_as_waiting = false;
    uint64_t sleeps = 0;
    uint64_t execution = 0;  ///< Of a standard thread.
  };
  enum class Advance : uint8_t { kIssued, kRefused, kWaiting, kEnded };

  std::vector<Step> MakeSteps(const SimModel& model, int64_t rows);
  Execution* Find(uint64_t id);
  void Issue(uint64_t id);
  void IssueLatency(Execution& execution);
  void LaunchLatencyUnits(uint64_t id);
  void OnFirstLatencyUnit(uint64_t id);
  void OnLastLatencyUnit(uint64_t id);
  void ReleaseTokens(Execution& execution);
  Advance AdvanceOne(Execution& execution, Time& retry_at);
  gpu::Grant Ask(const Execution& execution, Step& step);
  void LaunchStep(Execution& execution, const Step& step, bool owed);
  void Return(const Execution& execution, const Step& step, absl::Duration measured);
  void OnStepDone(uint64_t id, size_t step_index, absl::Duration measured);
  void RunStandard(uint64_t id);
  void RunLauncher();
  bool AdvanceAllBatch(bool& refused, Time& retry_at);
  void ReportPending();
  void Sleep(Asker& asker, Time retry_at);
  void Wake(Asker& asker);
  void End(uint64_t id, bool succeeded);

  const Scenario& scenario_;
  EventLoop& loop_;
  Failure& failure_;
  Random random_;
  OnIssue on_issue_;
  OnEnd on_end_;
  CheckedGate gate_;
  SimDevice device_;
  std::map<uint64_t, Execution> executions_;
  std::array<std::vector<int>, kRequestClassCount> free_streams_;
  std::map<int, std::unique_ptr<Asker>> standard_;  ///< By stream.
  Asker launcher_;
  std::vector<uint64_t> active_;  ///< Batch executions at the launcher.
  bool pending_ = false;
  EveryNth skips_gate_{40}, loses_end_{100};
};

}  // namespace sluice::sim
