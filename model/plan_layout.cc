// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/plan_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/movement.h"
#include "model/lower.h"
#include "model/memory_plan.h"
#include "model/onnx_reader.h"
#include "model/ops/context.h"

namespace sluice::model {
namespace {

// Spans begin at cache lines on the host, and where vector loads and copy engines are at their best on a GPU.
size_t AlignmentOf(const gpu::Device& device) { return device.info().backend == gpu::Backend::kCuda ? 256 : 64; }

class LayoutBuilder {
 public:
  LayoutBuilder(Graph& graph, gpu::Device& device, ConstantPool& pool)
      : graph_(graph), device_(device), pool_(pool), alignment_(AlignmentOf(device)) {}

  absl::StatusOr<PlanLayout> Build() && {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(LowerNode(graph_, i, device_, &pool_, lowered_));
      if (lowered_.launches.size() > kMaxLaunches) {
        return absl::UnimplementedError(absl::StrCat("more than ", kMaxLaunches, " kernels"));
      }
    }
    SLUICE_RETURN_IF_ERROR(ResolveViews());
    PlaceInputs();
    SLUICE_RETURN_IF_ERROR(PlaceOutputs());
    FindLastUses();
    ShareInPlace();
    PlaceActivations();
    SLUICE_RETURN_IF_ERROR(BindLaunches());
    return std::move(layout_);
  }

 private:
  static size_t At(ValueIndex index) { return static_cast<size_t>(index); }

  size_t SizeBytes(ValueIndex index) const {
    const Value& value = graph_.value(index);
    const auto count = ElementCount(*value.dims);  // Checked when the shape was inferred.
    return count.ok() ? static_cast<size_t>(*count) * ElementBytes(value.type) : 0;
  }

  /// The value whose memory `index` uses.
  ValueIndex Root(ValueIndex index) const {
    while (root_[At(index)] != index) index = root_[At(index)];
    return index;
  }

  absl::Status ResolveViews() {
    root_.resize(graph_.values.size());
    std::iota(root_.begin(), root_.end(), 0);
    place_.resize(graph_.values.size());
    for (const LoweredView& view : lowered_.views) {
      if (SizeBytes(view.view) != SizeBytes(view.source)) {
        return absl::InternalError(
            absl::StrCat("'", graph_.value(view.view).name, "' is not the size of what it views"));
      }
      root_[At(view.view)] = Root(view.source);
    }
    return absl::OkStatus();
  }

  void PlaceInputs() {
    for (const ValueIndex input : graph_.inputs) {
      const SpanPlace place{Area::kInput, layout_.input_bytes, SizeBytes(input), {}};
      place_[At(input)] = place;
      layout_.inputs.push_back(place);
      layout_.input_bytes += AlignUp(place.size_bytes, alignment_);
    }
  }

