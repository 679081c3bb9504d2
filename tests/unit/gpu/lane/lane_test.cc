// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "tests/unit/gpu/lane/lane_fixture.h"

namespace sluice::gpu {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, LaneTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Copies" : "Unified"; });

constexpr int64_t kChunksAndAHalf = (3 << 20) / 8;  // 1.5 chunks of floats

TEST_P(LaneTest, EveryClassComputes) {
  // Goal: a slot filled, begun and finished has the right outputs and plausible
  // stage times, again and again. Method: each lane runs a plan whose tensors
  // are longer than a chunk.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.elements = kChunksAndAHalf}));
  for (const RequestClass request_class : kRequestClasses) {
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
    EXPECT_EQ(static_cast<bool>(slot->graph), request_class == RequestClass::kLatency);
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK_AND_ASSIGN(const StageTimes times, RunOnce(*slot, request_class, static_cast<float>(i)));
      EXPECT_GE(times.compute, 3 * absl::Microseconds(100)) << "three units of 100 us lie between the stamps";
      EXPECT_GE(times.gpu_wait, absl::ZeroDuration());
      EXPECT_GE(times.h2d, absl::ZeroDuration());
      EXPECT_GE(times.d2h, absl::ZeroDuration());
    }
    ExpectNothingHeld();
  }
}

TEST_P(LaneTest, PrioritiesAreReadBack) {
  // Goal: the latency lane's streams are strictly above the others. Method:
  // read all of them back.
  ASSERT_OK_AND_ASSIGN(const std::vector<int> latency, lane(RequestClass::kLatency).ReadPriorities());
  ASSERT_OK_AND_ASSIGN(const std::vector<int> standard, lane(RequestClass::kStandard).ReadPriorities());
  ASSERT_OK_AND_ASSIGN(const std::vector<int> batch, lane(RequestClass::kBatch).ReadPriorities());
  EXPECT_EQ(latency.size(), 2u);
  EXPECT_EQ(standard.size(), 1u);
  EXPECT_EQ(batch.size(), 2u);
  for (const int high : latency) {
    for (const int other : standard) EXPECT_LT(high, other);
    for (const int other : batch) EXPECT_LT(high, other);
  }
}

TEST_P(LaneTest, UnitsAreMeasuredAndPredicted) {
  // Goal: predictions come from what was measured, for units and chunks of
  // every execution. Method: run standard and batch without latency work; every
  // unit has been measured then.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.elements = kChunksAndAHalf}));
  for (const RequestClass request_class : {RequestClass::kStandard, RequestClass::kBatch}) {
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
    ASSERT_OK(RunOnce(*slot, request_class, 1).status());
  }
  for (size_t unit = 0; unit <= plan->options().unit_count; ++unit) {
    EXPECT_GT(plan->predicted(unit).value(), absl::ZeroDuration());
  }
  const LauncherCounters counters = launcher_->counters();
  EXPECT_EQ(counters.executions, 1u);
  EXPECT_EQ(counters.engines[0].count, 4u);
  EXPECT_EQ(counters.engines[1].count, GetParam() ? 2u : 0u);
  EXPECT_EQ(counters.engines[2].count, GetParam() ? 2u : 0u);
  EXPECT_LE(counters.engines[0].least, counters.engines[0].average);
  EXPECT_LE(counters.engines[0].average, counters.engines[0].most);
}

