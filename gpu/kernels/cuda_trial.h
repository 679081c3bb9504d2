// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernels/tuning.h"
#include "gpu/load_turns.h"

namespace sluice::gpu::cuda {

/// Device memory for a trial, allocated and freed in the order of its stream: neither waits for other work. Load time
/// only.
class TrialMemory {
 public:
  explicit TrialMemory(cudaStream_t stream) : stream_(stream) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory();
  /// Once. What lies in it is whatever was there.
  absl::Status Allocate(size_t size_bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const cudaStream_t stream_;
  void* data_ = nullptr;
};

/// A lowest-priority stream for trials. Load time only.
class TrialStream {
 public:
  TrialStream() = default;
  TrialStream(const TrialStream&) = delete;
  TrialStream& operator=(const TrialStream&) = delete;
  ~TrialStream();
  absl::Status Make(int ordinal);
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// How long a way of computing something is tried.
struct TrialEffort {
  int calls = 4;  ///< In one graph, one behind the other.
  int runs = 2;   ///< Of the graph; the least counts.
};

/// What all trials of a device go by.
struct TrialRules {
  TuningTable& tuning;
  LoadTurns* turns = nullptr;  ///< Null: nobody is asked.
};

/// Times what a caller enqueues to a stream. In a graph, since enqueuing a library call may take the host longer than
/// the device takes to run it. Beside latency requests one call is timed at a time, in a turn of its own. Load time
/// only; blocks.
class TrialTimer {
 public:
  TrialTimer(cudaStream_t stream, LoadTurns* turns) : stream_(stream), turns_(turns) {}
  TrialTimer(const TrialTimer&) = delete;
  TrialTimer& operator=(const TrialTimer&) = delete;
  ~TrialTimer();
  absl::Status Make();
  /// What one call of `enqueue` takes on the device; it is told how many came before it. Its code must have been loaded
  /// before.
  absl::StatusOr<float> Milliseconds(const TrialEffort& effort, absl::FunctionRef<absl::Status(int call)> enqueue);

 private:
  absl::StatusOr<float> Time(cudaGraphExec_t graph, int runs);
  absl::StatusOr<float> TimeOnce(cudaGraphExec_t graph);

  const cudaStream_t stream_;
  LoadTurns* const turns_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// A problem with several ways of computing it.
struct TrialProblem {
  const TrialRules& rules;
  std::string name;               ///< As in a tuning: all that the times of its ways depend on.
  std::vector<std::string> ways;  ///< What the tuning calls them; equal names are equal ways.
  int copies = 1;                 ///< Of its constants: TrialCopies. Call i reads the i-th, and begins anew after them.
};

/// Index of the way that takes the least time, or that a tuning or an earlier trial of this process says does; none
/// when nothing supports any. `submit`
/// enqueues a way once to `stream`, and says whether it is supported; every way that is tried, and the one returned, is
/// submitted at least once outside of a capture, which loads its code. While tuning all are tried as at any load, then
/// the best at length, and the choice is recorded. FAILED_PRECONDITION when the tuning names a way that is not there.
absl::StatusOr<std::optional<size_t>> FastestWay(cudaStream_t stream, const TrialProblem& problem,
                                                 absl::FunctionRef<absl::StatusOr<bool>(size_t way, int call)> submit);

/// How many copies of a problem's constants a trial should have: 1, or while tuning as many as the second-level cache
/// does not hold, as it does not hold the weights of a large model; fewer where they are small.
absl::StatusOr<int> TrialCopies(const TuningTable& tuning, int ordinal, size_t size_bytes);

}  // namespace sluice::gpu::cuda