  /// A result that a kernel writes is written straight into the output area. One that is an input, a constant, or the
  /// same bytes as another output is copied there.
  absl::Status PlaceOutputs() {
    std::vector<bool> produced(graph_.values.size(), false);
    for (const LoweredLaunch& launch : lowered_.launches) {
      for (const ValueIndex output : launch.outputs) produced[At(output)] = true;
    }
    for (const ValueIndex output : graph_.outputs) {
      const SpanPlace place{Area::kOutput, layout_.output_bytes, SizeBytes(output), {}};
      layout_.outputs.push_back(place);
      layout_.output_bytes += AlignUp(place.size_bytes, alignment_);
      const ValueIndex root = Root(output);
      if (produced[At(root)] && !place_[At(root)].has_value()) {
        place_[At(root)] = place;
      } else if (place.size_bytes > 0) {
        SLUICE_RETURN_IF_ERROR(AddCopy(output, place));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddCopy(ValueIndex source, const SpanPlace& place) {
    SLUICE_ASSIGN_OR_RETURN(auto kernel, gpu::PrepareCopy(device_, {.size_bytes = place.size_bytes}));
    const Value& value = graph_.value(source);
    const ValueIndex copy =
        graph_.AddValue({.name = absl::StrCat(value.name, "/copy"), .type = value.type, .dims = value.dims});
    root_.push_back(copy);
    place_.push_back(place);
    lowered_.launches.push_back({std::move(kernel), {source}, {copy}, {}});
    return absl::OkStatus();
  }

  void FindLastUses() {
    last_use_.assign(graph_.values.size(), 0);
    for (size_t i = 0; i < lowered_.launches.size(); ++i) {
      for (const ValueIndex output : lowered_.launches[i].outputs) last_use_[At(Root(output))] = i;
      for (const ValueIndex input : lowered_.launches[i].inputs) last_use_[At(Root(input))] = i;
    }
  }

  bool IsActivation(ValueIndex root) const { return !place_[At(root)].has_value() && !graph_.value(root).is_constant; }

  /// Lets a kernel that may work in place write over an input that nobody reads afterwards.
  void ShareInPlace() {
    for (size_t i = 0; i < lowered_.launches.size(); ++i) {
      const LoweredLaunch& launch = lowered_.launches[i];
      if (launch.in_place.empty()) continue;
      const ValueIndex output = Root(launch.outputs[0]);
      for (const size_t position : launch.in_place) {
        const ValueIndex input = Root(launch.inputs[position]);
        const auto readers = std::count_if(launch.inputs.begin(), launch.inputs.end(),
                                           [&](ValueIndex other) { return Root(other) == input; });
        if (!IsActivation(output) || !IsActivation(input) || readers != 1 || last_use_[At(input)] != i ||
            SizeBytes(input) != SizeBytes(output)) {
          continue;
        }
        root_[At(output)] = input;
        last_use_[At(input)] = last_use_[At(output)];
        break;
      }
    }
  }

  void PlaceActivations() {
    std::vector<MemoryRequest> requests;
    std::vector<ValueIndex> owners;  // kNoValue for a workspace.
    std::vector<bool> seen(graph_.values.size(), false);
    for (size_t i = 0; i < lowered_.launches.size(); ++i) {
      const LoweredLaunch& launch = lowered_.launches[i];
      for (const ValueIndex output : launch.outputs) {
        const ValueIndex root = Root(output);
        if (!IsActivation(root) || seen[At(root)]) continue;
        seen[At(root)] = true;
        requests.push_back({SizeBytes(root), i, last_use_[At(root)]});
        owners.push_back(root);
      }
      requests.push_back({launch.kernel->workspace_bytes(), i, i});
      owners.push_back(kNoValue);
    }
    const MemoryLayout memory = PlanMemory(requests, alignment_);
    layout_.activation_bytes = memory.total_bytes;
    for (size_t i = 0; i < requests.size(); ++i) {
      const SpanPlace place{Area::kActivation, memory.offsets[i], requests[i].size_bytes, {}};
      if (owners[i] == kNoValue) {
        workspaces_.push_back(place);
      } else {
        place_[At(owners[i])] = place;
      }
    }
  }

  absl::StatusOr<SpanPlace> PlaceOf(ValueIndex index) {
    const ValueIndex root = Root(index);
    if (graph_.value(root).is_constant) {
      SLUICE_ASSIGN_OR_RETURN(const gpu::DeviceSpan span, pool_.Get(graph_.value(root)));
      return SpanPlace{Area::kConstant, 0, span.size_bytes, span};
    }
    if (!place_[At(root)].has_value()) {
      return absl::InternalError(absl::StrCat("'", graph_.value(index).name, "' is read but never written"));
    }
    return *place_[At(root)];
  }

  absl::Status BindLaunches() {
    for (size_t i = 0; i < lowered_.launches.size(); ++i) {
      LoweredLaunch& launch = lowered_.launches[i];
      PlannedLaunch planned{.kernel = std::move(launch.kernel), .spans = {}, .workspace = workspaces_[i]};
      for (const ValueIndex input : launch.inputs) {
        SLUICE_ASSIGN_OR_RETURN(planned.spans.emplace_back(), PlaceOf(input));
      }
      for (const ValueIndex output : launch.outputs) {
        SLUICE_ASSIGN_OR_RETURN(planned.spans.emplace_back(), PlaceOf(output));
      }
      layout_.launches.push_back(std::move(planned));
    }
    return absl::OkStatus();
  }

  Graph& graph_;
  gpu::Device& device_;
  ConstantPool& pool_;
  const size_t alignment_;
  Lowered lowered_;
  PlanLayout layout_;
  std::vector<ValueIndex> root_;  // Chains of views and in-place results lead to the value that owns the memory.
  std::vector<std::optional<SpanPlace>> place_;
  std::vector<size_t> last_use_;
  std::vector<SpanPlace> workspaces_;
};

}  // namespace

absl::StatusOr<PlanLayout> BuildPlanLayout(Graph& graph, gpu::Device& device, ConstantPool& pool) {
  return LayoutBuilder(graph, device, pool).Build();
}

}  // namespace sluice::model
