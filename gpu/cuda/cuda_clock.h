// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace sluice::gpu::cuda {

/// Converts %globaltimer to the process's clock. Purpose: stage times that cross from host to device.
///
/// A calibration launches a few stamp kernels on a stream of its own, reads the host's clock before and after each, and
/// takes the middle of what all of them allow. Accuracy: half of the shortest launch-and-wait (about 5 us) plus the
/// timer's step (up to 1 us), when calibrated. The two clocks drift apart by up to some 50 us a second on bad days, so
/// a thread calibrates once a second; a converted time may therefore step by a few microseconds, backwards too. Bounds:
/// eight tiny kernels a second. Threads: ToTime from any. Errors: a failed calibration is reported to `on_error`, and
/// the thread ends.
class CudaClock {
 public:
  using ErrorHandler = std::function<void(const absl::Status&)>;

  CudaClock(int ordinal, const Clock& clock, ErrorHandler on_error);
  ~CudaClock();

  /// Makes stream and memory, calibrates, and starts the thread. Once, before any other method.
  absl::Status Start();
  Time ToTime(uint64_t stamp) const {
    return Time::FromNanoseconds(static_cast<int64_t>(stamp) + offset_ns_.load(std::memory_order_relaxed));
  }

 private:
  absl::Status Calibrate();
  void Run();

  const int ordinal_;
  const Clock& clock_;
  const ErrorHandler on_error_;
  // Used by Start, then by the thread only.
  cudaStream_t stream_ = nullptr;
  uint64_t* stamp_ = nullptr;
  std::byte* stamp_on_device_ = nullptr;

  std::atomic<int64_t> offset_ns_ = 0;  ///< Host minus device.
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace sluice::gpu::cuda
