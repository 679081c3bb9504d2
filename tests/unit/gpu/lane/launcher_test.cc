// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/launcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "tests/unit/gpu/lane/lane_fixture.h"

namespace sluice::gpu {
namespace {

class LauncherTest : public LaneTest {};

INSTANTIATE_TEST_SUITE_P(Memory, LauncherTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Copies" : "Unified"; });

// Long enough that a test acts while it runs: a quarter of a second.
constexpr size_t kLongUnitCount = 250;
constexpr absl::Duration kLongUnitTime = absl::Milliseconds(1);

TEST_P(LauncherTest, ACancelledBatchStopsBetweenUnits) {
  // Goal: after the stop flag no further unit starts; what runs is awaited.
  // Method: stop after the first unit of 250; the stamps of those that never
  // ran stay zero.
  ASSERT_OK_AND_ASSIGN(auto plan,
                       TestPlan::Create(*device_, {.unit_count = kLongUnitCount, .unit_time = kLongUnitTime}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
  std::fill_n(slot->stamp_memory.view().data, slot->stamp_memory.view().size_bytes, std::byte{0});
  std::atomic<bool> stop = false;
  Execution execution;
  execution.slot = slot.get();
  execution.stop = &stop;
  lane(RequestClass::kBatch).Begin(execution);
  Await([&] { return UnitsMeasured() >= 1; });
  stop = true;
  EXPECT_THAT(lane(RequestClass::kBatch).Finish(execution).status(), StatusIs(absl::StatusCode::kCancelled));
  ExpectNothingHeld();
  const std::vector<Time> starts = UnitStarts(*slot);
  EXPECT_EQ(starts.back(), device_->StampToTime(0)) << "the last unit ran";
  ASSERT_OK_AND_ASSIGN(auto short_plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto next, short_plan->MakeSlot(RequestClass::kBatch));
  EXPECT_OK(RunOnce(*next, RequestClass::kBatch, 1).status());
}

TEST_P(LauncherTest, ACancelledBatchStopsAtAClosedGate) {
  // Goal: the flag is seen while the gate is closed and nothing runs. Method:
  // no floor, closed gate, stop.
  GateOptions options;
  options.batch_min_share = 0;
  Build(options, {});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
  gate_->EnterDevice({});
  std::atomic<bool> stop = false;
  Execution execution;
  execution.slot = slot.get();
  execution.stop = &stop;
  lane(RequestClass::kBatch).Begin(execution);
  Await([&] { return launcher_->counters().yields >= 1; });
  stop = true;
  EXPECT_THAT(lane(RequestClass::kBatch).Finish(execution).status(), StatusIs(absl::StatusCode::kCancelled));
  gate_->Release({}, true);
  ExpectNothingHeld();
}

TEST_P(LauncherTest, AnErrorEndsOneExecutionAndNotTheLauncher) {
  // Goal: a device error in one unit is that execution's status; others in
  // flight and later ones are fine. Method: fail the launch in the middle of an
  // execution while another runs beside it.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 6}));
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<Execution> executions(2);
  for (Execution& execution : executions) {
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
    slots.push_back(std::move(slot));
    FillInput(*slots.back(), 4);
    execution.slot = slots.back().get();
  }
  device_->FailCall(7, absl::InternalError("planned"), DeviceMethod::kLaunch);
  int failed = 0;
  for (Execution& execution : executions) lane(RequestClass::kBatch).Begin(execution);
  for (Execution& execution : executions) {
    const absl::Status status = lane(RequestClass::kBatch).Finish(execution).status();
    if (status.ok()) {
      EXPECT_TRUE(OutputIsRight(*execution.slot, 4));
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
      ++failed;
    }
  }
  EXPECT_EQ(failed, 1);
  ExpectNothingHeld();
  for (const auto& slot : slots) EXPECT_OK(RunOnce(*slot, RequestClass::kBatch, 9).status());
}

TEST_P(LauncherTest, StopFinishesWhatRunsAndRefusesTheRest) {
  // Goal: after Stop what had a stream has the right output, what waited for
  // one and what comes later is UNAVAILABLE. Method: one stream, two
  // executions, Stop while the first runs.
  Build({}, {.stream_count = 1});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 30, .unit_time = kLongUnitTime}));
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<Execution> executions(3);
  for (Execution& execution : executions) {
    ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
    slots.push_back(std::move(slot));
    FillInput(*slots.back(), 4);
    execution.slot = slots.back().get();
  }
  lane(RequestClass::kBatch).Begin(executions[0]);
  lane(RequestClass::kBatch).Begin(executions[1]);
  Await([&] { return UnitsMeasured() >= 1; });
  launcher_->Stop();
  launcher_->Stop();
  lane(RequestClass::kBatch).Begin(executions[2]);
  EXPECT_OK(lane(RequestClass::kBatch).Finish(executions[0]).status());
  EXPECT_TRUE(OutputIsRight(*slots[0], 4));
  for (const size_t i : {1, 2}) {
    EXPECT_THAT(lane(RequestClass::kBatch).Finish(executions[i]).status(), StatusIs(absl::StatusCode::kUnavailable));
  }
  ExpectNothingHeld();
}

TEST_P(LauncherTest, StopDoesNotWaitForAClosedGate) {
  // Goal: a gate that never opens cannot hold up the end. Method: no floor, a
  // token that is never released, Stop.
  GateOptions options;
  options.batch_min_share = 0;
  Build(options, {});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
  gate_->EnterDevice({});
  Execution execution;
  execution.slot = slot.get();
  lane(RequestClass::kBatch).Begin(execution);
  Await([&] { return launcher_->counters().yields >= 1; });
  launcher_->Stop();
  EXPECT_THAT(lane(RequestClass::kBatch).Finish(execution).status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(LauncherTest, TheFloorLetsBatchThroughAClosedGate) {
  // Goal: with a share above 0 batch completes although latency work never
  // ends. Method: a token that stays on the device, a high share and a short
  // wait; the grants are counted as owed.
  GateOptions options;
  options.batch_min_share = 0.5;
  options.max_owed_wait = absl::Milliseconds(1);
  Build(options, {});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
  gate_->EnterDevice({});
  EXPECT_OK(RunOnce(*slot, RequestClass::kBatch, 1).status());
  EXPECT_GE(gate_->counters().owed_grants, 4u);
  EXPECT_EQ(UnitsMeasured(), 0u) << "units beside latency work say nothing about their own time";
  gate_->Release({}, true);
}

TEST_P(LauncherTest, MoreExecutionsThanStreams) {
  // Goal: any number of executions share few streams, in both ways of waiting.
  // Method: six threads, two streams.
  for (const bool spin : {false, true}) {
    Build({}, {.stream_count = 2, .spin = spin});
    ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_time = absl::Microseconds(20)}));
    std::vector<std::unique_ptr<Slot>> slots(6);
    for (auto& slot : slots) {
      ASSERT_OK_AND_ASSIGN(slot, plan->MakeSlot(RequestClass::kBatch));
    }
    std::vector<absl::Status> statuses(slots.size());
    {
      std::vector<Thread> threads;
      for (size_t i = 0; i < slots.size(); ++i) {
        threads.emplace_back("request", [&, i] {
          for (int round = 0; round < 20; ++round) {
            statuses[i].Update(RunOnce(*slots[i], RequestClass::kBatch, static_cast<float>(round)).status());
          }
        });
      }
    }
    for (const absl::Status& status : statuses) EXPECT_OK(status);
    EXPECT_EQ(launcher_->counters().executions, 120u);
    ExpectNothingHeld();
  }
}

TEST_P(LauncherTest, ExecutionsTakeTurns) {
  // Goal: units of two executions alternate, so that they fill each other's pauses. Method: both wait at a closed gate;
  // once it opens the second one's first unit comes before the first one's second.
  GateOptions options;
  options.batch_min_share = 0;
  Build(options, {});
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 4}));
  ASSERT_OK_AND_ASSIGN(auto first_slot, plan->MakeSlot(RequestClass::kBatch));
  ASSERT_OK_AND_ASSIGN(auto second_slot, plan->MakeSlot(RequestClass::kBatch));
  gate_->EnterDevice({});
  Execution first, second;
  first.slot = first_slot.get();
  second.slot = second_slot.get();
  lane(RequestClass::kBatch).Begin(first);
  lane(RequestClass::kBatch).Begin(second);
  // The second one is active, too, once the launcher has counted it.
  Await([&] { return launcher_->counters().executions == 2; });
  gate_->Release({}, true);
  EXPECT_OK(lane(RequestClass::kBatch).Finish(first).status());
  EXPECT_OK(lane(RequestClass::kBatch).Finish(second).status());
  EXPECT_LT(UnitStarts(*second_slot)[0], UnitStarts(*first_slot)[2]);
  EXPECT_LT(UnitStarts(*first_slot)[1], UnitStarts(*second_slot)[3]);
}

