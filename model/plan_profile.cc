// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/plan_profile.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"

namespace sluice::model {
namespace {

// A tiny kernel takes less than starting a graph does, so several in one graph are measured at once.
constexpr int kRepeats = 8;
constexpr int kWholeRuns = 3;

class Profiler {
 public:
  explicit Profiler(gpu::Slot& slot) : slot_(slot), device_(*slot.device) {}

  absl::StatusOr<PlanProfile> Run() {
    SLUICE_ASSIGN_OR_RETURN(stream_, device_.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(start_, device_.CreateTimedEvent());
    SLUICE_ASSIGN_OR_RETURN(end_, device_.CreateTimedEvent());
    SLUICE_RETURN_IF_ERROR(ZeroInputs());
    // The first run of a kernel pays for pages and code that later ones find warm.
    for (size_t i = 0; i < slot_.launches.size(); ++i) SLUICE_RETURN_IF_ERROR(Launch(i));
    SLUICE_RETURN_IF_ERROR(device_.Synchronize(stream_));
    PlanProfile profile;
    for (size_t i = 0; i < slot_.launches.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured,
                              device_.info().backend == gpu::Backend::kCuda ? MeasureInGraph(i) : MeasureOne(i));
      profile.launches.push_back(std::max(measured, absl::Nanoseconds(1)));
    }
    SLUICE_ASSIGN_OR_RETURN(profile.whole, MeasureWhole());
    return profile;
  }

 private:
  absl::Status Launch(size_t index) {
    const gpu::BoundLaunch& launch = slot_.launches[index];
    return device_.Launch(stream_, *launch.kernel, launch.args);
  }

  absl::Status ZeroInputs() {
    const gpu::PinnedSpan memory = slot_.input_memory;
    std::memset(memory.data, 0, memory.size_bytes);
    for (const gpu::SlotTensor& input : slot_.inputs) {
      if (input.pinned.size_bytes == 0) continue;
      SLUICE_RETURN_IF_ERROR(device_.CopyToDevice(stream_, input.pinned, input.device));
    }
    return absl::OkStatus();
  }

  template <class Issue>
  absl::StatusOr<absl::Duration> Measure(Issue&& issue) {
    SLUICE_RETURN_IF_ERROR(device_.Record(stream_, start_.view()));
    SLUICE_RETURN_IF_ERROR(issue());
    SLUICE_RETURN_IF_ERROR(device_.Record(stream_, end_.view()));
    SLUICE_RETURN_IF_ERROR(device_.Synchronize(end_.view()));
    return device_.Elapsed(start_, end_);
  }

  absl::StatusOr<absl::Duration> MeasureOne(size_t index) {
    return Measure([&] { return Launch(index); });
  }

  absl::StatusOr<absl::Duration> MeasureInGraph(size_t index) {
    SLUICE_RETURN_IF_ERROR(device_.BeginCapture(stream_));
    absl::Status launched;
    for (int i = 0; i < kRepeats && launched.ok(); ++i) launched = Launch(index);
    absl::StatusOr<gpu::Graph> graph = device_.EndCapture(stream_);
    SLUICE_RETURN_IF_ERROR(launched);
    if (!graph.ok()) return graph.status();
    SLUICE_RETURN_IF_ERROR(device_.LaunchGraph(stream_, *graph));
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured,
                            Measure([&] { return device_.LaunchGraph(stream_, *graph); }));
    SLUICE_RETURN_IF_ERROR(device_.Synchronize(stream_));
    return measured / kRepeats;
  }

  absl::StatusOr<absl::Duration> MeasureWhole() {
    SLUICE_ASSIGN_OR_RETURN(const gpu::Graph graph, gpu::CaptureLaunches(slot_, 0, slot_.launches.size()));
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kWholeRuns; ++run) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured,
                              Measure([&] { return device_.LaunchGraph(stream_, graph); }));
      least = std::min(least, measured);
    }
    return least;
  }

  gpu::Slot& slot_;
  gpu::Device& device_;
  gpu::Stream stream_;
  gpu::TimedEvent start_;
  gpu::TimedEvent end_;
};

}  // namespace

absl::StatusOr<PlanProfile> ProfileSlot(gpu::Slot& slot) { return Profiler(slot).Run(); }

std::vector<size_t> CutUnits(gpu::Backend backend, const std::vector<absl::Duration>& launches, absl::Duration target) {
  std::vector<size_t> firsts = {0};
  const bool by_kernel = backend == gpu::Backend::kHost;
  absl::Duration sum = launches.front();
  // The first and the last launch are stamps, which belong to their neighbours.
  for (size_t i = 1; i + 1 < launches.size(); ++i) {
    const bool unit_has_kernel = i > firsts.back() + (firsts.back() == 0 ? 1 : 0);
    if (unit_has_kernel && (by_kernel || sum + launches[i] > target)) {
      firsts.push_back(i);
      sum = absl::ZeroDuration();
    }
    sum += launches[i];
  }
  return firsts;
}

}  // namespace sluice::model