TEST_P(LaneTest, LatencyWorkOvertakesBatchWork) {
  // Goal: a latency request waits for at most one batch unit, and no batch unit
  // starts among its kernels. Method: latency requests back to back while a
  // batch runs; every unit and every latency execution is stamped by the
  // device.
  constexpr size_t kUnits = 60;
  ASSERT_OK_AND_ASSIGN(
      auto batch_plan,
      TestPlan::Create(*device_, {.unit_count = kUnits, .unit_time = absl::Microseconds(500), .elements = 256}));
  ASSERT_OK_AND_ASSIGN(auto latency_plan, TestPlan::Create(*device_, {.unit_count = 5, .elements = 256}));
  for (size_t unit = 0; unit <= kUnits; ++unit) batch_plan->predicted(unit).Add(absl::Microseconds(500));
  ASSERT_OK_AND_ASSIGN(auto batch_slot, batch_plan->MakeSlot(RequestClass::kBatch));
  ASSERT_OK_AND_ASSIGN(auto latency_slot, latency_plan->MakeSlot(RequestClass::kLatency));
  FillInput(*batch_slot, 7);
  Execution batch;
  batch.slot = batch_slot.get();
  lane(RequestClass::kBatch).Begin(batch);
  struct Seen {
    Time entered, first_kernel, last_kernel;
  };
  std::vector<Seen> seen;
  for (int i = 0; i < 20; ++i) {
    // At least two units between requests, so that the batch is running when
    // each comes.
    const uint64_t before = gate_->counters().granted;
    Await([&] { return gate_->counters().granted >= std::min<uint64_t>(before + 2, kUnits); });
    FillInput(*latency_slot, 3);
    Execution execution;
    execution.slot = latency_slot.get();
    execution.token = gate_->Announce(clock_.Now(), clock_.Now());
    // Entered here, so that the test does not depend on this thread getting to
    // Begin before the token lapses.
    gate_->EnterDevice(execution.token);
    const Time entered = clock_.Now();
    lane(RequestClass::kLatency).Begin(execution);
    EXPECT_EQ(gate_->latency_on_device(), 1) << "entering again counts once";
    ASSERT_OK(lane(RequestClass::kLatency).Finish(execution).status());
    EXPECT_TRUE(OutputIsRight(*latency_slot, 3));
    seen.push_back({entered, device_->StampToTime(latency_slot->stamps().first_kernel),
                    device_->StampToTime(latency_slot->stamps().last_kernel)});
  }
  ASSERT_OK(lane(RequestClass::kBatch).Finish(batch).status());
  EXPECT_TRUE(OutputIsRight(*batch_slot, 7));
  const std::vector<Time> starts = UnitStarts(*batch_slot);
  int while_batch_ran = 0;
  for (const Seen& request : seen) {
    if (request.entered > starts.front() && request.entered < starts.back()) ++while_batch_ran;
    int waited_for = 0;
    int among_kernels = 0;
    for (const Time start : starts) {
      waited_for += start > request.entered && start < request.first_kernel ? 1 : 0;
      among_kernels += start > request.first_kernel && start < request.last_kernel ? 1 : 0;
    }
    EXPECT_LE(waited_for, 1);
    EXPECT_EQ(among_kernels, 0);
  }
  EXPECT_GE(while_batch_ran, 5) << "the batch was over too early to show anything";
  ExpectNothingHeld();
}

TEST_P(LaneTest, StandardAndBatchWaitForAClosedGate) {
  // Goal: neither starts a unit while a latency request is on the device, both
  // complete after it. Method: enter by hand, begin both, see them refused,
  // compare the stamps with the time of the release.
  GateOptions options;
  options.batch_min_share = 0;
  Build(options, {});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto standard_slot, plan->MakeSlot(RequestClass::kStandard));
  ASSERT_OK_AND_ASSIGN(auto batch_slot, plan->MakeSlot(RequestClass::kBatch));
  const GateToken token = gate_->Announce(clock_.Now(), clock_.Now());
  gate_->EnterDevice(token);
  Time released;
  {
    Execution batch;
    batch.slot = batch_slot.get();
    lane(RequestClass::kBatch).Begin(batch);
    Await([&] { return gate_->counters().refused >= 2; });
    // Read before the thread starts: it asks twice and then sleeps until the release.
    const uint64_t refused = gate_->counters().refused;
    absl::Status standard_status;
    Thread standard("standard",
                    [&] { standard_status = RunOnce(*standard_slot, RequestClass::kStandard, 5).status(); });
    Await([&] { return gate_->counters().refused >= refused + 2; });
    EXPECT_EQ(gate_->in_flight_count(Engine::kCompute), 0);
    released = clock_.Now();
    gate_->Release(token, true);
    standard.Join();
    EXPECT_OK(standard_status);
    EXPECT_OK(lane(RequestClass::kBatch).Finish(batch).status());
  }
  EXPECT_GE(UnitStarts(*standard_slot).front(), released);
  ExpectNothingHeld();
}

TEST_P(LaneTest, AStoppedStandardExecutionEndsAtTheGate) {
  // Goal: the stop flag is seen while the gate is closed. Method: closed gate,
  // stop from another thread.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kStandard));
  gate_->EnterDevice({});
  std::atomic<bool> stop = false;
  Execution execution;
  execution.slot = slot.get();
  execution.stop = &stop;
  Thread stopper("stopper", [&] {
    Await([&] { return gate_->counters().refused >= 1; });
    stop = true;
  });
  lane(RequestClass::kStandard).Begin(execution);
  EXPECT_THAT(lane(RequestClass::kStandard).Finish(execution).status(), StatusIs(absl::StatusCode::kCancelled));
  gate_->Release({}, true);
  EXPECT_OK(RunOnce(*slot, RequestClass::kStandard, 1).status());
  ExpectNothingHeld();
}

