// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/lane.h"
#include "gpu/progress.h"
#include "gpu/timeline.h"
#include "gpu/transfer.h"

namespace sluice::gpu {

struct LauncherOptions {
  int stream_count = 2;                               ///< 2 to 4: executions whose copies and units overlap.
  bool spin = false;                                  ///< Polls while there is work instead of blocking; takes a CPU.
  Timeline* timeline = nullptr;                       ///< May be null; else it must outlive the launcher.
  size_t chunk_bytes = TransferTuning().chunk_bytes;  ///< The most a copy moves at once.
};

/// For metrics; `yields` counts waits for the gate with nothing in flight.
struct LauncherCounters {
  uint64_t executions = 0, yields = 0;
  std::array<UnitTimes, kEngineCount> engines;  ///< Only those no latency work disturbed.
};

/// The thread that makes a device's batch launches. Purpose: keep each engine's window full from several executions
/// while the gate lets it: 20 to 60 thousand units a second are too many for threads that block. Executions take turns,
/// each on a low-priority stream of its own, streams in rotation. Bounds: stream_count executions on the device;
/// those that wait for a stream are bounded by the slots that exist. Threads: one of its own; Submit and Await from
/// request threads. Its mutex is held for list changes only, never while calling the device. Errors: an execution's
/// error ends that execution only.
class Launcher {
 public:
  /// Everything passed in must outlive the launcher.
  static absl::StatusOr<std::unique_ptr<Launcher>> Create(Device& device, Gate& gate, const Clock& clock,
                                                          const LauncherOptions& options);
  ~Launcher() { Stop(); }

  /// Takes an execution; it belongs to the launcher until Await has returned. Never blocks. After Stop the execution is
  /// settled at once with UNAVAILABLE.
  void Submit(Execution& execution) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Blocks until the launcher has let go of it: everything issued and seen to be over, or its status says why not.
  void Await(Execution& execution) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Finishes what is on the device and ends the thread. Executions that have no stream yet, or that the gate refuses
  /// with nothing in flight, end with UNAVAILABLE. Idempotent; not from several threads at once.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  LauncherCounters counters() const;
  /// The backend's numbers of the streams, as read back.
  absl::StatusOr<std::vector<int>> ReadPriorities() const;

 private:
  struct Active {
    Execution* execution = nullptr;
    size_t stream_index = 0;
  };

  Launcher(Device& device, Gate& gate, const Clock& clock, const LauncherOptions& options);
  void Run();
  /// Moves executions from the queue to free streams. False when stopping and nothing is left.
  bool TakeSubmitted() ABSL_LOCKS_EXCLUDED(mutex_);
  void Activate(Execution& execution);
  /// One look at every active execution. True when anything moved.
  bool AdvanceAll();
  void SettleOver() ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportPending();
  void Block();

  Device& device_;
  Gate& gate_;
  const Clock& clock_;
  const LauncherOptions options_;
  GateWaiter waiter_;  ///< Also what Submit and Stop notify.
  LaneContext context_;
  std::vector<Stream> streams_;
  std::atomic<uint64_t> executions_ = 0;
  std::atomic<uint64_t> yields_ = 0;

  Mutex mutex_;
  CondVar settled_;
  Execution* first_queued_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Execution* last_queued_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  std::vector<Active> active_;  ///< Oldest first.
  std::vector<bool> stream_taken_;
  size_t next_stream_ = 0;
  size_t turn_ = 0;        ///< Which of active_ goes first; taken modulo its size.
  bool draining_ = false;  ///< What it last saw of stopping_.
  bool pending_ = false;   ///< What it last told the gate.
  bool armed_ = false;
  Time retry_at_ = Time::Infinite();

  Thread thread_;
};

}  // namespace sluice::gpu
