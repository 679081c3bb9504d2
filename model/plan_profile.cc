// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/plan_profile.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "gpu/load_turns.h"

namespace sluice::model {
namespace {

// A tiny kernel takes less than starting a graph does, so several in one graph are measured at once.
constexpr int kRepeats = 8;
// The least of them is what counts: what else runs on the machine only ever adds time.
constexpr int kMeasurements = 3;
// A run this much faster than all before it means that clocks are still rising.
constexpr double kFaster = 0.99;
constexpr int kSteadyRuns = 4;

// Of one measurement that latency requests came near. What is left of them then only adds time, as said.
constexpr int kMostAttempts = 3;

/// On a device that serves, everything that is launched asks for its turn first; while latency requests come, no turn
/// takes longer than one of batch's would, so that launches are run one by one and added up.
class Profiler {
 public:
  explicit Profiler(gpu::Slot& slot)
      : slot_(slot),
        device_(*slot.device),
        on_gpu_(device_.info().backend == gpu::Backend::kCuda),
        turns_(device_.kernels().load_turns()) {}

  absl::StatusOr<PlanProfile> Run() {
    SLUICE_ASSIGN_OR_RETURN(stream_, device_.CreateStream(gpu::StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(start_, device_.CreateTimedEvent());
    SLUICE_ASSIGN_OR_RETURN(end_, device_.CreateTimedEvent());
    SLUICE_RETURN_IF_ERROR(ZeroInputs());
    // The first run of a kernel pays for pages and code that later ones find warm.
    first_times_.resize(slot_.launches.size());
    for (size_t i = 0; i < slot_.launches.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(first_times_[i], MeasureOne(i));
    }
    SLUICE_ASSIGN_OR_RETURN(whole_, gpu::CaptureLaunches(slot_, 0, slot_.launches.size()));
    if (on_gpu_) SLUICE_RETURN_IF_ERROR(RaiseClocks());
    PlanProfile profile;
    for (size_t i = 0; i < slot_.launches.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, on_gpu_ ? MeasureInGraph(i) : MeasureOne(i));
      profile.launches.push_back(std::max(measured, absl::Nanoseconds(1)));
    }
    const absl::Duration sum = std::accumulate(profile.launches.begin(), profile.launches.end(), absl::ZeroDuration());
    if (sum <= gpu::LongestTurn(turns_)) {
      SLUICE_ASSIGN_OR_RETURN(profile.whole, MeasureLeast(whole_, sum));
    } else {
      profile.whole = sum;
    }
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
    return device_.Synchronize(stream_);
  }

  /// The least of the attempts, should latency requests have come near all of them.
  template <class Issue>
  absl::StatusOr<absl::Duration> Measure(absl::Duration predicted, Issue&& issue) {
    absl::Duration least = absl::InfiniteDuration();
    bool alone = false;
    for (int attempt = 0; !alone && attempt < kMostAttempts; ++attempt) {
      absl::Duration measured;
      const auto work = [&]() -> absl::Status {
        SLUICE_RETURN_IF_ERROR(device_.Record(stream_, start_.view()));
        SLUICE_RETURN_IF_ERROR(issue());
        SLUICE_RETURN_IF_ERROR(device_.Record(stream_, end_.view()));
        SLUICE_RETURN_IF_ERROR(device_.Synchronize(end_.view()));
        SLUICE_ASSIGN_OR_RETURN(measured, device_.Elapsed(start_, end_));
        return absl::OkStatus();
      };
      SLUICE_ASSIGN_OR_RETURN(alone, gpu::RunInTurn(turns_, predicted, work));
      least = std::min(least, measured);
    }
    return least;
  }

  absl::StatusOr<absl::Duration> MeasureOne(size_t index) {
    return Measure(first_times_[index], [&] { return Launch(index); });
  }

  absl::StatusOr<absl::Duration> MeasureInGraph(size_t index) {
    const absl::Duration first = std::max(first_times_[index], absl::Nanoseconds(1));
    const auto repeats = static_cast<int>(std::clamp<int64_t>(gpu::LongestTurn(turns_) / first, 1, kRepeats));
    SLUICE_RETURN_IF_ERROR(device_.BeginCapture(stream_));
    absl::Status launched;
    for (int i = 0; i < repeats && launched.ok(); ++i) launched = Launch(index);
    absl::StatusOr<gpu::Graph> graph = device_.EndCapture(stream_);
    SLUICE_RETURN_IF_ERROR(launched);
    if (!graph.ok()) return graph.status();
    // The first launch of a graph pays for what is made once.
    SLUICE_RETURN_IF_ERROR(MeasureGraph(*graph, first * repeats).status());
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, MeasureLeast(*graph, first * repeats));
    return measured / repeats;
  }

  absl::StatusOr<absl::Duration> MeasureGraph(const gpu::Graph& graph, absl::Duration predicted) {
    return Measure(predicted, [&] { return device_.LaunchGraph(stream_, graph); });
  }

  absl::StatusOr<absl::Duration> MeasureLeast(const gpu::Graph& graph, absl::Duration predicted) {
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kMeasurements; ++run) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, MeasureGraph(graph, predicted));
      least = std::min(least, measured);
    }
    return least;
  }

  /// All launches, as long as turns may be.
  absl::StatusOr<absl::Duration> RunAll() {
    const absl::Duration predicted = std::accumulate(first_times_.begin(), first_times_.end(), absl::ZeroDuration());
    if (predicted <= gpu::LongestTurn(turns_)) return MeasureGraph(whole_, predicted);
    absl::Duration sum;
    for (size_t i = 0; i < slot_.launches.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration measured, MeasureOne(i));
      first_times_[i] = std::min(first_times_[i], measured);
      sum += measured;
    }
    return sum;
  }

  /// An idle GPU's clocks are low, and what is measured first would look longer than it is.
  absl::Status RaiseClocks() {
    WarmUp warm_up;
    bool over = false;
    while (!over) {
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration run, RunAll());
      over = warm_up.IsOver(run);
    }
    return absl::OkStatus();
  }

  gpu::Slot& slot_;
  gpu::Device& device_;
  const bool on_gpu_;
  gpu::LoadTurns* const turns_;
  gpu::Stream stream_;
  gpu::Graph whole_;
  gpu::TimedEvent start_;
  gpu::TimedEvent end_;
  std::vector<absl::Duration> first_times_;  ///< Of each launch; zero until it has run.
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
