// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/moving_average.h"
#include "base/status_macros.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/host/host_device.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/delay.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/host_library.h"
#include "gpu/kernels/stamp.h"
#include "gpu/lane.h"
#include "gpu/launcher.h"
#include "gpu/slot.h"
#include "gpu/timeline.h"
#include "tests/support/faulty_device.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {

/// What a test plan computes: `unit_count` units, each a stamp of its start and a delay, then output = -input.
struct TestPlanOptions {
  size_t unit_count = 3;
  absl::Duration unit_time = absl::Microseconds(100);
  int64_t elements = 256;
};

/// What a transfer does (gpu/kernels/transfer.h), for one tensor on a host device: spans source, destination, stamps.
class CopyKernel final : public host::HostKernel {
 public:
  explicit CopyKernel(const Clock& clock) : HostKernel("copy", 0), clock_(clock) {}
  absl::Status Run(const KernelArgs& args) const override {
    if (fails_.load()) return absl::InternalError("planned");
    auto* const stamps = reinterpret_cast<uint64_t*>(args.spans[2].data);
    std::atomic_ref(stamps[0]).store(Stamp(), std::memory_order_release);
    std::copy_n(args.spans[0].data, args.spans[0].size_bytes, args.spans[1].data);
    std::atomic_ref(stamps[1]).store(Stamp(), std::memory_order_release);
    return absl::OkStatus();
  }
  void Fail() { fails_.store(true); }

 private:
  uint64_t Stamp() const { return static_cast<uint64_t>(clock_.Now().nanoseconds()); }
  const Clock& clock_;
  std::atomic<bool> fails_ = false;
};

/// A plan put together by hand: kernels and predicted times, from which slots are made. Outlives its slots.
class TestPlan {
 public:
  static absl::StatusOr<std::unique_ptr<TestPlan>> Create(Device& device, const TestPlanOptions& options) {
    std::unique_ptr<TestPlan> plan(new TestPlan(device, options));
    SLUICE_ASSIGN_OR_RETURN(plan->stamp_, PrepareStamp(device));
    SLUICE_ASSIGN_OR_RETURN(plan->delay_, PrepareDelay(device, {options.unit_time}));
    UnaryDescription negate;
    negate.kind = UnaryKind::kNeg;
    negate.dims = {options.elements};
    SLUICE_ASSIGN_OR_RETURN(plan->negate_, PrepareUnary(device, negate));
    return plan;
  }

  absl::StatusOr<std::unique_ptr<Slot>> MakeSlot(RequestClass request_class) {
    auto slot = std::make_unique<Slot>();
    slot->device = &device_;
    const size_t tensor_bytes = static_cast<size_t>(options_.elements) * sizeof(float);
    // The stamp page, then one stamp a unit.
    SLUICE_ASSIGN_OR_RETURN(slot->stamp_memory,
                            device_.AllocatePinned(sizeof(StampPage) + options_.unit_count * sizeof(uint64_t)));
    SLUICE_ASSIGN_OR_RETURN(slot->input_memory, device_.AllocatePinned(tensor_bytes));
    SLUICE_ASSIGN_OR_RETURN(slot->output_memory, device_.AllocatePinned(tensor_bytes));
    DeviceSpan input = slot->input_memory.view().device_span();
    DeviceSpan output = slot->output_memory.view().device_span();
    if (!device_.info().unified_memory) {
      SLUICE_ASSIGN_OR_RETURN(slot->device_memory, device_.AllocateDevice(2 * tensor_bytes));
      input = slot->device_memory.view().subspan(0, tensor_bytes);
      output = slot->device_memory.view().subspan(tensor_bytes, tensor_bytes);
    }
    slot->inputs = {{slot->input_memory.view(), input}};
    slot->outputs = {{slot->output_memory.view(), output}};
    Bind(*slot, input, output);
    SLUICE_RETURN_IF_ERROR(PrepareSlot(*slot, request_class));
    return slot;
  }

