// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/class_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "tests/support/fake_clock.h"

namespace sluice::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ModelId kModel{1};

/// What a queue holds here: counts how often it was answered.
struct Item {
  explicit Item(uint64_t id_in) : id(id_in) {}
  const uint64_t id;
  std::atomic<int> answers = 0;
};
using ItemHandle = std::shared_ptr<Item>;
using Queue = ClassQueue<ItemHandle>;

QueuedRequest Facts(uint64_t id, Time arrival) { return {.id = RequestId(id), .model = kModel, .arrival = arrival}; }

class ClassQueueTest : public ::testing::Test {
 protected:
  void Add(Queue& queue, int max_concurrent_executions = 1) {
    queue.AddModel(kModel, {.max_concurrent_executions = max_concurrent_executions});
  }
  ItemHandle Submit(Queue& queue, uint64_t id, Time deadline = Time::Infinite()) {
    auto item = std::make_shared<Item>(id);
    QueuedRequest facts = Facts(id, clock_.Now());
    facts.deadline = deadline;
    EXPECT_TRUE(queue.Submit(item, facts).admission.admitted());
    return item;
  }
  FakeClock clock_;
};

TEST_F(ClassQueueTest, RefusalGivesTheRequestBack) {
  // Goal: ownership in both outcomes. Method: a queue of one; the second comes back, and nothing else refers to it.
  Queue queue({.max_requests = 1}, clock_, nullptr);
  Add(queue);
  EXPECT_FALSE(queue.Submit(std::make_shared<Item>(1), Facts(1, clock_.Now())).refused.has_value());
  Queue::Submission second = queue.Submit(std::make_shared<Item>(2), Facts(2, clock_.Now()));
  EXPECT_EQ(second.admission.refusal, Refusal::kQueueFull);
  ASSERT_TRUE(second.refused.has_value());
  EXPECT_EQ((*second.refused)->id, 2u);
  EXPECT_EQ(second.refused->use_count(), 1);
}

TEST_F(ClassQueueTest, TakeHandsOutAndCompletionReturnsWhatIsUnanswered) {
  // Goal: the way of a request that succeeds; the queue keeps nothing. Method: one request, count references.
  Queue queue({}, clock_, nullptr);
  Add(queue);
  const ItemHandle item = Submit(queue, 7);
  std::optional<Queue::Execution> execution = queue.Take();
  ASSERT_TRUE(execution.has_value());
  EXPECT_THAT(execution->requests, ElementsAre(item));
  EXPECT_EQ(queue.counts().executing_requests, 1u);
  EXPECT_THAT(queue.OnCompleted(execution->pick.execution, absl::Milliseconds(3)), ElementsAre(item));
  execution.reset();
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_EQ(queue.counts().executions, 0u);
}

TEST_F(ClassQueueTest, CancelHandsOutOnce) {
  // Goal: queued and executing are handed out once, and completion then returns nothing. Method: one of each.
  Queue queue({}, clock_, nullptr);
  Add(queue);
  const ItemHandle executing = Submit(queue, 1);
  const std::optional<Queue::Execution> execution = queue.Take();
  const ItemHandle waiting = Submit(queue, 2);
  const Queue::Cancellation first = queue.Cancel(RequestId(1));
  EXPECT_EQ(first.place, RequestPlace::kExecuting);
  EXPECT_EQ(first.request, executing);
  const Queue::Cancellation second = queue.Cancel(RequestId(2));
  EXPECT_EQ(second.place, RequestPlace::kQueued);
  EXPECT_EQ(second.request, waiting);
  EXPECT_EQ(queue.Cancel(RequestId(1)).place, RequestPlace::kUnknown);
  EXPECT_FALSE(queue.Cancel(RequestId(2)).request.has_value());
  EXPECT_THAT(queue.OnCompleted(execution->pick.execution, std::nullopt), IsEmpty());
}