TEST_P(LaneTest, ManyThreadsOfEveryClass) {
  // Goal: lanes are safe from any number of request threads, and everything is
  // given back. Method: two threads a class, each with a slot of its own, one
  // plan.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_time = absl::Microseconds(20)}));
  std::vector<std::unique_ptr<Slot>> slots;
  for (const RequestClass request_class : kRequestClasses) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
      slots.push_back(std::move(slot));
    }
  }
  std::vector<absl::Status> statuses(slots.size());
  {
    std::vector<Thread> threads;
    for (size_t i = 0; i < slots.size(); ++i) {
      threads.emplace_back("request", [&, i] {
        for (int round = 0; round < 40; ++round) {
          statuses[i].Update(RunOnce(*slots[i], kRequestClasses[i / 2], static_cast<float>(round)).status());
        }
      });
    }
  }
  for (const absl::Status& status : statuses) EXPECT_OK(status);
  ExpectNothingHeld();
}

TEST_P(LaneTest, APollingThreadSeesTheEndByItsStamp) {
  // Goal: where the graph moves its outputs itself, the end is read from its stamp of this execution, not of the one
  // before, and the driver is not asked again; an error that keeps the stamp away is still heard of. Method: executions
  // on one slot, each checked; then one whose graph fails before its end.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 2, .unit_time = absl::Microseconds(200)}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlotThatCopies());
  for (int i = 1; i <= 20; ++i) {
    FillInput(*slot, static_cast<float>(i));
    ClearOutput(*slot);
    Execution execution;
    execution.slot = slot.get();
    execution.token = gate_->Announce(clock_.Now(), clock_.Now());
    lane(RequestClass::kLatency).Begin(execution);
    ASSERT_OK_AND_ASSIGN(const StageTimes times, lane(RequestClass::kLatency).Finish(execution));
    EXPECT_TRUE(execution.seen_over);
    EXPECT_TRUE(OutputIsRight(*slot, static_cast<float>(i)));
    EXPECT_GE(times.compute, absl::Microseconds(400));
    ExpectNothingHeld();
  }
  Execution lost;
  lost.slot = slot.get();
  lost.token = gate_->Announce(clock_.Now(), clock_.Now());
  plan->FailCopiesOut();
  lane(RequestClass::kLatency).Begin(lost);
  EXPECT_FALSE(lane(RequestClass::kLatency).Finish(lost).ok());
  EXPECT_FALSE(lost.seen_over);
  ExpectNothingHeld();
}

TEST_P(LaneTest, AnErrorOfAnyCallEndsOneExecution) {
  // Goal: whatever device call fails, Finish returns after everything launched
  // is over, with that error or a right output; nothing stays held at the gate;
  // the next execution works. Method: fail every call of the scenario in turn.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 2, .unit_time = absl::Microseconds(5)}));
  for (const RequestClass request_class : kRequestClasses) {
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
    ASSERT_OK(RunOnce(*slot, request_class, 1).status());
    int failed = 0;
    for (int k = 1;; ++k) {
      SCOPED_TRACE(testing::Message() << RequestClassName(request_class) << ", call " << k);
      device_->FailCall(k, absl::InternalError("planned"));
      const absl::Status status = RunOnce(*slot, request_class, 2).status();
      const bool happened = device_->fault_happened();
      device_->ClearFaults();
      ExpectNothingHeld();
      if (!happened) {
        EXPECT_OK(status);
        break;
      }
      if (!status.ok()) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
        ++failed;
      }
      ASSERT_OK(RunOnce(*slot, request_class, 3).status()) << "after a failure";
    }
    EXPECT_GT(failed, 10) << "too few calls failed to show anything";
  }
}

TEST_P(LaneTest, ALostDeviceEndsEveryExecution) {
  // Goal: no class hangs when the device is lost at any call, and the gate is
  // left open. Method: lose it at each of the first calls of an execution, on a
  // new device each time.
  for (const RequestClass request_class : kRequestClasses) {
    for (int k = 1; k <= 25; ++k) {
      SCOPED_TRACE(testing::Message() << RequestClassName(request_class) << ", call " << k);
      {
        ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 2}));
        ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(request_class));
        device_->LoseAtCall(k);
        const absl::Status status = RunOnce(*slot, request_class, 1).status();
        EXPECT_EQ(status.ok(), !device_->lost());
        ExpectNothingHeld();
        DrainInnerDevice();
      }
      Build({}, {});
    }
  }
}

}  // namespace
}  // namespace sluice::gpu
