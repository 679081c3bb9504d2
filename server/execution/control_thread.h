// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace sluice::server {

/// One thread that does what it is given, one after another, in order. Purpose: what takes longer than an I/O thread
/// may. Bounds: `most_waiting` pieces of work wait. Ownership: of the work. Threads: any method from any thread; only
/// Stop blocks, for the work that runs. Work is called without a lock. Errors: handed to the work itself.
class ControlThread {
 public:
  /// Called exactly once: with OK on the thread, to be done; with UNAVAILABLE on whatever thread found that it will not
  /// be.
  using Work = absl::AnyInvocable<void(const absl::Status&)>;

  ControlThread(absl::string_view name, size_t most_waiting) : name_(name), most_waiting_(most_waiting) {}
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;
  ~ControlThread() { Stop(); }

  /// Begins, with `first` if there is any; what was posted before has waited for it. Once.
  void Start(Work first = nullptr) ABSL_LOCKS_EXCLUDED(mutex_, stop_mutex_);
  void Post(Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Beyond the bound, before all other work, and until Stop; later ones are done at once on the calling thread.
  void PostCleanup(absl::AnyInvocable<void()> cleanup) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Refuses what waits and whatever comes; cleanups go on.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  /// Drains, and ends the thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_, stop_mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string name_;
  const size_t most_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Work> work_ ABSL_GUARDED_BY(mutex_);
  std::deque<absl::AnyInvocable<void()>> cleanups_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex stop_mutex_;                            // held while the thread is started or joined; before mutex_
  Thread thread_ ABSL_GUARDED_BY(stop_mutex_);  // last: it uses all of the above
};

}  // namespace sluice::server
