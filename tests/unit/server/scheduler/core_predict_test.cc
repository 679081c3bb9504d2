// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Admission by prediction: a request whose deadline cannot be met is refused when it comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scheduler/core.h"
#include "tests/unit/server/scheduler/core_fixture.h"

namespace sluice::scheduler {
namespace {

using ::testing::ElementsAre;

class PredictTest : public CoreTest {
 protected:
  /// One execution of one row that takes `duration`, ending at `now`.
  void Teach(absl::Duration duration, Time now, ModelId model = kModel) {
    QueuedRequest request = Request(next_id_++, now);
    request.model = model;
    ASSERT_EQ(Submit(request), Refusal::kNone);
    ASSERT_FALSE(PickIds(now).empty());
    Complete(now, duration);
  }
  QueuedRequest WithDeadline(Time arrival, absl::Duration left) {
    QueuedRequest request = Request(next_id_++, arrival);
    request.deadline = arrival + left;
    return request;
  }
  uint64_t next_id_ = 1;
};

TEST_F(PredictTest, RefusesADeadlineShorterThanTheExecution) {
  // Goal: own time counts, to the edge; nothing is refused before something was measured. Method: 10 ms learnt.
  Make().AddModel(kModel, {.max_concurrent_executions = 2});
  QueuedRequest early = WithDeadline(AtMs(0), absl::Nanoseconds(1));
  ASSERT_EQ(Submit(early), Refusal::kNone) << "no prediction, no refusal";
  ASSERT_EQ(core_->Cancel(early.id), RequestPlace::kQueued);
  Teach(absl::Milliseconds(10), AtMs(1));
  EXPECT_EQ(core_->PredictedExecution(kModel, 1), absl::Milliseconds(10));
  EXPECT_EQ(Submit(WithDeadline(AtMs(2), absl::Milliseconds(9))), Refusal::kDeadlineUnreachable);
  EXPECT_EQ(core_->counts().queued, 0u);
  EXPECT_EQ(Submit(WithDeadline(AtMs(2), absl::Milliseconds(10))), Refusal::kNone);
}

TEST_F(PredictTest, CountsOnlyTheWorkAheadOfIt) {
  // Goal: queued work with earlier deadlines counts, later does not (the new request overtakes it). Method: 3 x 10 ms.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  Teach(absl::Milliseconds(10), AtMs(0));
  for (const int left_ms : {35, 36, 200}) {
    ASSERT_EQ(Submit(WithDeadline(AtMs(1), absl::Milliseconds(left_ms))), Refusal::kNone);
  }
  EXPECT_EQ(core_->PredictedDelay(AtMs(1)), absl::Milliseconds(30));
  EXPECT_EQ(Submit(WithDeadline(AtMs(1), absl::Milliseconds(28))), Refusal::kNone) << "overtakes all";
  // 40 ms of work, and the headroom of what waits.
  EXPECT_EQ(Submit(WithDeadline(AtMs(1), absl::Milliseconds(47))), Refusal::kDeadlineUnreachable) << "3 ahead";
  EXPECT_EQ(Submit(WithDeadline(AtMs(1), absl::Milliseconds(49))), Refusal::kNone) << "3 ahead, just fits";
}

TEST_F(PredictTest, CountsTheRestOfWhatExecutes) {
  // Goal: a running execution's remaining time counts when every place is taken. Method: started at 1 ms, 10 ms long.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  Teach(absl::Milliseconds(10), AtMs(0));
  QueuedRequest running = Request(50, AtMs(1));
  ASSERT_EQ(Submit(running), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(50));
  EXPECT_EQ(core_->PredictedDelay(AtMs(5)), absl::Milliseconds(6));
  // 6 ms of it and 10 of its own, and the headroom.
  EXPECT_EQ(Submit(WithDeadline(AtMs(5), absl::Milliseconds(19))), Refusal::kDeadlineUnreachable);
  EXPECT_EQ(Submit(WithDeadline(AtMs(5), absl::Milliseconds(20))), Refusal::kNone);
  EXPECT_EQ(core_->PredictedDelay(AtMs(500)), absl::Milliseconds(10)) << "an overdue execution counts as nothing";
}

TEST_F(PredictTest, FreePlaceMeansNoWait) {
  // Goal: with two places and one taken a request starts at once. Method: as above with two.
  Make({.max_concurrent_executions = 2}).AddModel(kModel, {.max_concurrent_executions = 2});
  Teach(absl::Milliseconds(10), AtMs(0));
  ASSERT_EQ(Submit(Request(50, AtMs(1))), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(50));
  EXPECT_EQ(Submit(WithDeadline(AtMs(1), absl::Milliseconds(10))), Refusal::kNone);
}

TEST_F(PredictTest, CallersPredictionCounts) {
  // Goal: the caller's wait and execution bind like learnt ones. Method: a model that is known to take 1 ms.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  Teach(absl::Milliseconds(1), AtMs(0));
  const QueuedRequest request = WithDeadline(AtMs(1), absl::Milliseconds(5));
  EXPECT_EQ(core_->Submit(request, AtMs(1), {.wait = absl::Milliseconds(5)}).refusal, Refusal::kDeadlineUnreachable);
  EXPECT_EQ(core_->Submit(request, AtMs(1), {.execution = absl::Milliseconds(6)}).refusal,
            Refusal::kDeadlineUnreachable);
  EXPECT_EQ(core_->Submit(request, AtMs(1), {.wait = absl::Milliseconds(4)}).refusal, Refusal::kNone);
}

TEST_F(PredictTest, OldPredictionsLetOneRequestThroughToMeasureAgain) {
  // Goal: a prediction that is too high cannot refuse for ever. Method: after the lifetime, one probe, then refusals
  // until it has been measured.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  Teach(absl::Milliseconds(100), AtMs(0));
  EXPECT_EQ(Submit(WithDeadline(AtMs(999), absl::Milliseconds(10))), Refusal::kDeadlineUnreachable);
  const QueuedRequest probe = WithDeadline(AtMs(1'000), absl::Milliseconds(10));
  EXPECT_EQ(Submit(probe), Refusal::kNone);
  EXPECT_EQ(Submit(WithDeadline(AtMs(1'001), absl::Milliseconds(10))), Refusal::kDeadlineUnreachable);
  ASSERT_THAT(PickIds(AtMs(1'001)), ElementsAre(probe.id.value()));
  Complete(AtMs(1'002), absl::Milliseconds(1));
  EXPECT_LT(core_->PredictedExecution(kModel, 1), absl::Milliseconds(100));
}

TEST_F(PredictTest, FailedExecutionsTeachNothing) {
  // Goal: an execution without a measurement leaves predictions alone. Method: complete with nothing.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(0)), ElementsAre(1));
  Complete(AtMs(50));
  EXPECT_EQ(core_->PredictedExecution(kModel, 1), absl::ZeroDuration());
  EXPECT_EQ(core_->PredictedExecution(ModelId(99), 1), absl::ZeroDuration());
}

TEST_F(PredictTest, AnExecutionCutShortTeachesThatItTakesLonger) {
  // Goal: predictions that are too low rise also when no execution ends in time; what was cut short earlier than
  // predicted says nothing. Method: 10 ms learnt; an execution expires and ends after 20 ms, another after 5.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  Teach(absl::Milliseconds(10), AtMs(0));
  const QueuedRequest late = WithDeadline(AtMs(1), absl::Milliseconds(19));
  ASSERT_EQ(Submit(late), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(late.id.value()));
  ASSERT_EQ(core_->Expire(AtMs(20)).size(), 1u);
  Complete(AtMs(21));
  const absl::Duration learnt = core_->PredictedExecution(kModel, 1);
  EXPECT_GT(learnt, absl::Milliseconds(11));
  const QueuedRequest cancelled = Request(90, AtMs(30));
  ASSERT_EQ(Submit(cancelled), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(30)), ElementsAre(90));
  ASSERT_EQ(core_->Cancel(cancelled.id), RequestPlace::kExecuting);
  Complete(AtMs(35));
  EXPECT_EQ(core_->PredictedExecution(kModel, 1), learnt);
}

TEST_F(PredictTest, MergedWorkIsNotCountedTwice) {
  // Goal: requests that will share an execution are predicted to share its time. Method: 8 rows measured at 10 ms;
  // seven single rows wait; an eighth with 19 ms left is not refused.
  Make().AddModel(kModel, Merging(8));
  QueuedRequest full = Request(100);
  full.rows = 8;
  ASSERT_EQ(Submit(full), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(0)), ElementsAre(100));
  Complete(AtMs(10), absl::Milliseconds(10));
  for (int i = 0; i < 7; ++i) ASSERT_EQ(Submit(WithDeadline(AtMs(11), absl::Milliseconds(18))), Refusal::kNone);
  EXPECT_LE(core_->PredictedDelay(AtMs(11)), absl::Milliseconds(10));
  EXPECT_EQ(Submit(WithDeadline(AtMs(11), absl::Milliseconds(19))), Refusal::kNone);
}

}  // namespace
}  // namespace sluice::scheduler