TEST_F(ClassQueueTest, ExpireHandsOutWaitingAndExecuting) {
  // Goal: both kinds come out with their facts, once; a late completion is fine. Method: the clock moves past both.
  Queue queue({}, clock_, nullptr);
  Add(queue);
  const Time deadline = clock_.Now() + absl::Milliseconds(5);
  const ItemHandle executing = Submit(queue, 1, deadline);
  const std::optional<Queue::Execution> execution = queue.Take();
  const ItemHandle waiting = Submit(queue, 2, deadline);
  EXPECT_EQ(queue.NextExpiry(), deadline);
  clock_.Advance(absl::Milliseconds(5));
  const std::vector<Queue::Expiry> expired = queue.Expire(clock_.Now());
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].request, executing);
  EXPECT_EQ(expired[0].expired.place, RequestPlace::kExecuting);
  EXPECT_EQ(expired[1].request, waiting);
  EXPECT_EQ(expired[1].expired.place, RequestPlace::kQueued);
  EXPECT_THAT(queue.Expire(clock_.Now()), IsEmpty());
  EXPECT_THAT(queue.OnCompleted(execution->pick.execution, std::nullopt), IsEmpty());
}

TEST_F(ClassQueueTest, RemoveModelAndStopReturnWhatWaits) {
  // Goal: unload and stop hand every waiting request out; Stop is idempotent and final. Method: two models.
  Queue queue({}, clock_, nullptr);
  Add(queue);
  queue.AddModel(ModelId(2), {});
  const ItemHandle first = Submit(queue, 1);
  const ItemHandle second = std::make_shared<Item>(2);
  QueuedRequest facts = Facts(2, clock_.Now());
  facts.model = ModelId(2);
  ASSERT_TRUE(queue.Submit(second, facts).admission.admitted());
  EXPECT_THAT(queue.RemoveModel(kModel), ElementsAre(first));
  EXPECT_THAT(queue.Stop(), ElementsAre(second));
  EXPECT_THAT(queue.Stop(), IsEmpty());
  EXPECT_FALSE(queue.Take().has_value());
  queue.SetDraining(false);
  facts.id = RequestId(3);
  EXPECT_EQ(queue.Submit(second, facts).admission.refusal, Refusal::kDraining) << "stopped for good";
}

TEST_F(ClassQueueTest, DrainingEndsTheWaitForCompany) {
  // Goal: a thread that waits for a batch to fill is woken by draining. Method: a delay that never ends by the clock.
  Queue queue({}, clock_, nullptr);
  queue.AddModel(kModel, {.max_batch_rows = 8, .merges_requests = true, .max_queue_delay = absl::Hours(1)});
  const ItemHandle item = Submit(queue, 1);
  std::optional<Queue::Execution> execution;
  Thread taker("taker", [&] { execution = queue.Take(); });
  queue.SetDraining(true);
  taker.Join();
  ASSERT_TRUE(execution.has_value());
  EXPECT_THAT(execution->requests, ElementsAre(item));
}

TEST_F(ClassQueueTest, DelayEndsByTheClockWithoutAnotherEvent) {
  // Goal: Take wakes by itself when the wait for company is over. Method: the real clock and a delay of 1 ms; the test
  // hangs if it does not.
  const MonotonicClock clock;
  Queue queue({}, clock, nullptr);
  queue.AddModel(kModel, {.max_batch_rows = 8, .merges_requests = true, .max_queue_delay = absl::Milliseconds(1)});
  const auto item = std::make_shared<Item>(1);
  const Time arrival = clock.Now();
  ASSERT_TRUE(queue.Submit(item, Facts(1, arrival)).admission.admitted());
  ASSERT_TRUE(queue.Take().has_value());
  EXPECT_GE(clock.Now() - arrival, absl::Milliseconds(1));
}

TEST_F(ClassQueueTest, StopWakesEveryTaker) {
  // Goal: no thread is left behind. Method: several threads in Take, then Stop; the joins must return.
  Queue queue({}, clock_, nullptr);
  std::atomic<int> ended = 0;
  {
    std::vector<Thread> takers;
    for (int i = 0; i < 4; ++i) {
      takers.emplace_back("taker", [&, polls = i == 0] {
        while (queue.Take(polls).has_value()) {
        }
        ++ended;
      });
    }
    queue.Stop();
  }
  EXPECT_EQ(ended.load(), 4);
}

