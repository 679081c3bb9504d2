// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace sluice::bench {

/// What a GPU did in some interval.
struct GpuState {
  double mean_mhz = 0, least_mhz = 0;  ///< Of its SMs.
  double mean_watts = 0;
  double most_celsius = 0;
  bool capped = false;  ///< It said that power or heat held its clocks down.
};

/// Reads clocks, power and temperature of one GPU ten times a second, by nvidia-smi in a process of its own. Bounds:
/// the last kMostReadings readings. Threads: one owner; a thread of its own reads.
class GpuMonitor {
 public:
  static constexpr size_t kMostReadings = 36'000;  ///< An hour.

  /// Null where there is no nvidia-smi or it does not start.
  static std::unique_ptr<GpuMonitor> Start(int ordinal, const Clock& clock);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// Nothing when no reading lies in [from, to].
  std::optional<GpuState> Between(Time from, Time to) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Reading {
    Time at;
    double mhz = 0, watts = 0, celsius = 0;
    bool capped = false;
  };
  GpuMonitor(pid_t child, int output, const Clock& clock);
  void Run(int output);

  const pid_t child_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::vector<Reading> readings_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // last
};

}  // namespace sluice::bench
