// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

#include "base/moving_average.h"
#include "base/status_macros.h"
#include "gpu/kernels/fill.h"
#include "gpu/kernels/stamp.h"
#include "gpu/kernels/transfer.h"
#include "model/description.h"
#include "model/plan_layout.h"
#include "model/plan_profile.h"
#include "model/print.h"

namespace sluice::model {
namespace {

// Each transfer kernel counts its blocks in a word of its own.
constexpr size_t kCounterBytes = 256;
constexpr size_t kCountersBytes = 2 * kCounterBytes;

/// Kernels that move a latency slot's inputs and outputs inside its graph. Both are there, or none.
struct TransferKernels {
  std::unique_ptr<gpu::Kernel> in;
  std::unique_ptr<gpu::Kernel> out;
};

absl::StatusOr<TransferKernels> PrepareTransfers(const PlanLayout& layout, gpu::Device& device, size_t max_bytes) {
  TransferKernels kernels;
  if (device.info().unified_memory || layout.input_bytes > max_bytes || layout.output_bytes > max_bytes ||
      std::max(layout.inputs.size(), layout.outputs.size()) > gpu::kMaxTransferTensors) {
    return kernels;
  }
  const auto prepare = [&](const std::vector<SpanPlace>& places) {
    gpu::TransferDescription description;
    for (const SpanPlace& place : places) description.sizes_bytes.push_back(place.size_bytes);
    return gpu::PrepareTransfer(device, description);
  };
  absl::StatusOr<std::unique_ptr<gpu::Kernel>> in = prepare(layout.inputs);
  if (absl::IsUnimplemented(in.status())) return kernels;  // The backend has copies only.
  SLUICE_RETURN_IF_ERROR(in.status());
  kernels.in = *std::move(in);
  SLUICE_ASSIGN_OR_RETURN(kernels.out, prepare(layout.outputs));
  return kernels;
}

class BoundPlan final : public Plan {
 public:
  BoundPlan(Bucket bucket, GraphDescription graph, std::vector<Shape> output_shapes, PlanLayout layout,
            std::unique_ptr<gpu::Kernel> stamp, TransferKernels transfers, gpu::Device& device,
            const PlanOptions& options)
      : bucket_(std::move(bucket)),
        output_shapes_(std::move(output_shapes)),
        layout_(std::move(layout)),
        stamp_(std::move(stamp)),
        transfers_(std::move(transfers)),
        device_(device),
        options_(options),
        graph_(std::move(graph)) {}

  /// Measures the kernels in a slot of its own and cuts them into units. Once, before any other method.
  absl::Status Profile() {
    gpu::Slot slot;
    slot.device = &device_;
    SLUICE_RETURN_IF_ERROR(AllocateMemory(slot));
    BindLaunches(slot);
    SLUICE_ASSIGN_OR_RETURN(const PlanProfile profile, ProfileSlot(slot));
    profile_ = profile.whole;
    launch_times_ = profile.launches;
    unit_firsts_ = CutUnits(device_.info().backend, profile.launches, options_.unit_target);
    for (size_t i = 0; i < unit_firsts_.size(); ++i) {
      predicted_.emplace_back(ProfiledUnit(i));
    }
    return absl::OkStatus();
  }

  const Bucket& bucket() const override { return bucket_; }
  const std::vector<Shape>& output_shapes() const override { return output_shapes_; }
  size_t unit_count() const override { return unit_firsts_.size(); }
  size_t slot_bytes() const override {
    return layout_.input_bytes + layout_.output_bytes + layout_.activation_bytes + CountersBytes();
  }
  SlotMemory slot_memory() const override {
    const size_t device_bytes = device_.info().unified_memory ? layout_.activation_bytes : slot_bytes();
    return {
        .device_bytes = AtLeastOne(device_bytes),
        .pinned_bytes = AtLeastOne(layout_.input_bytes) + AtLeastOne(layout_.output_bytes) + sizeof(gpu::StampPage)};
  }
  absl::Duration predicted_compute() const override {
    absl::Duration sum;
    for (const MovingAverage& unit : predicted_) sum += unit.value();
    return sum;
  }
  absl::Duration longest_unit() const override {
    absl::Duration longest;
    for (const MovingAverage& unit : predicted_) longest = std::max(longest, unit.value());
    return longest;
  }
  std::string longest_unit_kernel() const override {
    size_t longest = 0;
    for (size_t i = 1; i < predicted_.size(); ++i) {
      if (predicted_[i].value() > predicted_[longest].value()) longest = i;
    }
    const auto begin = launch_times_.begin() + static_cast<ptrdiff_t>(unit_firsts_[longest]);
    const auto end = launch_times_.begin() + static_cast<ptrdiff_t>(UnitEnd(longest));
    return LaunchName(static_cast<size_t>(std::max_element(begin, end) - launch_times_.begin()));
  }
  absl::Duration profile() const override { return profile_; }

