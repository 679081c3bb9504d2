// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_trial.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr TrialEffort kThorough = {.calls = 32, .runs = 6};
constexpr size_t kFinalists = 8;
constexpr size_t kMostCopyBytes = size_t{256} << 20;
constexpr size_t kMostCopies = 128;
// Of a measurement that latency requests came near; their least counts all the same.
constexpr int kMostAttempts = 3;

}  // namespace

TrialMemory::~TrialMemory() {
  if (data_ != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaFreeAsync(data_, stream_)));
}

absl::Status TrialMemory::Allocate(size_t size_bytes) {
  return SLUICE_CUDA_STATUS(cudaMallocAsync(&data_, std::max<size_t>(size_bytes, 1), stream_));
}

TrialStream::~TrialStream() {
  if (stream_ != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaStreamDestroy(stream_)));
}

absl::Status TrialStream::Make(int ordinal) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
  int lowest = 0;
  int highest = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetStreamPriorityRange(&lowest, &highest)));
  return SLUICE_CUDA_STATUS(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, lowest));
}

TrialTimer::~TrialTimer() {
  for (cudaEvent_t event : {start_, end_}) {
    if (event != nullptr) static_cast<void>(SLUICE_CUDA_STATUS(cudaEventDestroy(event)));
  }
}

absl::Status TrialTimer::Make() {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventCreate(&start_)));
  return SLUICE_CUDA_STATUS(cudaEventCreate(&end_));
}

absl::StatusOr<float> TrialTimer::Milliseconds(const TrialEffort& effort,
                                               absl::FunctionRef<absl::Status(int call)> enqueue) {
  const int calls = LongestTurn(turns_) == absl::InfiniteDuration() ? effort.calls : 1;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed)));
  absl::Status enqueued;
  for (int i = 0; i < calls && enqueued.ok(); ++i) enqueued = enqueue(i);
  cudaGraph_t captured = nullptr;
  absl::Status status = SLUICE_CUDA_STATUS(cudaStreamEndCapture(stream_, &captured));
  SLUICE_RETURN_IF_ERROR(enqueued);
  SLUICE_RETURN_IF_ERROR(status);
  cudaGraphExec_t graph = nullptr;
  status = SLUICE_CUDA_STATUS(cudaGraphInstantiate(&graph, captured, 0));
  status.Update(SLUICE_CUDA_STATUS(cudaGraphDestroy(captured)));
  SLUICE_RETURN_IF_ERROR(status);
  const absl::StatusOr<float> milliseconds = Time(graph, effort.runs);
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphExecDestroy(graph)));
  SLUICE_RETURN_IF_ERROR(milliseconds.status());
  return *milliseconds / static_cast<float>(calls);
}

absl::StatusOr<float> TrialTimer::TimeOnce(cudaGraphExec_t graph) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(start_, stream_)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaGraphLaunch(graph, stream_)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventRecord(end_, stream_)));
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream_)));
  float milliseconds = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaEventElapsedTime(&milliseconds, start_, end_)));
  return milliseconds;
}

absl::StatusOr<float> TrialTimer::Time(cudaGraphExec_t graph, int runs) {
  float least = std::numeric_limits<float>::max();
  absl::Duration predicted;
  for (int run = 0, attempts = 0; run <= runs;) {
    float milliseconds = 0;
    SLUICE_ASSIGN_OR_RETURN(const bool alone, RunInTurn(turns_, predicted, [&] {
                              absl::StatusOr<float> once = TimeOnce(graph);
                              if (once.ok()) milliseconds = *once;
                              return once.status();
                            }));
    // The first one pays for what is made once.
    if (run > 0) least = std::min(least, milliseconds);
    predicted = absl::Milliseconds(milliseconds);
    if (alone || ++attempts >= kMostAttempts) {
      attempts = 0;
      ++run;
    }
  }
  return least;
}

