// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Which requests share an execution, and how long they wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scheduler/core.h"
#include "tests/unit/server/scheduler/core_fixture.h"

namespace sluice::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MergeTest : public CoreTest {
 protected:
  void SubmitRows(uint64_t id, int64_t rows, Time arrival = AtMs(0)) {
    QueuedRequest request = Request(id, arrival);
    request.rows = rows;
    ASSERT_EQ(Submit(request), Refusal::kNone);
  }
  static ModelLimits Waiting(int64_t max_batch_rows, std::vector<int64_t> preferred,
                             absl::Duration delay = absl::Milliseconds(10)) {
    ModelLimits limits = Merging(max_batch_rows);
    limits.max_queue_delay = delay;
    limits.preferred_batch_sizes = std::move(preferred);
    return limits;
  }
};

TEST_F(MergeTest, LatencyMergesWhatWaitsAndNeverWaits) {
  // Goal: delay and preferred sizes mean nothing to the latency class. Method: both set; 3 of 8 rows wait.
  Make(RequestClass::kLatency).AddModel(kModel, Waiting(8, {8}));
  for (const uint64_t id : {1, 2, 3}) SubmitRows(id, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1, 2, 3));
  EXPECT_EQ(last_rows_, 3);
}

TEST_F(MergeTest, LatencyGoesPastPreferredSizes) {
  // Goal: latency takes all that fits, not a preferred part of it. Method: preferred 2, three wait.
  Make(RequestClass::kLatency).AddModel(kModel, Waiting(8, {2}));
  for (const uint64_t id : {1, 2, 3}) SubmitRows(id, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1, 2, 3));
}

TEST_F(MergeTest, StopsAtMaxBatchRows) {
  // Goal: the merging limit, in rows, keeping the order: nothing later slips past one that does not fit. Method:
  // 3+4+2+1 with 8.
  Make(RequestClass::kLatency).AddModel(kModel, Merging(8));
  SubmitRows(1, 3);
  SubmitRows(2, 4);
  SubmitRows(3, 2);
  SubmitRows(4, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1, 2));
  EXPECT_EQ(last_rows_, 7);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(3, 4));
}

TEST_F(MergeTest, MergingIsBoundedInRequests) {
  // Goal: a pick is bounded whatever max_batch_rows is. Method: one more than the bound waits.
  Make().AddModel(kModel, Merging(1'000'000));
  for (uint64_t id = 1; id <= SchedulerCore::kMaxMergedRequests + 1; ++id) SubmitRows(id, 1);
  EXPECT_EQ(PickIds(AtMs(0)).size(), SchedulerCore::kMaxMergedRequests);
  EXPECT_EQ(PickIds(AtMs(0)).size(), 1u);
}

TEST_F(MergeTest, LargeRequestRunsAlone) {
  // Goal: more rows than the limit is one execution by itself, at once. Method: 20 rows with 8, delay set, others wait.
  Make().AddModel(kModel, Waiting(8, {}));
  SubmitRows(1, 20);
  SubmitRows(2, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1));
  EXPECT_EQ(last_rows_, 20);
  EXPECT_THAT(PickIds(AtMs(0)), IsEmpty());
}

TEST_F(MergeTest, DoesNotMergeUnlessTheModelSaysSo) {
  // Goal: no dynamic batching, no merging, in any class. Method: rows would fit.
  for (const RequestClass request_class : kRequestClasses) {
    ModelLimits limits = Waiting(8, {});
    limits.merges_requests = false;
    Make(request_class).AddModel(kModel, limits);
    SubmitRows(1, 1);
    SubmitRows(2, 1);
    EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1)) << RequestClassName(request_class);
    EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(2)) << RequestClassName(request_class);
  }
}