  /// A latency slot whose graph moves its tensors itself.
  absl::StatusOr<std::unique_ptr<Slot>> MakeSlotThatCopies() {
    auto slot = std::make_unique<Slot>();
    slot->device = &device_;
    slot->graph_copies = true;
    const size_t tensor_bytes = static_cast<size_t>(options_.elements) * sizeof(float);
    SLUICE_ASSIGN_OR_RETURN(slot->stamp_memory, device_.AllocatePinned(sizeof(StampPage)));
    SLUICE_ASSIGN_OR_RETURN(slot->input_memory, device_.AllocatePinned(tensor_bytes));
    SLUICE_ASSIGN_OR_RETURN(slot->output_memory, device_.AllocatePinned(tensor_bytes));
    SLUICE_ASSIGN_OR_RETURN(slot->device_memory, device_.AllocateDevice(2 * tensor_bytes));
    const DeviceSpan input = slot->device_memory.view().subspan(0, tensor_bytes);
    const DeviceSpan output = slot->device_memory.view().subspan(tensor_bytes, tensor_bytes);
    slot->inputs = {{slot->input_memory.view(), input}};
    slot->outputs = {{slot->output_memory.view(), output}};
    const DeviceSpan stamps = slot->stamp_memory.view().device_span();
    const auto pair = [&stamps](size_t first) { return stamps.subspan(first, 2 * sizeof(uint64_t)); };
    slot->spans.reserve(8);
    Launch(*slot, copy_in_, {slot->input_memory.view().device_span(), input, pair(offsetof(StampPage, copy_in_start))});
    for (size_t i = 0; i < options_.unit_count; ++i) Launch(*slot, *delay_, {});
    Launch(*slot, *negate_, {input, output});
    Launch(*slot, copy_out_,
           {output, slot->output_memory.view().device_span(), pair(offsetof(StampPage, last_kernel))});
    SLUICE_RETURN_IF_ERROR(PrepareSlot(*slot, RequestClass::kLatency));
    return slot;
  }
  void FailCopiesOut() { copy_out_.Fail(); }

  const TestPlanOptions& options() const { return options_; }
  MovingAverage& predicted(size_t unit) { return predicted_[unit]; }

 private:
  TestPlan(Device& device, const TestPlanOptions& options)
      : device_(device), options_(options), predicted_(options.unit_count + 1) {}

  /// `slot.spans` has room for them: it must not move.
  static void Launch(Slot& slot, const Kernel& kernel, std::initializer_list<DeviceSpan> spans) {
    const size_t first = slot.spans.size();
    slot.spans.insert(slot.spans.end(), spans);
    BoundLaunch bound;
    bound.kernel = &kernel;
    bound.args.spans = std::span<const DeviceSpan>(slot.spans.data() + first, spans.size());
    slot.launches.push_back(bound);
  }

  void Bind(Slot& slot, DeviceSpan input, DeviceSpan output) {
    const DeviceSpan stamps = slot.stamp_memory.view().device_span();
    slot.spans.reserve(options_.unit_count + 4);
    const auto launch = [&slot](const Kernel& kernel, std::initializer_list<DeviceSpan> spans) {
      Launch(slot, kernel, spans);
    };
    launch(*stamp_, {stamps.subspan(offsetof(StampPage, first_kernel), sizeof(uint64_t))});
    for (size_t i = 0; i < options_.unit_count; ++i) {
      const size_t first = i == 0 ? 0 : slot.launches.size();
      launch(*stamp_, {stamps.subspan(sizeof(StampPage) + i * sizeof(uint64_t), sizeof(uint64_t))});
      launch(*delay_, {});
      slot.units.push_back({first, slot.launches.size() - first, &predicted_[i]});
    }
    const size_t first = slot.launches.size();
    launch(*negate_, {input, output});
    launch(*stamp_, {stamps.subspan(offsetof(StampPage, last_kernel), sizeof(uint64_t))});
    slot.units.push_back({first, slot.launches.size() - first, &predicted_[options_.unit_count]});
  }

  Device& device_;
  const TestPlanOptions options_;
  std::unique_ptr<Kernel> stamp_, delay_, negate_;
  const MonotonicClock clock_{};
  CopyKernel copy_in_{clock_}, copy_out_{clock_};
  std::vector<MovingAverage> predicted_;
};

inline void FillInput(Slot& slot, float first) {
  auto* values = reinterpret_cast<float*>(slot.inputs[0].pinned.data);
  for (size_t i = 0; i < slot.inputs[0].pinned.size_bytes / sizeof(float); ++i) {
    values[i] = first + static_cast<float>(i);
  }
}

