// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: work is done in order on one thread, or refused, and exactly one of the two, whatever ends the thread. Method:
// work that waits for the test holds the thread.
#include "server/execution/control_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What happened, in order, and a door that holds work.
class Events {
 public:
  void Add(const std::string& event) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    events_.push_back(event);
    changed_.NotifyAll();
  }
  void Await(size_t count) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (events_.size() < count) changed_.Wait(mutex_);
  }
  void PassDoor() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }
  void OpenDoor() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  std::vector<std::string> all() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return events_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class ControlThreadTest : public ::testing::Test {
 protected:
  ControlThread::Work Named(const std::string& name) {
    return [this, name](const absl::Status& status) { events_.Add(name + (status.ok() ? " done" : " refused")); };
  }
  /// Holds the thread until the door is open.
  void Hold() {
    thread_.Post([this](const absl::Status& status) {
      events_.Add(status.ok() ? "holds" : "hold refused");
      events_.PassDoor();
    });
    events_.Await(events_.all().size() + 1);
  }

  Events events_;
  ControlThread thread_{"control", 2};
};

TEST_F(ControlThreadTest, TheFirstComesBeforeWhatWaitedForIt) {
  thread_.Post(Named("early"));
  thread_.Start(Named("first"));
  events_.Await(2);
  EXPECT_THAT(events_.all(), ElementsAre("first done", "early done"));
}

TEST_F(ControlThreadTest, RefusesWhatIsTooMuchAndCleansUpFirst) {
  thread_.Start();
  Hold();
  thread_.Post(Named("a"));
  thread_.Post(Named("b"));
  absl::Status refusal;
  thread_.Post([&](const absl::Status& status) { refusal = status; });
  EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("2 calls wait already")));
  thread_.PostCleanup([this] { events_.Add("cleaned"); });
  events_.OpenDoor();
  events_.Await(4);
  EXPECT_THAT(events_.all(), ElementsAre("holds", "cleaned", "a done", "b done"));
}

TEST_F(ControlThreadTest, ADrainRefusesWhatWaitsAndLetsTheRestRun) {
  thread_.Start();
  Hold();
  thread_.Post(Named("a"));
  thread_.Drain();
  thread_.Post(Named("b"));
  EXPECT_THAT(events_.all(), ElementsAre("holds", "a refused", "b refused"));
  thread_.PostCleanup([this] { events_.Add("cleaned"); });
  events_.OpenDoor();
  events_.Await(4);
  thread_.Stop();
  thread_.PostCleanup([this] { events_.Add("cleaned here"); });
  EXPECT_THAT(events_.all(), ElementsAre("holds", "a refused", "b refused", "cleaned", "cleaned here"));
}

TEST_F(ControlThreadTest, OneThatNeverStartedAnswersToo) {
  thread_.Post(Named("a"));
  thread_.PostCleanup([this] { events_.Add("cleaned"); });
  thread_.Stop();
  thread_.Start(Named("first"));
  EXPECT_THAT(events_.all(), ElementsAre("a refused", "cleaned", "first refused"));
}

}  // namespace
}  // namespace sluice::server