TEST_F(ClassQueueTest, ATakerThatMayPollNoMoreIsStillWoken) {
  // Goal: polling is turned off and on under takers without losing a request. Method: each request is submitted right
  // after a change; one taker takes them all.
  Queue queue({}, clock_, nullptr);
  Add(queue, /*max_concurrent_executions=*/100);
  constexpr int kRequests = 100;
  Thread taker("taker", [&] {
    for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(queue.Take(/*polls=*/true).has_value());
  });
  std::vector<ItemHandle> submitted;
  for (int i = 0; i < kRequests; ++i) {
    queue.SetPolling(i % 2 == 1);
    submitted.push_back(Submit(queue, static_cast<uint64_t>(i + 1)));
  }
  taker.Join();
}

TEST_F(ClassQueueTest, APollingTakerHandsTheWatchOver) {
  // Goal: a request that nobody was woken for, since a thread polled, is not forgotten when that thread leaves with
  // another one. Method: one taker polls, one sleeps, neither completes what it took; both requests must be taken.
  Queue queue({}, clock_, nullptr);
  Add(queue, /*max_concurrent_executions=*/2);
  std::optional<Queue::Execution> executions[2];
  Thread polls("polls", [&] { executions[0] = queue.Take(/*polls=*/true); });
  Thread sleeps("sleeps", [&] { executions[1] = queue.Take(); });
  const ItemHandle first = Submit(queue, 1);
  const ItemHandle second = Submit(queue, 2);
  polls.Join();
  sleeps.Join();
  EXPECT_TRUE(executions[0].has_value() && executions[1].has_value());
}

TEST_F(ClassQueueTest, EveryRequestIsAnsweredOnceUnderContention) {
  // Goal: exactly one answer each with submitters, takers, cancellers and expiry at once. Method: real threads and the
  // real clock; random limits and cancellations; at the end every item has one answer.
  const MonotonicClock clock;
  ExpiryThread expiry(clock);
  Queue queue({.max_requests = 64}, clock, &expiry);
  queue.AddModel(kModel, {.max_batch_rows = 4,
                          .merges_requests = true,
                          .max_queue_delay = absl::Microseconds(50),
                          .max_concurrent_executions = 2});
  const int source = expiry.Register([&] { return queue.NextExpiry(); },
                                     [&](Time now) {
                                       for (const Queue::Expiry& e : queue.Expire(now)) ++e.request->answers;
                                     });
  constexpr int kSubmitters = 3;
  constexpr uint64_t kEach = 2'000;
  std::vector<ItemHandle> items(kSubmitters * kEach);
  std::vector<Thread> takers;
  for (int i = 0; i < 3; ++i) {
    takers.emplace_back("taker", [&, polls = i == 0] {
      while (std::optional<Queue::Execution> execution = queue.Take(polls)) {
        for (const ItemHandle& item : queue.OnCompleted(execution->pick.execution, std::nullopt)) ++item->answers;
      }
    });
  }
  {
    std::vector<Thread> submitters;
    for (int s = 0; s < kSubmitters; ++s) {
      submitters.emplace_back("submitter", [&, s] {
        for (uint64_t i = 0; i < kEach; ++i) {
          const uint64_t id = static_cast<uint64_t>(s) * kEach + i + 1;
          items[id - 1] = std::make_shared<Item>(id);
          QueuedRequest facts = Facts(id, clock.Now());
          if (id % 3 == 0) facts.deadline = facts.arrival + absl::Microseconds(20 * (id % 7));
          if (id % 5 == 0) facts.queue_deadline = facts.arrival + absl::Microseconds(30);
          Queue::Submission submission = queue.Submit(items[id - 1], facts);
          if (submission.refused.has_value()) ++(*submission.refused)->answers;
          if (id % 4 != 0) continue;
          const Queue::Cancellation cancelled = queue.Cancel(RequestId(id));
          if (cancelled.request.has_value()) ++(*cancelled.request)->answers;
        }
      });
    }
  }
  for (const ItemHandle& item : queue.Stop()) ++item->answers;
  takers.clear();
  expiry.Unregister(source);
  for (const Queue::Expiry& e : queue.Expire(clock.Now())) ++e.request->answers;
  for (const ItemHandle& item : items) {
    ASSERT_EQ(item->answers.load(), 1) << "request " << item->id;
    ASSERT_EQ(item.use_count(), 1) << "request " << item->id;
  }
}