TEST_F(MergeTest, NeverMergesModelsOrShapeBuckets) {
  // Goal: an execution has one model and one bucket. Method: three requests that differ in one of them.
  Make().AddModel(kModel, Merging(8));
  core_->AddModel(kOther, Merging(8));
  QueuedRequest other_bucket = Request(2), other_model = Request(3);
  other_bucket.shape_bucket = 1;
  other_model.model = kOther;
  SubmitRows(1, 1);
  ASSERT_EQ(Submit(other_bucket), Refusal::kNone);
  ASSERT_EQ(Submit(other_model), Refusal::kNone);
  SubmitRows(4, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1, 4));
  const std::optional<Pick> second = core_->PickNext(AtMs(0));
  ASSERT_TRUE(second.has_value());
  EXPECT_THAT(second->requests, ElementsAre(RequestId(2)));
  EXPECT_EQ(second->shape_bucket, 1u);
  EXPECT_EQ(second->model, kModel);
  const std::optional<Pick> third = core_->PickNext(AtMs(0));
  ASSERT_TRUE(third.has_value());
  EXPECT_THAT(third->requests, ElementsAre(RequestId(3)));
  EXPECT_EQ(third->model, kOther);
}

TEST_F(MergeTest, WithoutDelayTakesWhatWaits) {
  // Goal: no delay, no waiting. Method: 3 of 8 rows wait in a merging standard model.
  Make().AddModel(kModel, Merging(8));
  for (const uint64_t id : {1, 2, 3}) SubmitRows(id, 1);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1, 2, 3));
}

TEST_F(MergeTest, WaitsUpToTheDelayOfTheOldest) {
  // Goal: a part-filled batch waits for the oldest one's delay and no longer, and NextPick says until when. Method:
  // explicit times around the edge; the later request has the earlier deadline, so the head is not the oldest.
  for (const RequestClass request_class : {RequestClass::kStandard, RequestClass::kBatch}) {
    Make(request_class).AddModel(kModel, Waiting(8, {}));
    SubmitRows(1, 1, AtMs(0));
    EXPECT_EQ(core_->NextPick(), Time::Zero()) << "changed since the last pick";
    EXPECT_THAT(PickIds(AtMs(0)), IsEmpty());
    EXPECT_EQ(core_->NextPick(), AtMs(10));
    QueuedRequest later = Request(2, AtMs(4));
    later.deadline = AtMs(5'000);
    ASSERT_EQ(Submit(later), Refusal::kNone);
    EXPECT_THAT(PickIds(At(absl::Nanoseconds(9'999'999))), IsEmpty());
    EXPECT_EQ(core_->NextPick(), AtMs(10));
    EXPECT_THAT(PickIds(AtMs(10)), ElementsAre(2, 1));
  }
}

TEST_F(MergeTest, FullBatchGoesAtOnce) {
  // Goal: without preferred sizes the full size is preferred. Method: 7 rows wait, the eighth comes.
  Make().AddModel(kModel, Waiting(8, {}));
  SubmitRows(1, 7);
  ASSERT_THAT(PickIds(AtMs(0)), IsEmpty());
  SubmitRows(2, 1, AtMs(1));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(1, 2));
}

TEST_F(MergeTest, BatchThatCannotGrowGoesAtOnce) {
  // Goal: no waiting when the next request does not fit anyway. Method: 5 + 5 rows with 8.
  Make().AddModel(kModel, Waiting(8, {}));
  SubmitRows(1, 5);
  SubmitRows(2, 5);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1));
  EXPECT_THAT(PickIds(AtMs(0)), IsEmpty());
}

TEST_F(MergeTest, PreferredSizeGoesAtOnceAndLeavesTheRest) {
  // Goal: reaching a preferred size ends the wait, with exactly that size. Method: 5 rows with preferred 4 and 8.
  Make().AddModel(kModel, Waiting(16, {4, 8}));
  for (const uint64_t id : {1, 2, 3}) SubmitRows(id, 1);
  ASSERT_THAT(PickIds(AtMs(0)), IsEmpty());
  for (const uint64_t id : {4, 5}) SubmitRows(id, 1);
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(PickIds(AtMs(1)), IsEmpty()) << "the fifth waits for company again";
  EXPECT_THAT(PickIds(AtMs(10)), ElementsAre(5));
}