  PlanDescription Describe() const override {
    PlanDescription result;
    result.whole = profile_;
    result.launches.reserve(launch_times_.size());
    for (size_t i = 0; i < launch_times_.size(); ++i) result.launches.push_back({LaunchName(i), launch_times_[i]});
    for (size_t i = 0; i < unit_firsts_.size(); ++i) {
      result.units.push_back({.first_launch = unit_firsts_[i],
                              .launch_count = UnitEnd(i) - unit_firsts_[i],
                              .profiled = ProfiledUnit(i),
                              .predicted = predicted_[i].value(),
                              .captured = gpu::UnitsAreGraphs(device_)});
    }
    result.input_bytes = layout_.input_bytes;
    result.output_bytes = layout_.output_bytes;
    result.activation_bytes = layout_.activation_bytes;
    for (const PlannedLaunch& launch : layout_.launches) {
      result.workspace_bytes = std::max(result.workspace_bytes, launch.workspace.size_bytes);
    }
    return result;
  }
  GraphDescription TakeGraph() override { return std::exchange(graph_, {}); }

  absl::StatusOr<std::unique_ptr<gpu::Slot>> MakeSlot(RequestClass request_class) override {
    auto slot = std::make_unique<gpu::Slot>();
    slot->device = &device_;
    SLUICE_RETURN_IF_ERROR(AllocateMemory(*slot));
    const bool latency = request_class == RequestClass::kLatency;
    slot->graph_copies = latency && transfers_.in != nullptr;
    if (slot->graph_copies) SLUICE_RETURN_IF_ERROR(ZeroCounters(*slot));
    BindLaunches(*slot);
    if (!latency) BindUnits(*slot);
    const gpu::WaitMode wait = options_.waits[static_cast<size_t>(request_class)];
    SLUICE_RETURN_IF_ERROR(gpu::PrepareSlot(*slot, request_class, wait));
    return slot;
  }

 private:
  size_t CountersBytes() const { return transfers_.in != nullptr ? kCountersBytes : 0; }

  /// The launch after the last one of a unit.
  size_t UnitEnd(size_t unit) const {
    return unit + 1 < unit_firsts_.size() ? unit_firsts_[unit + 1] : launch_times_.size();
  }

  absl::Duration ProfiledUnit(size_t unit) const {
    return std::accumulate(launch_times_.begin() + static_cast<ptrdiff_t>(unit_firsts_[unit]),
                           launch_times_.begin() + static_cast<ptrdiff_t>(UnitEnd(unit)), absl::ZeroDuration());
  }

  const std::string& LaunchName(size_t launch) const {
    // The first and the last are stamps.
    if (launch == 0 || launch > layout_.launches.size()) return stamp_->name();
    return layout_.launches[launch - 1].kernel->name();
  }

  static size_t AtLeastOne(size_t size_bytes) { return std::max<size_t>(size_bytes, 1); }