/// Memory that a test gives out.
class TestMemory final : public ResponseMemory {
 public:
  bool TryReserve(size_t size_bytes) override {
    asked.fetch_add(1);
    size_t room = room_bytes.load();
    while (room >= size_bytes) {
      if (room_bytes.compare_exchange_weak(room, room - size_bytes)) return true;
    }
    return false;
  }
  std::atomic<size_t> room_bytes = 0;
  std::atomic<int> asked = 0;
};

TEST_F(ClassQueueTest, MemoryThatComesBackWakesWhoeverTakes) {
  // Goal: no thread is held by a request without memory, and none misses that there is some. Method: a thread takes
  // while there is none; it first gets the one that needs none, then, after MemoryFreed, the other.
  TestMemory memory;
  Queue queue({.response_wait = absl::Seconds(60)}, clock_, nullptr, &memory);
  Add(queue, 4);
  QueuedRequest large = Facts(1, clock_.Now());
  large.response_bytes = 100;
  ASSERT_TRUE(queue.Submit(std::make_shared<Item>(1), large).admission.admitted());
  Submit(queue, 2);
  std::vector<uint64_t> taken;
  std::atomic<int> count = 0;
  size_t reserved = 0;
  {
    Thread taker("taker", [&] {
      while (auto execution = queue.Take()) {
        taken.push_back(execution->requests.front()->id);
        reserved += execution->pick.response_bytes;
        queue.OnCompleted(execution->pick.execution, std::nullopt);
        count.fetch_add(1);
      }
    });
    while (count.load() < 1 || memory.asked.load() < 2) std::this_thread::yield();
    memory.room_bytes = 100;
    queue.MemoryFreed();
    while (count.load() < 2) std::this_thread::yield();
    queue.Stop();
  }
  EXPECT_THAT(taken, ElementsAre(2, 1));
  EXPECT_EQ(reserved, 100u);
}

TEST_F(ClassQueueTest, AWaitForMemoryEndsByExpiry) {
  // Goal: the expiry thread learns of a wait that only began when a thread looked. Method: it runs on a clock that this
  // test moves once the queue says when the wait ends.
  TestMemory memory;
  ExpiryThread expiry(clock_);
  Queue queue({.response_wait = absl::Milliseconds(50)}, clock_, &expiry, &memory);
  Add(queue);
  std::atomic<int> answered = 0;
  const int id = expiry.Register([&] { return queue.NextExpiry(); },
                                 [&](Time now) {
                                   for (const auto& expired : queue.Expire(now)) {
                                     EXPECT_EQ(expired.expired.reason, ExpiryReason::kResponseWait);
                                     answered.fetch_add(1);
                                   }
                                 });
  QueuedRequest large = Facts(1, clock_.Now());
  large.response_bytes = 100;
  ASSERT_TRUE(queue.Submit(std::make_shared<Item>(1), large).admission.admitted());
  {
    Thread taker("taker", [&] { EXPECT_FALSE(queue.Take().has_value()); });
    while (queue.NextExpiry().is_infinite()) std::this_thread::yield();
    clock_.Advance(absl::Milliseconds(50));
    expiry.Poke(Time::Zero());
    while (answered.load() < 1) std::this_thread::yield();
    queue.Stop();
  }
  expiry.Unregister(id);
  EXPECT_EQ(queue.counts().queued, 0u);
}

}  // namespace
}  // namespace sluice::scheduler
