// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "tests/sim/device_side.h"
#include "tests/sim/event_loop.h"
#include "tests/sim/failure.h"
#include "tests/sim/planted.h"
#include "tests/sim/queue_checker.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"

namespace sluice::sim {

/// Counted where things happen, as the server's metrics are; the ledger checks them.
struct ClassTotals {
  uint64_t submitted = 0, refused = 0, completed = 0, expired = 0, cancelled = 0, failed = 0;
  uint64_t completed_in_time = 0;  ///< While requests arrive.
};

/// One run of one scenario, from the first arrival until nothing is left to happen.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario);

  /// False: failure() says what was wrong first.
  bool Run();
  const std::string& failure() const { return failure_.text(); }
  const ClassTotals& totals(RequestClass request_class) const { return lane(request_class).totals; }
  const gpu::GateCounters& gate_counters() { return device_side_.gate().counted(); }
  absl::Duration duration() const { return loop_.now() - start_; }
  /// What requests that completed in time take alone, as a part of the time for which requests arrived; 0 where that
  /// has no end.
  double goodput() const;

 private:
  enum class Outcome : uint8_t { kNone, kRefused, kCompleted, kExpired, kCancelled, kFailed };
  struct Lane {
    Lane(const ClassScenario& made_in, RequestClass request_class_in, Plant plant, Failure& failure, Random random_in)
        : made(made_in),
          request_class(request_class_in),
          core(made_in.options, plant),
          checker(made_in.options, failure),
          random(random_in) {}
    const ClassScenario& made;
    const RequestClass request_class;
    PlantedCore core;
    QueueChecker checker;
    Random random;
    int busy_threads = 0;
    Time pick_at = Time::Infinite(), expire_at = Time::Infinite(), last_expiry;
    ClassTotals totals;
    std::vector<absl::Duration> trace;
    size_t trace_next = 0;
  };
  struct Request {
    RequestClass request_class = RequestClass::kBatch;
    Outcome outcome = Outcome::kNone;
    gpu::GateToken token;
    uint64_t execution = 0;  ///< While it executes.
    Time arrival, deadline = Time::Infinite();
  };
  struct Running {
    scheduler::Pick pick;
    RequestClass request_class = RequestClass::kBatch;
    Time started;
  };

  Lane& lane(RequestClass request_class) { return *lanes_[static_cast<size_t>(request_class)]; }
  const Lane& lane(RequestClass request_class) const { return *lanes_[static_cast<size_t>(request_class)]; }
  Request& request(RequestId id) { return requests_[id.value()]; }
  void ScheduleFaults();
  void ScheduleArrivals(Lane& lane);
  bool MayArrive() const;
  void Arrive(Lane& lane);
  void Submit(Lane& lane, const scheduler::QueuedRequest& facts);
  scheduler::QueuedRequest MakeRequest(Lane& lane);
  void ReturnClient(Lane& lane);
  void CheckAnswerTime(RequestId id);
  void Finish(RequestId id, Outcome outcome);
  void TryStart(Lane& lane);
  void Start(Lane& lane, const scheduler::Pick& pick);
  void OnEnd(uint64_t execution, bool succeeded);
  void ScheduleExpiry(Lane& lane);
  void RunExpiry(Lane& lane);
  void Cancel(Lane& lane, RequestId id);
  bool IsWanted(const Running& running) const;
  void CheckIssued(uint64_t execution);
  void StopIfUnwanted(RequestId id);
  void LoseDevice();
  void Drain();
  void RemoveModel();
  void CheckComputedShare();
  void CheckAtEnd();

  const Scenario scenario_;
  EventLoop loop_;
  const Time start_;
  Failure failure_;
  Random random_;
  DeviceSide device_side_;
  std::array<std::unique_ptr<Lane>, kRequestClassCount> lanes_;
  std::deque<Request> requests_;  ///< By id; the first is none.
  std::map<uint64_t, Running> running_;
  uint64_t last_execution_ = 0;
  std::deque<absl::Duration> computed_by_batch_;  ///< Every 50 ms.
  Time last_jump_;
  bool lost_ = false;
};

}  // namespace sluice::sim
