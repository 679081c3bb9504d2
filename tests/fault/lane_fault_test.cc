// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A request's way through each lane, with every device call failing in turn: slot, gate, launcher and lane must say so,
// end, and be usable afterwards.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/moving_average.h"
#include "base/status_macros.h"
#include "gpu/gate.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/stamp.h"
#include "gpu/lane.h"
#include "gpu/launcher.h"
#include "gpu/slot.h"
#include "tests/fault/fault_sweep.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

constexpr int64_t kCount = 1031;
constexpr size_t kBytes = kCount * sizeof(float);

/// A plan of two units: stamp and sum = a + b, then result = sum + sum and stamp.
struct Plan {
  std::unique_ptr<Kernel> stamp, add;
  MovingAverage predicted[2] = {MovingAverage(absl::Microseconds(5)), MovingAverage(absl::Microseconds(5))};
};

absl::StatusOr<std::unique_ptr<Plan>> MakePlan(Device& device) {
  auto plan = std::make_unique<Plan>();
  BinaryDescription add;
  add.kind = BinaryKind::kAdd;
  add.a = add.b = {kCount};
  SLUICE_ASSIGN_OR_RETURN(plan->stamp, PrepareStamp(device));
  SLUICE_ASSIGN_OR_RETURN(plan->add, PrepareBinary(device, add));
  return plan;
}

absl::StatusOr<std::unique_ptr<Slot>> MakeSlot(Device& device, Plan& plan, RequestClass request_class) {
  auto slot = std::make_unique<Slot>();
  slot->device = &device;
  SLUICE_ASSIGN_OR_RETURN(slot->input_memory, device.AllocatePinned(2 * kBytes));
  SLUICE_ASSIGN_OR_RETURN(slot->output_memory, device.AllocatePinned(kBytes));
  SLUICE_ASSIGN_OR_RETURN(slot->device_memory, device.AllocateDevice(4 * kBytes));
  SLUICE_ASSIGN_OR_RETURN(slot->stamp_memory, device.AllocatePinned(sizeof(StampPage)));
  const DeviceSpan memory = slot->device_memory;
  const bool unified = device.info().unified_memory;
  const auto tensor = [&](PinnedSpan pinned, size_t index) {
    return SlotTensor{pinned, unified ? pinned.device_span() : memory.subspan(index * kBytes, kBytes)};
  };
  slot->inputs = {tensor(slot->input_memory.view().subspan(0, kBytes), 0),
                  tensor(slot->input_memory.view().subspan(kBytes, kBytes), 1)};
  slot->outputs = {tensor(slot->output_memory, 2)};
  const DeviceSpan sum = memory.subspan(3 * kBytes, kBytes);
  const DeviceSpan stamps = slot->stamp_memory.view().device_span();
  slot->spans = {stamps.subspan(offsetof(StampPage, first_kernel), 8),
                 slot->inputs[0].device,
                 slot->inputs[1].device,
                 sum,
                 sum,
                 sum,
                 slot->outputs[0].device,
                 stamps.subspan(offsetof(StampPage, last_kernel), 8)};
  const std::span<const DeviceSpan> spans = slot->spans;
  slot->launches = {{plan.stamp.get(), {.spans = spans.subspan(0, 1), .workspace = {}}},
                    {plan.add.get(), {.spans = spans.subspan(1, 3), .workspace = {}}},
                    {plan.add.get(), {.spans = spans.subspan(4, 3), .workspace = {}}},
                    {plan.stamp.get(), {.spans = spans.subspan(7, 1), .workspace = {}}}};
  slot->units = {{0, 2, &plan.predicted[0]}, {2, 2, &plan.predicted[1]}};
  SLUICE_RETURN_IF_ERROR(PrepareSlot(*slot, request_class));
  return slot;
}

float* Values(PinnedSpan span) { return reinterpret_cast<float*>(span.data); }

/// One request: fill the inputs, run, check the outputs.
absl::Status Infer(Lane& lane, Gate& gate, const Clock& clock, Slot& slot, float seed) {
  for (int64_t i = 0; i < kCount; ++i) {
    Values(slot.inputs[0].pinned)[i] = seed;
    Values(slot.inputs[1].pinned)[i] = static_cast<float>(i);
    Values(slot.outputs[0].pinned)[i] = -1.0f;
  }
  Execution execution;
  execution.slot = &slot;
  if (lane.request_class() == RequestClass::kLatency) execution.token = gate.Announce(clock.Now(), clock.Now());
  lane.Begin(execution);
  SLUICE_RETURN_IF_ERROR(lane.Finish(execution).status());
  for (int64_t i = 0; i < kCount; ++i) {
    const float expected = 2.0f * (seed + static_cast<float>(i));
    if (Values(slot.outputs[0].pinned)[i] != expected) return absl::UnknownError(absl::StrCat("wrong value at ", i));
  }
  return absl::OkStatus();
}

/// Everything a lane needs is made, used for two requests, and dropped. After a failed request the same slot and lane
/// must serve the next one, unless the device is lost.
absl::Status LaneScenario(FaultyDevice& device, RequestClass request_class) {
  const MonotonicClock clock;
  Gate gate((GateOptions()));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, MakePlan(device));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Slot> slot, MakeSlot(device, *plan, request_class));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, Launcher::Create(device, gate, clock, {}));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Lane> lane,
                          Lane::Create(request_class, device, gate, *launcher, clock, {.latency_streams = 1}));
  const absl::Status first = Infer(*lane, gate, clock, *slot, 1.0f);
  const absl::Status second = Infer(*lane, gate, clock, *slot, 2.0f);
  if (!first.ok() && !device.lost()) {
    EXPECT_OK(second) << "the lane is unusable after: " << first;
  }
  launcher->Stop();
  EXPECT_EQ(gate.latency_on_device(), 0);
  return first.ok() ? second : first;
}

class LaneFaultTest : public ::testing::TestWithParam<std::tuple<RequestClass, HostKind>> {
 protected:
  static absl::Status Run(FaultyDevice& device) { return LaneScenario(device, std::get<0>(GetParam())); }
};

// Goal: a device call that fails anywhere in a request's life ends that request only. Method: the sweep.
TEST_P(LaneFaultTest, EveryCallFails) { SweepFailures(std::get<1>(GetParam()), Run); }

// Goal: a device that is lost anywhere in a request's life ends all requests, with UNAVAILABLE. Method: the sweep.
TEST_P(LaneFaultTest, LostAtEveryCall) { SweepLosses(std::get<1>(GetParam()), Run); }

INSTANTIATE_TEST_SUITE_P(Classes, LaneFaultTest,
                         ::testing::Combine(::testing::ValuesIn(kRequestClasses),
                                            ::testing::Values(HostKind::kUnified, HostKind::kCopiers)),
                         [](const auto& info) {
                           return absl::StrCat(std::string(RequestClassName(std::get<0>(info.param))),
                                               std::get<1>(info.param) == HostKind::kUnified ? "Unified" : "Copiers");
                         });

}  // namespace
}  // namespace sluice::gpu