  absl::Status AllocateMemory(gpu::Slot& slot) {
    const auto pinned = [&](size_t size_bytes) {
      return device_.AllocatePinned(AtLeastOne(size_bytes), gpu::MemoryKind::kSlots);
    };
    SLUICE_ASSIGN_OR_RETURN(slot.input_memory, pinned(layout_.input_bytes));
    SLUICE_ASSIGN_OR_RETURN(slot.output_memory, pinned(layout_.output_bytes));
    SLUICE_ASSIGN_OR_RETURN(slot.stamp_memory, pinned(sizeof(gpu::StampPage)));
    std::memset(slot.stamp_memory.view().data, 0, sizeof(gpu::StampPage));
    // Counters, where there are any, are at its end.
    SLUICE_ASSIGN_OR_RETURN(slot.device_memory,
                            device_.AllocateDevice(slot_memory().device_bytes, gpu::MemoryKind::kSlots));
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

  gpu::DeviceSpan Counter(const gpu::Slot& slot, size_t index) const {
    return slot.device_memory.view().subspan(slot_bytes() - kCountersBytes + index * kCounterBytes, kCounterBytes);
  }

  absl::Status ZeroCounters(gpu::Slot& slot) const {
    SLUICE_ASSIGN_OR_RETURN(slot.capture_stream, device_.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Kernel> fill,
                            gpu::PrepareFill(device_, {.type = DataType::kUint8,
                                                       .dims = {static_cast<int64_t>(kCountersBytes)},
                                                       .value = {std::byte{0}}}));
    const gpu::DeviceSpan counters = slot.device_memory.view().subspan(slot_bytes() - kCountersBytes, kCountersBytes);
    SLUICE_RETURN_IF_ERROR(device_.Launch(slot.capture_stream, *fill, {.spans = {&counters, 1}, .workspace = {}}));
    return device_.Synchronize(slot.capture_stream);
  }

  /// The plan between two stamps, or between two transfers.
  void BindLaunches(gpu::Slot& slot) const {
    const gpu::DeviceSpan page = slot.stamp_memory.view().device_span();
    const bool copies = slot.graph_copies;
    size_t span_count = 4 + 2 * (slot.inputs.size() + slot.outputs.size());
    for (const PlannedLaunch& launch : layout_.launches) span_count += launch.spans.size();
    slot.spans.reserve(span_count);  // The launches point into it.
    const auto bind = [&](const gpu::Kernel& kernel, const std::vector<gpu::DeviceSpan>& spans,
                          gpu::DeviceSpan workspace) {
      const size_t first = slot.spans.size();
      slot.spans.insert(slot.spans.end(), spans.begin(), spans.end());
      slot.launches.push_back({&kernel, {std::span(slot.spans).subspan(first, spans.size()), workspace}});
    };
    const auto bind_stamp = [&](size_t offset_bytes) {
      bind(*stamp_, {page.subspan(offset_bytes, sizeof(uint64_t))}, {});
    };
    if (copies) {
      bind(*transfers_.in, TransferSpans(slot, /*in=*/true), {});
    } else {
      bind_stamp(offsetof(gpu::StampPage, first_kernel));
    }
    for (const PlannedLaunch& launch : layout_.launches) {
      std::vector<gpu::DeviceSpan> spans;
      for (const SpanPlace& place : launch.spans) spans.push_back(Resolve(slot, place));
      bind(*launch.kernel, spans, Resolve(slot, launch.workspace));
    }
    if (copies) {
      bind(*transfers_.out, TransferSpans(slot, /*in=*/false), {});
    } else {
      bind_stamp(offsetof(gpu::StampPage, last_kernel));
    }
  }

  std::vector<gpu::DeviceSpan> TransferSpans(const gpu::Slot& slot, bool in) const {
    std::vector<gpu::DeviceSpan> spans;
    for (const gpu::SlotTensor& tensor : in ? slot.inputs : slot.outputs) {
      const gpu::DeviceSpan mapped = tensor.pinned.device_span();
      spans.push_back(in ? mapped : tensor.device);
      spans.push_back(in ? tensor.device : mapped);
    }
    const size_t stamps = in ? offsetof(gpu::StampPage, copy_in_start) : offsetof(gpu::StampPage, last_kernel);
    spans.push_back(slot.stamp_memory.view().device_span().subspan(stamps, 2 * sizeof(uint64_t)));
    spans.push_back(Counter(slot, in ? 0 : 1));
    return spans;
  }

  void BindUnits(gpu::Slot& slot) {
    for (size_t i = 0; i < unit_firsts_.size(); ++i) {
      slot.units.push_back({unit_firsts_[i], UnitEnd(i) - unit_firsts_[i], &predicted_[i]});
    }
  }

  const Bucket bucket_;
  const std::vector<Shape> output_shapes_;
  const PlanLayout layout_;
  const std::unique_ptr<gpu::Kernel> stamp_;
  const TransferKernels transfers_;
  gpu::Device& device_;
  const PlanOptions options_;
  GraphDescription graph_;  // Until it is taken.
  // Set by Profile.
  absl::Duration profile_;
  std::vector<absl::Duration> launch_times_;
  std::vector<size_t> unit_firsts_;
  std::deque<MovingAverage> predicted_;  // One a unit; slots of any thread add to it.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> BuildPlanFromGraph(Graph graph, const Bucket& bucket, gpu::Device& device,
                                                         ConstantPool& pool, const PlanOptions& options) {
  GraphDescription description = DescribeGraph(graph, kMostGraphBytes);
  std::vector<Shape> output_shapes;
  for (const ValueIndex output : graph.outputs) output_shapes.push_back(*graph.value(output).dims);
  SLUICE_ASSIGN_OR_RETURN(PlanLayout layout, BuildPlanLayout(graph, device, pool));
  pool.ReleaseStaging();  // Before slots need room.
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Kernel> stamp, gpu::PrepareStamp(device));
  SLUICE_ASSIGN_OR_RETURN(TransferKernels transfers, PrepareTransfers(layout, device, options.max_transfer_bytes));
  auto plan = std::make_unique<BoundPlan>(bucket, std::move(description), std::move(output_shapes), std::move(layout),
                                          std::move(stamp), std::move(transfers), device, options);
  SLUICE_RETURN_IF_ERROR(plan->Profile());
  return plan;
}

}  // namespace sluice::model
