// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/plan.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "base/moving_average.h"
#include "base/status_macros.h"
#include "gpu/kernels/stamp.h"
#include "model/plan_layout.h"

namespace sluice::model {
namespace {

// The first run of a kernel pays for pages and code that later ones find warm; the second one is measured.
constexpr int kProfileRuns = 2;

class BoundPlan final : public Plan {
 public:
  BoundPlan(Bucket bucket, std::vector<Shape> output_shapes, PlanLayout layout, std::unique_ptr<gpu::Kernel> stamp,
            gpu::Device& device)
      : bucket_(std::move(bucket)),
        output_shapes_(std::move(output_shapes)),
        layout_(std::move(layout)),
        stamp_(std::move(stamp)),
        device_(device),
        predicted_(std::max<size_t>(layout_.launches.size(), 1)) {}

  const Bucket& bucket() const override { return bucket_; }
  const std::vector<Shape>& output_shapes() const override { return output_shapes_; }
  size_t unit_count() const override { return predicted_.size(); }
  size_t slot_bytes() const override { return layout_.input_bytes + layout_.output_bytes + layout_.activation_bytes; }
  absl::Duration predicted_compute() const override {
    absl::Duration sum;
    for (const MovingAverage& unit : predicted_) sum += unit.value();
    return sum;
  }

  absl::StatusOr<std::unique_ptr<gpu::Slot>> MakeSlot(RequestClass request_class) override {
    auto slot = std::make_unique<gpu::Slot>();
    slot->device = &device_;
    SLUICE_RETURN_IF_ERROR(AllocateMemory(*slot));
    BindLaunches(*slot);
    BindUnits(*slot);
    // The first slot measures for all; one made meanwhile by another thread goes without.
    if (!profiled_.exchange(true)) {
      if (absl::Status status = Profile(*slot); !status.ok()) {
        profiled_.store(false);
        return status;
      }
    }
    SLUICE_RETURN_IF_ERROR(gpu::PrepareSlot(*slot, request_class));
    return slot;
  }

 private:
  absl::Status AllocateMemory(gpu::Slot& slot) {
    const bool unified = device_.info().unified_memory;
    const auto at_least_one = [](size_t size_bytes) { return std::max<size_t>(size_bytes, 1); };
    SLUICE_ASSIGN_OR_RETURN(slot.input_memory, device_.AllocatePinned(at_least_one(layout_.input_bytes)));
    SLUICE_ASSIGN_OR_RETURN(slot.output_memory, device_.AllocatePinned(at_least_one(layout_.output_bytes)));
    SLUICE_ASSIGN_OR_RETURN(slot.stamp_memory, device_.AllocatePinned(sizeof(gpu::StampPage)));
    std::memset(slot.stamp_memory.view().data, 0, sizeof(gpu::StampPage));
    const size_t device_bytes = unified ? layout_.activation_bytes : slot_bytes();
    SLUICE_ASSIGN_OR_RETURN(slot.device_memory, device_.AllocateDevice(at_least_one(device_bytes)));
    const auto tensors = [&](const std::vector<SpanPlace>& places, gpu::PinnedSpan pinned) {
      std::vector<gpu::SlotTensor> result;
      for (const SpanPlace& place : places) {
        result.push_back({pinned.subspan(place.offset_bytes, place.size_bytes), Resolve(slot, place)});
      }
      return result;
    };
    slot.inputs = tensors(layout_.inputs, slot.input_memory);
    slot.outputs = tensors(layout_.outputs, slot.output_memory);
    return absl::OkStatus();
  }

  /// The span that `place` is in this slot. Without unified memory the slot's block is inputs, outputs, activations.
  gpu::DeviceSpan Resolve(const gpu::Slot& slot, const SpanPlace& place) const {
    const bool unified = device_.info().unified_memory;
    const gpu::DeviceSpan block = slot.device_memory;
    switch (place.area) {
      case Area::kInput:
        if (unified) return slot.input_memory.view().device_span().subspan(place.offset_bytes, place.size_bytes);
        return block.subspan(place.offset_bytes, place.size_bytes);
      case Area::kOutput:
        if (unified) return slot.output_memory.view().device_span().subspan(place.offset_bytes, place.size_bytes);
        return block.subspan(layout_.input_bytes + place.offset_bytes, place.size_bytes);
      case Area::kActivation: {
        const size_t begin_bytes = unified ? 0 : layout_.input_bytes + layout_.output_bytes;
        return block.subspan(begin_bytes + place.offset_bytes, place.size_bytes);
      }
      case Area::kConstant:
        return place.constant;
    }
    return {};
  }