/// True when the output is what the plan computes from FillInput(slot, first).
inline bool OutputIsRight(const Slot& slot, float first) {
  const auto* values = reinterpret_cast<const float*>(slot.outputs[0].pinned.data);
  for (size_t i = 0; i < slot.outputs[0].pinned.size_bytes / sizeof(float); ++i) {
    if (values[i] != -(first + static_cast<float>(i))) return false;
  }
  return true;
}

inline void ClearOutput(Slot& slot) {
  std::fill_n(slot.outputs[0].pinned.data, slot.outputs[0].pinned.size_bytes, std::byte{0});
}

/// When each unit began.
inline std::vector<Time> UnitStarts(const Slot& slot) {
  const PinnedSpan memory = slot.stamp_memory.view();
  const auto* stamps = reinterpret_cast<const uint64_t*>(memory.data + sizeof(StampPage));
  std::vector<Time> starts;
  for (size_t i = 0; i < (memory.size_bytes - sizeof(StampPage)) / sizeof(uint64_t); ++i) {
    starts.push_back(slot.device->StampToTime(stamps[i]));
  }
  return starts;
}

/// A host device behind a faulty one (no faults unless planned), a gate, a launcher and the three lanes. The parameter
/// says whether copies are real.
class LaneTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { Build({}, {}); }

  /// Makes everything anew; slots of before must be gone.
  void Build(const GateOptions& gate_options, LauncherOptions launcher_options) {
    lanes_.clear();
    launcher_.reset();
    gate_ = std::make_unique<Gate>(gate_options);
    gate_->SetTimeline(&timeline_);
    gate_->SetLatencyCapable(true);
    launcher_options.timeline = &timeline_;
    HostDeviceOptions options;
    options.copiers = GetParam();
    ASSERT_OK_AND_ASSIGN(auto host, CreateHostDevice(options, clock_, MakeHostKernelLibrary(clock_)));
    inner_ = host.get();
    device_ = std::make_unique<FaultyDevice>(std::move(host));
    ASSERT_OK_AND_ASSIGN(launcher_, Launcher::Create(*device_, *gate_, clock_, launcher_options));
    for (const RequestClass request_class : kRequestClasses) {
      ASSERT_OK_AND_ASSIGN(auto lane,
                           Lane::Create(request_class, *device_, *gate_, *launcher_, clock_,
                                        {.latency_streams = 2, .polling_threads = 1, .timeline = &timeline_}));
      lanes_.push_back(std::move(lane));
    }
  }

  Lane& lane(RequestClass request_class) { return *lanes_[static_cast<size_t>(request_class)]; }

  /// One execution from input to checked output.
  absl::StatusOr<StageTimes> RunOnce(Slot& slot, RequestClass request_class, float first) {
    FillInput(slot, first);
    ClearOutput(slot);
    Execution execution;
    execution.slot = &slot;
    if (request_class == RequestClass::kLatency) execution.token = gate_->Announce(clock_.Now(), clock_.Now());
    lane(request_class).Begin(execution);
    absl::StatusOr<StageTimes> times = lane(request_class).Finish(execution);
    if (times.ok() && !OutputIsRight(slot, first)) return absl::DataLossError("the output is wrong");
    return times;
  }

  void ExpectNothingHeld() {
    EXPECT_EQ(gate_->latency_on_device(), 0);
    for (const Engine engine : {Engine::kCompute, Engine::kHostToDevice, Engine::kDeviceToHost}) {
      EXPECT_EQ(gate_->in_flight_count(engine), 0);
    }
  }

  /// A device that was lost here goes on running behind the faulty one, as a real one would not: waits for that, before
  /// memory goes away under it. Lanes and launcher are gone afterwards.
  void DrainInnerDevice() {
    lanes_.clear();
    launcher_.reset();
    ASSERT_OK_AND_ASSIGN(const StreamRef stream, inner_->ThreadStream());
    ASSERT_OK(inner_->Synchronize(stream));
  }

  /// Spins until `condition` holds: for what another thread does soon. The test's own limit ends a wait in vain.
  static void Await(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::yield();
  }

  uint64_t UnitsMeasured() const { return launcher_->counters().engines[0].count; }

  const MonotonicClock clock_{};
  Timeline timeline_{4096, clock_};  ///< Off unless a test starts it.
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<FaultyDevice> device_;
  Device* inner_ = nullptr;
  std::unique_ptr<Launcher> launcher_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace sluice::gpu