namespace {

/// Submits a way once and waits for it; false when it is not supported.
absl::StatusOr<bool> LoadWay(cudaStream_t stream, LoadTurns* turns, size_t way,
                             absl::FunctionRef<absl::StatusOr<bool>(size_t way, int call)> submit) {
  bool supported = false;
  SLUICE_RETURN_IF_ERROR(RunInTurn(turns, absl::ZeroDuration(), [&] {
                           const absl::StatusOr<bool> submitted = submit(way, 0);
                           SLUICE_RETURN_IF_ERROR(submitted.status());
                           supported = *submitted;
                           return SLUICE_CUDA_STATUS(cudaStreamSynchronize(stream));
                         }).status());
  return supported;
}

absl::StatusOr<size_t> TunedWay(const TrialProblem& problem, const std::string& choice) {
  const auto found = std::find(problem.ways.begin(), problem.ways.end(), choice);
  if (found != problem.ways.end()) return static_cast<size_t>(found - problem.ways.begin());
  return absl::FailedPreconditionError(absl::StrCat(
      "tuning file ", problem.rules.tuning.path(), ": '", problem.name, "' was tuned to '", choice,
      "', which this version does not know among ", problem.ways.size(), " ways; run `sluice tune` again"));
}

struct Tried {
  float milliseconds = 0;
  size_t way = 0;
};

}  // namespace

absl::StatusOr<std::optional<size_t>> FastestWay(cudaStream_t stream, const TrialProblem& problem,
                                                 absl::FunctionRef<absl::StatusOr<bool>(size_t way, int call)> submit) {
  TuningTable& tuning = problem.rules.tuning;
  LoadTurns* const turns = problem.rules.turns;
  if (const std::optional<std::string> choice = tuning.Find(problem.name); choice.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(const size_t way, TunedWay(problem, *choice));
    SLUICE_ASSIGN_OR_RETURN(const bool supported, LoadWay(stream, turns, way, submit));
    if (supported) return way;
    return absl::FailedPreconditionError(absl::StrCat("tuning file ", tuning.path(), ": '", problem.name,
                                                      "' was tuned to '", *choice,
                                                      "', which is not supported; run `sluice tune` again"));
  }
  if (const std::optional<std::string> choice = tuning.Remembered(problem.name); choice.has_value()) {
    const auto known = std::find(problem.ways.begin(), problem.ways.end(), *choice);
    if (known != problem.ways.end()) {
      const auto way = static_cast<size_t>(known - problem.ways.begin());
      SLUICE_ASSIGN_OR_RETURN(const bool supported, LoadWay(stream, turns, way, submit));
      if (supported) return way;
    }
  }
  TrialTimer timer(stream, turns);
  SLUICE_RETURN_IF_ERROR(timer.Make());
  const auto time = [&](size_t way, const TrialEffort& effort) {
    return timer.Milliseconds(effort, [&](int call) { return submit(way, call).status(); });
  };
  std::vector<Tried> tried;
  for (size_t way = 0; way < problem.ways.size(); ++way) {
    SLUICE_ASSIGN_OR_RETURN(const bool supported, LoadWay(stream, turns, way, submit));
    if (!supported) continue;
    SLUICE_ASSIGN_OR_RETURN(const float milliseconds, time(way, {}));
    tried.push_back({milliseconds, way});
  }
  if (tried.empty()) return std::nullopt;
  const auto faster = [](const Tried& a, const Tried& b) { return a.milliseconds < b.milliseconds; };
  std::stable_sort(tried.begin(), tried.end(), faster);
  if (tuning.tunes()) {
    tried.resize(std::min(tried.size(), kFinalists));
    TrialEffort thorough = kThorough;
    thorough.calls = std::max(thorough.calls, problem.copies);
    for (Tried& finalist : tried) {
      SLUICE_ASSIGN_OR_RETURN(finalist.milliseconds, time(finalist.way, thorough));
    }
    std::stable_sort(tried.begin(), tried.end(), faster);
    SLUICE_RETURN_IF_ERROR(tuning.Record(problem.name, problem.ways[tried.front().way]));
  }
  if (!tuning.tunes()) tuning.Remember(problem.name, problem.ways[tried.front().way]);
  return tried.front().way;
}

absl::StatusOr<int> TrialCopies(const TuningTable& tuning, int ordinal, size_t size_bytes) {
  if (!tuning.tunes() || size_bytes == 0) return 1;
  int cache_bytes = 0;
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, ordinal)));
  const size_t wanted = 2 * static_cast<size_t>(cache_bytes) / size_bytes + 1;
  const size_t most = std::max<size_t>(1, kMostCopyBytes / size_bytes);
  return static_cast<int>(std::min({wanted, most, kMostCopies}));
}

}  // namespace sluice::gpu::cuda
