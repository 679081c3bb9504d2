// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gpu/device.h"
#include "gpu/host/host_device.h"
#include "gpu/host/host_stream_state.h"

namespace sluice::gpu::host {

/// The streams of one host device and the threads that run them.
///
/// Purpose: FIFO order inside a stream, priority between streams, completion and waiting. How it works: a stream counts
/// what was issued to it and what is over, so that an event is a point in a stream (HostMark) and recording one costs
/// nothing. Whatever the head of a stream is decides where the stream is: nowhere (empty), in an engine's ready list,
/// with an engine (running), or among the waiters of another stream. Settle moves it on. Bounds: HostDeviceOptions;
/// nothing is allocated after a stream was made, except by captures. Ownership: owns streams for its whole life (a
/// destroyed one is reused, so marks in it stay valid); events and graphs belong to the caller. Threads: every method
/// from any thread; one mutex, never held while a kernel or copy runs. Errors: as gpu::Device.
class HostStreams {
 public:
  HostStreams(const HostDeviceOptions& options, const Clock& clock);
  /// Waits for outstanding work, then joins the threads.
  ~HostStreams();
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;

  absl::StatusOr<HostStream*> Create(StreamPriority priority) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<HostStream*> ThreadStream() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Destroy(HostStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int> ReadPriority(HostStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);

  /// Records it when the stream is being captured; otherwise queues it, waiting while the stream's queue is full.
  absl::Status Issue(HostStream* stream, const HostNode& node) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status IssueGraph(HostStream* stream, HostGraph* graph) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Record(HostStream* stream, HostEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Record(HostStream* stream, HostTimedEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Wait(HostStream* stream, HostEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<bool> Query(HostEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Synchronize(HostEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Synchronize(HostTimedEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Synchronize(HostStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<absl::Duration> Elapsed(HostTimedEvent* start, HostTimedEvent* end) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status BeginCapture(HostStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<HostGraph>> EndCapture(HostStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Return when no queued work uses the object any more.
  void AwaitUnused(HostGraph* graph) ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitUnused(HostTimedEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  /// Drops what is queued, wakes everybody, and makes every later call UNAVAILABLE. The first reason is kept.
  void MarkLost(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  int live_stream_count() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum EngineIndex { kComputeEngine = 0, kToDeviceEngine = 1, kToHostEngine = 2, kEngineTotal = 3 };
  struct EngineQueue {
    HostStream* ready = nullptr;  ///< Sorted: the first one runs next.
    CondVar work;
  };
  struct ThreadStreamEntry {
    std::thread::id thread;
    HostStream* stream = nullptr;
  };

  // The issuing side (host_streams.cc).
  absl::StatusOr<HostStream*> CreateLocked(StreamPriority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckStream(const HostStream* stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNotCapturing(const HostStream* stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAlive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Push(HostStream* stream, const HostEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitForMark(HostMark mark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitUntilIdle(HostStream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The running side (host_engines.cc).
  void StartThreads();
  void RunEngine(EngineIndex engine) ABSL_LOCKS_EXCLUDED(mutex_);
  EngineIndex EngineOf(const HostNode& node) const;
  const HostNode& HeadNode(const HostStream* stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeReady(HostStream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Moves `stream`, and every stream that this lets go on, to where its head belongs.
  void Settle(HostStream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleOne(HostStream* stream, HostStream** released) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes the head off; streams that waited for it are put before `*released`.
  void Retire(HostStream* stream, HostStream** released) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const HostDeviceOptions options_;
  const Clock& clock_;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<HostStream>> streams_ ABSL_GUARDED_BY(mutex_);  ///< Live and reusable ones.
  std::vector<ThreadStreamEntry> thread_streams_ ABSL_GUARDED_BY(mutex_);
  std::array<EngineQueue, kEngineTotal> engines_ ABSL_GUARDED_BY(mutex_);
  CondVar unused_;  ///< A graph's last launch is over.
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string lost_reason_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> lost_ = false;  ///< Set under the mutex, read anywhere.

  std::vector<Thread> threads_;  ///< Last: they use everything above.
};

}  // namespace sluice::gpu::host
