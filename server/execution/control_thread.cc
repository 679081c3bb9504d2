// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/control_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

/// As batch request threads: it gives way to everything that serves.
constexpr int kNice = 5;

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace

void ControlThread::Start(Work first) {
  bool draining = false;
  {
    MutexLock stop_lock(stop_mutex_);
    {
      MutexLock lock(mutex_);
      draining = draining_;
      if (!draining && first != nullptr) work_.push_front(std::move(first));
    }
    if (!draining)
      thread_ = Thread(
          name_, [this] { Run(); }, kNice);
  }
  if (draining && first != nullptr) first(ShuttingDown());
}

void ControlThread::Post(Work work) {
  absl::Status refusal;
  {
    MutexLock lock(mutex_);
    if (draining_) {
      refusal = ShuttingDown();
    } else if (work_.size() >= most_waiting_) {
      refusal = absl::UnavailableError(
          absl::StrCat(most_waiting_, " calls wait already for what ", name_, " does; try again later"));
    } else {
      work_.push_back(std::move(work));
    }
  }
  refusal.ok() ? changed_.NotifyOne() : work(refusal);
}

void ControlThread::PostCleanup(absl::AnyInvocable<void()> cleanup) {
  {
    MutexLock lock(mutex_);
    if (!stopping_) {
      cleanups_.push_back(std::move(cleanup));
      cleanup = nullptr;
    }
  }
  cleanup == nullptr ? changed_.NotifyOne() : cleanup();
}

void ControlThread::Drain() {
  std::deque<Work> refused;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    refused.swap(work_);
  }
  for (Work& work : refused) work(ShuttingDown());
}

void ControlThread::Stop() {
  Drain();
  MutexLock stop_lock(stop_mutex_);
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
  // Only when it never ran.
  std::deque<absl::AnyInvocable<void()>> left;
  {
    MutexLock lock(mutex_);
    left.swap(cleanups_);
  }
  for (auto& cleanup : left) cleanup();
}

void ControlThread::Run() {
  while (true) {
    Work work;
    absl::AnyInvocable<void()> cleanup;
    {
      MutexLock lock(mutex_);
      while (cleanups_.empty() && work_.empty() && !stopping_) changed_.Wait(mutex_);
      if (!cleanups_.empty()) {
        cleanup = std::move(cleanups_.front());
        cleanups_.pop_front();
      } else if (!work_.empty()) {
        work = std::move(work_.front());
        work_.pop_front();
      } else {
        return;
      }
    }
    cleanup != nullptr ? cleanup() : work(absl::OkStatus());
  }
}

}  // namespace sluice::server