TEST_F(MergeTest, LargestPreferredSizeThatWaitsIsTaken) {
  // Goal: of several preferred sizes the largest. Method: 9 rows with preferred 4 and 8.
  Make().AddModel(kModel, Waiting(16, {4, 8}));
  for (uint64_t id = 1; id <= 9; ++id) SubmitRows(id, 1);
  ASSERT_EQ(PickIds(AtMs(1)).size(), 8u);
  EXPECT_EQ(last_rows_, 8);
}

TEST_F(MergeTest, AfterTheDelayEverythingThatFitsGoes) {
  // Goal: once the oldest has waited its delay, preferred sizes bind no longer. Method: 5 rows, preferred 4, late.
  Make().AddModel(kModel, Waiting(16, {4}));
  for (uint64_t id = 1; id <= 5; ++id) SubmitRows(id, 1);
  EXPECT_THAT(PickIds(AtMs(10)), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(MergeTest, RequestOfPreferredSizeGoesAloneAtOnce) {
  // Goal: a request that has the rows of a preferred size, or more than the largest, does not wait. Method: both.
  Make().AddModel(kModel, Waiting(16, {4}));
  SubmitRows(1, 4);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1));
  SubmitRows(2, 6);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(2));
}

TEST_F(MergeTest, StepPastThePreferredSizeGoesWithoutIt) {
  // Goal: when the next request would overshoot every preferred size, what came before goes. Method: 3 + 3,
  // preferred 4.
  Make().AddModel(kModel, Waiting(16, {4}));
  SubmitRows(1, 3);
  ASSERT_THAT(PickIds(AtMs(0)), IsEmpty());
  SubmitRows(2, 3);
  EXPECT_THAT(PickIds(AtMs(0)), ElementsAre(1));
}

TEST_F(MergeTest, WaitingForCompanyNeverMakesARequestLate) {
  // Goal: the hold ends before a queue limit or the latest start for a deadline. Method: limits shorter than the delay;
  // the model is known to take 2 ms.
  Make().AddModel(kModel, Waiting(8, {}, absl::Milliseconds(100)));
  QueuedRequest request = Request(1);
  request.queue_deadline = AtMs(30);
  ASSERT_EQ(Submit(request), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(0)), IsEmpty());
  EXPECT_EQ(core_->NextPick(), AtMs(30) - SchedulerCore::kHoldMargin);
  ASSERT_THAT(PickIds(AtMs(25)), ElementsAre(1));
  Complete(AtMs(27), absl::Milliseconds(2));

  QueuedRequest with_deadline = Request(2, AtMs(100));
  with_deadline.deadline = AtMs(140);
  ASSERT_EQ(Submit(with_deadline), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(100)), IsEmpty());
  EXPECT_EQ(core_->NextPick(), AtMs(138) - SchedulerCore::kHoldMargin);
  EXPECT_THAT(PickIds(AtMs(133)), ElementsAre(2));
}

TEST_F(MergeTest, WaitingModelDoesNotBlockOthers) {
  // Goal: a hold is the model's own. Method: the held request is the earliest, another model's is picked.
  Make().AddModel(kModel, Waiting(8, {}));
  core_->AddModel(kOther, Merging(8));
  SubmitRows(1, 1);
  QueuedRequest other = Request(2, AtMs(1));
  other.model = kOther;
  ASSERT_EQ(Submit(other), Refusal::kNone);
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(2));
  EXPECT_THAT(PickIds(AtMs(1)), IsEmpty());
  EXPECT_EQ(core_->NextWakeup(), AtMs(10));
}

TEST_F(MergeTest, CancelOfTheOldestRestartsTheWait) {
  // Goal: the hold follows who waits. Method: cancel the older of two.
  Make().AddModel(kModel, Waiting(8, {}));
  SubmitRows(1, 1, AtMs(0));
  SubmitRows(2, 1, AtMs(6));
  ASSERT_THAT(PickIds(AtMs(6)), IsEmpty());
  ASSERT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kQueued);
  EXPECT_THAT(PickIds(AtMs(10)), IsEmpty());
  EXPECT_EQ(core_->NextPick(), AtMs(16));
  EXPECT_THAT(PickIds(AtMs(16)), ElementsAre(2));
}

}  // namespace
}  // namespace sluice::scheduler
