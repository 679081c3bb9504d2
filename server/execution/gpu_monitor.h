// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/wakeup.h"
#include "gpu/cuda/nvml.h"
#include "server/config.h"
#include "server/metrics/family.h"

namespace sluice::server {

/// A GPU that the server uses.
struct WatchedGpu {
  std::string device;  ///< As in flags and metric labels.
  std::string uuid;    ///< As in DeviceInfo.
};

/// Reads what GPUs use, for metrics under Triton's names. Purpose: NVML may take milliseconds, or hang with the driver,
/// so a thread of its own asks, and a scrape only looks at what it found. Bounds: one reading a GPU, exported for
/// kFreshIntervals intervals. Threads: `gpu-metrics` asks; Read from any. Errors: what a GPU does not tell is left out,
/// and logged once; a failed read is counted and leaves out what it failed for. None of it touches readiness: the
/// devices know themselves when they are lost. While the driver hangs Stop does too, and main's watchdog ends the
/// process.
class GpuMonitor {
 public:
  static constexpr int kFreshIntervals = 3;
  /// So many failed reads in a row are an error in the log: the GPU, or the container's access to it, is gone.
  static constexpr int kManyFailures = 10;

  GpuMonitor(std::vector<WatchedGpu> gpus, GpuMetricsConfig config, const Clock& clock);
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;
  ~GpuMonitor() { Stop(); }

  /// What a scrape shows. Never waits for NVML.
  void Read(std::vector<metrics::ReadingSample>& samples) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// Idempotent; not from two threads at once.
  void Stop();

 private:
  /// The thread's own.
  struct Watch {
    WatchedGpu gpu;
    std::optional<gpu::NvmlGpu> found = {};
    std::array<bool, gpu::kGpuValueCount> left_out{};  ///< And logged.
    int64_t failures_in_a_row = 0;
  };
  struct Shown {
    std::string device;
    std::string uuid;
    Time at = {};  ///< When `values` had been read.
    std::array<std::optional<double>, gpu::kGpuValueCount> values{};
    int64_t failed_reads = 0;
    bool polled = false;
  };

  void Run();
  void Poll(const gpu::Nvml& nvml, size_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  void Show(size_t index, const gpu::GpuReading& reading, bool failed) ABSL_LOCKS_EXCLUDED(mutex_);
  static void LogLeftOut(Watch& watch, const gpu::GpuReading& reading);
  static void LogChange(Watch& watch, const absl::Status& failure);

  const GpuMetricsConfig config_;
  const Clock& clock_;
  std::vector<Watch> watches_;
  mutable Mutex mutex_;
  std::vector<Shown> shown_ ABSL_GUARDED_BY(mutex_);  ///< In the order of watches_.
  std::atomic<bool> stopping_ = false;
  Wakeup wakeup_;
  Thread thread_;  // last: it uses all of the above
};

}  // namespace sluice::server