TEST_P(LauncherTest, AUnitOnAnIdleDeviceRaisesNoPrediction) {
  // Goal: what a unit takes is learnt from those that followed another, since the first one is also waited for while it
  // is launched; else a late start is learnt and the next one starts late. Method: units that take a hundred times what
  // is predicted: the first of each execution stays as it is, the others are corrected in the end.
  ASSERT_OK_AND_ASSIGN(auto plan, TestPlan::Create(*device_, {.unit_count = 3}));
  ASSERT_OK_AND_ASSIGN(auto slot, plan->MakeSlot(RequestClass::kBatch));
  for (size_t unit = 0; unit <= 3; ++unit) plan->predicted(unit).Add(absl::Microseconds(1));
  // Those that end between two looks are taken for one run with the first, so it may take some executions.
  for (int run = 0; run < 1000 && plan->predicted(2).value() <= absl::Microseconds(1); ++run) {
    ASSERT_OK(RunOnce(*slot, RequestClass::kBatch, 1).status());
    ASSERT_EQ(plan->predicted(0).value(), absl::Microseconds(1));
  }
  EXPECT_GT(plan->predicted(2).value(), absl::Microseconds(1));
}

TEST_P(LauncherTest, StreamCountIsChecked) {
  // Goal: a bad option is an error. Method: 0 and too many streams.
  for (const int count : {0, 1000}) {
    EXPECT_THAT(Launcher::Create(*device_, *gate_, clock_, {.stream_count = count}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace sluice::gpu