  void BindLaunches(gpu::Slot& slot) const {
    const gpu::PinnedSpan page = slot.stamp_memory;
    const auto stamp_at = [&](size_t offset_bytes) {
      return page.subspan(offset_bytes, sizeof(uint64_t)).device_span();
    };
    size_t span_count = 2;
    for (const PlannedLaunch& launch : layout_.launches) span_count += launch.spans.size();
    slot.spans.reserve(span_count);  // The launches point into it.
    const auto bind = [&](const gpu::Kernel& kernel, size_t first_span, gpu::DeviceSpan workspace) {
      const std::span<const gpu::DeviceSpan> spans(slot.spans.data() + first_span, slot.spans.size() - first_span);
      slot.launches.push_back({&kernel, {spans, workspace}});
    };
    slot.spans.push_back(stamp_at(offsetof(gpu::StampPage, first_kernel)));
    bind(*stamp_, 0, {});
    for (const PlannedLaunch& launch : layout_.launches) {
      const size_t first_span = slot.spans.size();
      for (const SpanPlace& place : launch.spans) slot.spans.push_back(Resolve(slot, place));
      bind(*launch.kernel, first_span, Resolve(slot, launch.workspace));
    }
    slot.spans.push_back(stamp_at(offsetof(gpu::StampPage, last_kernel)));
    bind(*stamp_, slot.spans.size() - 1, {});
  }

  /// One unit a kernel; the first also has the first stamp, the last the last.
  void BindUnits(gpu::Slot& slot) {
    const size_t unit_count = predicted_.size();
    for (size_t i = 0; i < unit_count; ++i) {
      const size_t first = i == 0 ? 0 : i + 1;
      const size_t end = i + 1 == unit_count ? slot.launches.size() : i + 2;
      slot.units.push_back({first, end - first, &predicted_[i]});
    }
  }

  /// Runs the slot once to warm up and once to measure, on zeros.
  absl::Status Profile(gpu::Slot& slot) {
    SLUICE_ASSIGN_OR_RETURN(const gpu::Stream stream, device_.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(const gpu::TimedEvent start, device_.CreateTimedEvent());
    SLUICE_ASSIGN_OR_RETURN(const gpu::TimedEvent end, device_.CreateTimedEvent());
    std::memset(slot.input_memory.view().data, 0, slot.input_memory.view().size_bytes);
    for (const gpu::SlotTensor& input : slot.inputs) {
      if (input.pinned.size_bytes == 0) continue;
      SLUICE_RETURN_IF_ERROR(device_.CopyToDevice(stream, input.pinned, input.device));
    }
    for (int run = 0; run < kProfileRuns; ++run) {
      for (const gpu::Unit& unit : slot.units) {
        SLUICE_RETURN_IF_ERROR(device_.Record(stream, start.view()));
        for (size_t i = 0; i < unit.launch_count; ++i) {
          const gpu::BoundLaunch& launch = slot.launches[unit.first_launch + i];
          SLUICE_RETURN_IF_ERROR(device_.Launch(stream, *launch.kernel, launch.args));
        }
        SLUICE_RETURN_IF_ERROR(device_.Record(stream, end.view()));
        SLUICE_RETURN_IF_ERROR(device_.Synchronize(end.view()));
        SLUICE_ASSIGN_OR_RETURN(const absl::Duration elapsed, device_.Elapsed(start, end));
        if (run + 1 == kProfileRuns) unit.predicted->Add(std::max(elapsed, absl::Nanoseconds(1)));
      }
    }
    return absl::OkStatus();
  }

  // Constant after construction.
  const Bucket bucket_;
  const std::vector<Shape> output_shapes_;
  const PlanLayout layout_;
  const std::unique_ptr<gpu::Kernel> stamp_;
  gpu::Device& device_;
  // Self-synchronised.
  std::deque<MovingAverage> predicted_;  // One a unit; slots of any thread add to it.
  std::atomic<bool> profiled_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> BuildPlanFromGraph(Graph graph, const Bucket& bucket, gpu::Device& device,
                                                         ConstantPool& pool) {
  std::vector<Shape> output_shapes;
  for (const ValueIndex output : graph.outputs) output_shapes.push_back(*graph.value(output).dims);
  SLUICE_ASSIGN_OR_RETURN(PlanLayout layout, BuildPlanLayout(graph, device, pool));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Kernel> stamp, gpu::PrepareStamp(device));
  return std::make_unique<BoundPlan>(bucket, std::move(output_shapes), std::move(layout), std::move(stamp), device);
}

}  // namespace sluice::model
