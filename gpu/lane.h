// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/gate.h"
#include "gpu/progress.h"
#include "gpu/slot.h"
#include "gpu/timeline.h"
#include "gpu/transfer.h"

namespace sluice::gpu {

class Launcher;

/// Where one execution's device time went. gpu_wait is from submission to the first kernel's own stamp, without the
/// time of the copy in; compute is from the first stamp to the last.
struct StageTimes {
  absl::Duration h2d, gpu_wait, compute, d2h;
  /// Where they lie on the process's clock. compute_start is a stamp of the device; the other two only where the graph
  /// moves inputs and outputs itself, else they are what the host saw and good for a timeline only.
  Time submitted, h2d_start, compute_start, d2h_start;
  SpanClock copy_clock = SpanClock::kDeviceLength;
};

/// One slot in flight, from Begin to Finish. Owned by the request thread that runs it; not moved in between.
struct Execution {
  Slot* slot = nullptr;
  GateToken token;                          ///< Latency class only.
  const std::atomic<bool>* stop = nullptr;  ///< Looked at between units; may be null.
  uint64_t request = 0;                     ///< Its first request's id, for the timeline.
  // Set by the lane.
  Time submitted;
  bool entered_device = false;
  absl::Status status;
  StreamRef stream;            ///< Where it was issued.
  bool done_recorded = false;  ///< slot->done stands for everything that was issued.
  bool seen_over = false;      ///< Latency: the host has seen the end of all that was issued; nothing is left to await.
  Progress progress;           ///< Standard and batch.
  bool settled = false;        ///< Batch: the launcher has let go of it. Guarded by the launcher.
  Execution* next = nullptr;   ///< Batch: the launcher's queue.
};

struct LaneOptions {
  int latency_streams = 2;  ///< As many as request threads, or they take turns issuing; 1 to 64.
  /// So many latency threads poll while their execution is on the device, each taking a CPU; the others sleep, and wake
  /// some tens of microseconds late.
  int polling_threads = 0;
  Timeline* timeline = nullptr;                       ///< May be null; else it must outlive the lane.
  size_t chunk_bytes = TransferTuning().chunk_bytes;  ///< Standard: the most a copy moves at once.
};

/// One class on one device: its streams and how executions run on them. Purpose: turn a filled slot into outputs.
/// latency: everything issued at once on a high-priority stream. standard: units on the calling thread's per-thread
/// default stream, each asking the gate. batch: handed to the launcher, low-priority streams in rotation.
/// Bounds: executions in flight are bounded by the slots that exist. Threads: Begin and Finish of one execution are
/// called by the same request thread; different threads may run different slots at once. A thread has at most one
/// standard execution between Begin and Finish: its next Begin would wait at the gate for room that only its own Finish
/// returns. Errors: the device's; CANCELLED when `stop` was seen between units; UNAVAILABLE when the launcher was
/// stopped. After any error the slot is safe to reuse once Finish has returned, since Finish always waits for what was
/// launched.
class Lane {
 public:
  virtual ~Lane() = default;
  /// Everything passed in must outlive the lane.
  static absl::StatusOr<std::unique_ptr<Lane>> Create(RequestClass request_class, Device& device, Gate& gate,
                                                      Launcher& launcher, const Clock& clock,
                                                      const LaneOptions& options);
  RequestClass request_class() const { return request_class_; }
  /// Inputs are in slot.inputs' pinned spans. Issues copy in, kernels, copy out. Standard may block at the gate.
  virtual void Begin(Execution& execution) = 0;
  /// Waits for the slot's last event. On success the outputs are in slot.outputs' pinned spans. In any case a latency
  /// execution's token has been released. Once for each Begin.
  virtual absl::StatusOr<StageTimes> Finish(Execution& execution) = 0;
  /// The backend's numbers of this lane's streams, as read back. Standard: of the calling thread's stream.
  virtual absl::StatusOr<std::vector<int>> ReadPriorities() = 0;

 protected:
  explicit Lane(RequestClass request_class) : request_class_(request_class) {}

 private:
  const RequestClass request_class_;
};

}  // namespace sluice::gpu
