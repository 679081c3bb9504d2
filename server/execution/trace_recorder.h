// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "gpu/timeline.h"

namespace sluice::server {

/// Turns the devices' timelines on for a while and hands over what they saw. Bounds: one recording at a time, each as
/// long as kLongest, and what the timelines hold. Ownership: timelines and clock must outlive it. Threads: AddDevice
/// before the others; Record blocks its caller; Stop from any thread. Errors: see Record.
class TraceRecorder {
 public:
  static constexpr absl::Duration kShortest = absl::Milliseconds(10);
  static constexpr absl::Duration kLongest = absl::Seconds(60);
  using ModelNames = absl::flat_hash_map<uint64_t, std::string>;

  explicit TraceRecorder(const Clock& clock) : clock_(clock) {}
  void AddDevice(std::string name, gpu::Timeline& timeline);

  /// Records for `duration`, shorter if Stop is called, and returns it as ToChromeTrace writes it. `names` is asked at
  /// the end. INVALID_ARGUMENT for a duration out of bounds; FAILED_PRECONDITION when the timelines hold nothing
  /// (--trace-records=0); ABORTED while another recording is under way; UNAVAILABLE after Stop.
  absl::StatusOr<std::string> Record(absl::Duration duration, absl::FunctionRef<ModelNames()> names)
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// True once a recording sees everything that begins from now on.
  bool recording() const;
  /// Ends a recording under way; later ones are refused. Idempotent, never blocks for long.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct RecordedDevice {
    std::string name;
    gpu::Timeline* timeline = nullptr;
  };
  /// Waits for the end of a recording.
  void Wait(Time until) ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock& clock_;
  std::vector<RecordedDevice> devices_;
  Mutex mutex_;
  CondVar stop_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::server
