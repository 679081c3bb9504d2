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
// The least of them is what counts: what else runs on the machine only ever adds time.
constexpr int kMeasurements = 3;
// A run this much faster than all before it means that clocks are still rising.
constexpr double kFaster = 0.99;
constexpr int kSteadyRuns = 4;

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
    SLUICE_ASSIGN_OR_RETURN(whole_, gpu::CaptureLaunches(slot_, 0, slot_.launches.size()));
    if (device_.info().backend == gpu::Backend::kCuda) SLUICE_RETURN_IF_ERROR(RaiseClocks());
    PlanProfile profile;
    for (size_t i = 0; i < slot_.launches.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured,
                              device_.info().backend == gpu::Backend::kCuda ? MeasureInGraph(i) : MeasureOne(i));
      profile.launches.push_back(std::max(measured, absl::Nanoseconds(1)));
    }
    SLUICE_ASSIGN_OR_RETURN(profile.whole, MeasureLeast(whole_));
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
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, MeasureLeast(*graph));
    SLUICE_RETURN_IF_ERROR(device_.Synchronize(stream_));
    return measured / kRepeats;
  }

  absl::StatusOr<absl::Duration> MeasureGraph(const gpu::Graph& graph) {
    return Measure([&] { return device_.LaunchGraph(stream_, graph); });
  }

  absl::StatusOr<absl::Duration> MeasureLeast(const gpu::Graph& graph) {
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kMeasurements; ++run) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, MeasureGraph(graph));
      least = std::min(least, measured);
    }
    return least;
  }

  /// An idle GPU's clocks are low, and what is measured first would look longer than it is.
  absl::Status RaiseClocks() {
    WarmUp warm_up;
    bool over = false;
    while (!over) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration run, MeasureGraph(whole_));
      over = warm_up.IsOver(run);
    }
    return absl::OkStatus();
  }

  gpu::Slot& slot_;
  gpu::Device& device_;
  gpu::Stream stream_;
  gpu::Graph whole_;
  gpu::TimedEvent start_;
  gpu::TimedEvent end_;
};

}  // namespace

bool WarmUp::IsOver(absl::Duration run) {
  ++runs_;
  total_ += run;
  if (run < least_ * kFaster) {
    steady_runs_ = 0;
  } else {
    ++steady_runs_;
  }
  least_ = std::min(least_, run);
  if (runs_ >= kMostRuns || total_ >= kMostTime) return true;
  return steady_runs_ >= kSteadyRuns && total_ >= kLeastTime;
}

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
