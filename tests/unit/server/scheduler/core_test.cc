// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/scheduler/core_fixture.h"

namespace sluice::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ModelLimits kAlone{.max_concurrent_executions = 8};

TEST_F(CoreTest, PicksEarliestDeadlineFirst) {
  // Goal: order by deadline, not by arrival. Method: submit in an order that differs from the deadlines'.
  Make().AddModel(kModel, kAlone);
  for (const auto& [id, deadline_ms] : {std::pair{1, 300}, {2, 100}, {3, 200}}) {
    QueuedRequest request = Request(id);
    request.deadline = AtMs(deadline_ms);
    ASSERT_EQ(Submit(request), Refusal::kNone);
  }
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(2));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(3));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_THAT(PickIds(AtMs(1)), IsEmpty());
}

TEST_F(CoreTest, RequestWithoutDeadlineCountsAsArrivalPlusHorizon) {
  // Goal: no deadline is a deadline 60 s after arrival, in order only. Method: one on each side of a request without.
  Make().AddModel(kModel, kAlone);
  QueuedRequest later = Request(1), without = Request(2), sooner = Request(3);
  later.deadline = AtMs(60'001);
  sooner.deadline = AtMs(59'999);
  ASSERT_EQ(Submit(later), Refusal::kNone);
  ASSERT_EQ(Submit(without), Refusal::kNone);
  ASSERT_EQ(Submit(sooner), Refusal::kNone);
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(3));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(2));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_THAT(ExpireIds(AtMs(600'000)), ElementsAre(3, 1)) << "the horizon is no deadline";
}

TEST_F(CoreTest, EqualDeadlinesKeepSubmissionOrder) {
  // Goal: ties are first come, first served. Method: equal deadlines, ids in falling order.
  Make().AddModel(kModel, kAlone);
  for (const uint64_t id : {9, 5, 7}) ASSERT_EQ(Submit(Request(id)), Refusal::kNone);
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(9));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(5));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(7));
}

TEST_F(CoreTest, ModelAtItsConcurrencyDoesNotBlockOthers) {
  // Goal: no head-of-line block. Method: the earliest request's model is fully busy; another model's goes.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  core_->AddModel(kOther, kAlone);
  QueuedRequest first = Request(1), second = Request(2), other = Request(3);
  first.deadline = AtMs(100);
  second.deadline = AtMs(110);
  other.deadline = AtMs(500);
  other.model = kOther;
  ASSERT_EQ(Submit(first), Refusal::kNone);
  ASSERT_EQ(Submit(second), Refusal::kNone);
  ASSERT_EQ(Submit(other), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  const ExecutionId busy = last_execution_;
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(3));
  EXPECT_THAT(PickIds(AtMs(1)), IsEmpty());
  EXPECT_TRUE(core_->NextPick().is_infinite()) << "only a completion helps";
  core_->OnCompleted(busy, AtMs(2), absl::Milliseconds(1));
  EXPECT_THAT(PickIds(AtMs(2)), ElementsAre(2));
}

TEST_F(CoreTest, ClassQueueIsBoundedInRequests) {
  // Goal: the bound holds, full answers at once with Triton's token, room comes back. Method: fill, pick one, retry.
  Make({.max_requests = 2}).AddModel(kModel, kAlone);
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  ASSERT_EQ(Submit(Request(2)), Refusal::kNone);
  EXPECT_EQ(Submit(Request(3)), Refusal::kQueueFull);
  EXPECT_EQ(core_->counts().queued, 2u);
  EXPECT_EQ(RefusalStatus(Refusal::kQueueFull).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(RefusalStatus(Refusal::kQueueFull).message()), HasSubstr("Exceeds maximum queue size"));
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_EQ(Submit(Request(3)), Refusal::kNone) << "a request that executes waits no longer";
}

TEST_F(CoreTest, ExpiredButUnreportedRequestsStillTakeRoom) {
  // Goal: memory stays bounded when nobody calls Expire. Method: let the only place expire, pick (nothing), resubmit.
  Make({.max_requests = 1}).AddModel(kModel, kAlone);
  QueuedRequest request = Request(1);
  request.deadline = AtMs(10);
  ASSERT_EQ(Submit(request), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(10)), IsEmpty());
  EXPECT_EQ(core_->counts().queued, 0u);
  EXPECT_EQ(SubmitAt(Request(2), AtMs(10)), Refusal::kQueueFull);
  EXPECT_EQ(core_->NextExpiry(), Time::Zero()) << "there is something to report at once";
  EXPECT_THAT(ExpireIds(AtMs(10)), ElementsAre(1));
  EXPECT_EQ(SubmitAt(Request(2), AtMs(10)), Refusal::kNone);
}

TEST_F(CoreTest, ModelQueueIsBoundedByItself) {
  // Goal: max_queue_size binds one model only, with the same token. Method: fill one model, submit to both.
  Make().AddModel(kModel, {.max_queue_size = 1, .max_concurrent_executions = 1});
  core_->AddModel(kOther, kAlone);
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  EXPECT_EQ(Submit(Request(2)), Refusal::kModelQueueFull);
  EXPECT_EQ(core_->queued_count(kModel), 1u);
  QueuedRequest other = Request(3);
  other.model = kOther;
  EXPECT_EQ(Submit(other), Refusal::kNone);
  EXPECT_EQ(RefusalStatus(Refusal::kModelQueueFull).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(RefusalStatus(Refusal::kModelQueueFull).message()), HasSubstr("Exceeds maximum queue size"));
}

TEST_F(CoreTest, QueueIsBoundedInBytes) {
  // Goal: the byte bound is exact and gives RESOURCE_EXHAUSTED; a huge size does not overflow it. Method: edge values.
  Make({.max_bytes = 100}).AddModel(kModel, kAlone);
  QueuedRequest request = Request(1);
  request.bytes = 60;
  ASSERT_EQ(Submit(request), Refusal::kNone);
  request.id = RequestId(2);
  request.bytes = 41;
  EXPECT_EQ(Submit(request), Refusal::kBytesFull);
  request.bytes = SIZE_MAX;
  EXPECT_EQ(Submit(request), Refusal::kBytesFull);
  request.bytes = 40;
  EXPECT_EQ(Submit(request), Refusal::kNone);
  EXPECT_EQ(core_->counts().queued_bytes, 100u);
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kQueued);
  EXPECT_EQ(core_->counts().queued_bytes, 40u);
  EXPECT_EQ(RefusalStatus(Refusal::kBytesFull).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CoreTest, RefusesUnknownModelDuplicateIdAndPassedLimits) {
  // Goal: each reason is named, and nothing is kept of a refused request. Method: one submission per reason.
  Make().AddModel(kModel, kAlone);
  QueuedRequest unknown = Request(1);
  unknown.model = ModelId(77);
  EXPECT_EQ(Submit(unknown), Refusal::kUnknownModel);
  QueuedRequest late = Request(1);
  late.deadline = late.arrival;
  EXPECT_EQ(Submit(late), Refusal::kDeadlinePassed);
  QueuedRequest timed_out = Request(1);
  timed_out.queue_deadline = timed_out.arrival;
  EXPECT_EQ(Submit(timed_out), Refusal::kQueueTimeoutPassed);
  EXPECT_THAT(std::string(RefusalStatus(Refusal::kQueueTimeoutPassed).message()), HasSubstr("Request timeout expired"));
  EXPECT_EQ(core_->counts().queued, 0u);
  EXPECT_TRUE(core_->NextWakeup().is_infinite());
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  EXPECT_EQ(Submit(Request(1)), Refusal::kDuplicateId);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_EQ(Submit(Request(1)), Refusal::kDuplicateId) << "also while it executes";
}

TEST_F(CoreTest, QueueLimitRunsUntilExecutionStarts) {
  // Goal: the queue limit expires a waiting request with Triton's token and never an executing one. Method: one each.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  QueuedRequest first = Request(1), second = Request(2);
  first.queue_deadline = second.queue_deadline = AtMs(10);
  ASSERT_EQ(Submit(first), Refusal::kNone);
  ASSERT_EQ(Submit(second), Refusal::kNone);
  EXPECT_EQ(core_->NextExpiry(), AtMs(10));
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_THAT(ExpireIds(At(absl::Nanoseconds(9'999'999))), IsEmpty());
  const std::vector<Expired> expired = core_->Expire(AtMs(10));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].id, RequestId(2));
  EXPECT_EQ(expired[0].place, RequestPlace::kQueued);
  EXPECT_EQ(expired[0].reason, ExpiryReason::kQueueTimeout);
  EXPECT_EQ(ExpiryStatus(ExpiryReason::kQueueTimeout).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ExpiryStatus(ExpiryReason::kQueueTimeout).message(), "Request timeout expired");
  EXPECT_THAT(Complete(AtMs(20)), ElementsAre(RequestId(1)));
}

TEST_F(CoreTest, DeadlineRunsToTheEnd) {
  // Goal: an executing request expires at its deadline, once, and is then not completed. Method: expire, complete.
  Make().AddModel(kModel, kAlone);
  QueuedRequest request = Request(1);
  request.deadline = AtMs(10);
  ASSERT_EQ(Submit(request), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_EQ(core_->NextExpiry(), AtMs(10));
  const std::vector<Expired> expired = core_->Expire(AtMs(10));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].place, RequestPlace::kExecuting);
  EXPECT_EQ(expired[0].reason, ExpiryReason::kDeadline);
  EXPECT_EQ(ExpiryStatus(ExpiryReason::kDeadline).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ExpireIds(AtMs(11)), IsEmpty());
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kUnknown) << "it has been answered";
  EXPECT_EQ(core_->counts().executing_requests, 1u) << "its slot is still busy";
  EXPECT_THAT(Complete(AtMs(12)), IsEmpty());
  EXPECT_EQ(core_->counts().executing_requests, 0u);
}

TEST_F(CoreTest, TheLimitThatCameFirstNamesTheReason) {
  // Goal: the reason is the earlier limit, even when both have passed. Method: both orders, noticed late.
  Make().AddModel(kModel, kAlone);
  QueuedRequest queue_first = Request(1), deadline_first = Request(2);
  queue_first.queue_deadline = AtMs(10);
  queue_first.deadline = AtMs(20);
  deadline_first.queue_deadline = AtMs(40);
  deadline_first.deadline = AtMs(30);
  ASSERT_EQ(Submit(queue_first), Refusal::kNone);
  ASSERT_EQ(Submit(deadline_first), Refusal::kNone);
  const std::vector<Expired> expired = core_->Expire(AtMs(1'000));
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].reason, ExpiryReason::kQueueTimeout);
  EXPECT_EQ(expired[1].reason, ExpiryReason::kDeadline);
}

TEST_F(CoreTest, NeverPicksWhatHasExpired) {
  // Goal: no execution for a request nobody waits for, and it blocks nobody. Method: the head has just expired.
  Make().AddModel(kModel, kAlone);
  QueuedRequest expired = Request(1), good = Request(2);
  expired.deadline = AtMs(10);
  ASSERT_EQ(Submit(expired), Refusal::kNone);
  ASSERT_EQ(Submit(good), Refusal::kNone);
  EXPECT_THAT(PickIds(AtMs(10)), ElementsAre(2));
  EXPECT_THAT(ExpireIds(AtMs(10)), ElementsAre(1));
}

TEST_F(CoreTest, ExpiryFoundByPickIsReportedEvenAfterCompletion) {
  // Goal: exactly once across Pick, Expire and OnCompleted. Method: the deadline passes, Pick notices, it completes.
  Make().AddModel(kModel, kAlone);
  QueuedRequest request = Request(1);
  request.deadline = AtMs(10);
  ASSERT_EQ(Submit(request), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  const ExecutionId execution = last_execution_;
  ASSERT_THAT(PickIds(AtMs(11)), IsEmpty());
  EXPECT_THAT(core_->OnCompleted(execution, AtMs(12), absl::Milliseconds(1)), IsEmpty());
  EXPECT_THAT(ExpireIds(AtMs(12)), ElementsAre(1));
}

TEST_F(CoreTest, CancelInEachState) {
  // Goal: queued is removed, executing is flagged once, unknown is told. Method: one request through each.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  QueuedRequest executing = Request(1);
  executing.deadline = AtMs(50);
  ASSERT_EQ(Submit(executing), Refusal::kNone);
  ASSERT_EQ(Submit(Request(2)), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  EXPECT_EQ(core_->Cancel(RequestId(2)), RequestPlace::kQueued);
  EXPECT_EQ(core_->Cancel(RequestId(2)), RequestPlace::kUnknown);
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kExecuting);
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kUnknown);
  EXPECT_EQ(core_->Cancel(RequestId(99)), RequestPlace::kUnknown);
  EXPECT_THAT(ExpireIds(AtMs(60)), IsEmpty()) << "a cancelled request does not expire as well";
  EXPECT_THAT(Complete(AtMs(61)), IsEmpty()) << "nor complete";
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kUnknown);
  EXPECT_EQ(core_->counts().queued, 0u);
}

TEST_F(CoreTest, CancelOfTheHeadLetsTheNextOneLead) {
  // Goal: removal from the middle and from the head keeps the order. Method: cancel both, then pick.
  Make().AddModel(kModel, kAlone);
  for (const uint64_t id : {1, 2, 3, 4}) ASSERT_EQ(Submit(Request(id)), Refusal::kNone);
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kQueued);
  EXPECT_EQ(core_->Cancel(RequestId(3)), RequestPlace::kQueued);
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(2));
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(4));
}

TEST_F(CoreTest, DrainingRefusesNewAndRunsOld) {
  // Goal: draining stops admission only, and no longer waits for company. Method: a held request, then drain.
  ModelLimits limits = Merging(8);
  limits.max_queue_delay = absl::Milliseconds(100);
  Make().AddModel(kModel, limits);
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), IsEmpty());
  core_->SetDraining(true);
  EXPECT_EQ(Submit(Request(2)), Refusal::kDraining);
  EXPECT_EQ(RefusalStatus(Refusal::kDraining).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(core_->NextPick(), Time::Zero());
  EXPECT_THAT(PickIds(AtMs(1)), ElementsAre(1));
}

TEST_F(CoreTest, TakeQueuedEmptiesTheQueueOnly) {
  // Goal: what waits comes out, what executes goes on, nothing is left to expire. Method: both kinds, two models.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  core_->AddModel(kOther, kAlone);
  QueuedRequest other = Request(3);
  other.model = kOther;
  other.deadline = AtMs(70'000);
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  ASSERT_EQ(Submit(Request(2)), Refusal::kNone);
  ASSERT_EQ(Submit(other), Refusal::kNone);
  EXPECT_THAT(core_->TakeQueued(), ::testing::UnorderedElementsAre(RequestId(2), RequestId(3)));
  EXPECT_EQ(core_->counts().queued, 0u);
  EXPECT_THAT(ExpireIds(AtMs(100'000)), IsEmpty());
  EXPECT_THAT(Complete(AtMs(100'000)), ElementsAre(RequestId(1)));
}

TEST_F(CoreTest, RemoveModelReturnsItsRequestsAndLetsItsExecutionsEnd) {
  // Goal: unload answers what waits of that model only, and an execution still completes. Method: both, two buckets.
  Make().AddModel(kModel, {.max_concurrent_executions = 1});
  core_->AddModel(kOther, kAlone);
  QueuedRequest other = Request(4), bucket = Request(3);
  other.model = kOther;
  bucket.shape_bucket = 5;
  ASSERT_EQ(Submit(Request(1)), Refusal::kNone);
  ASSERT_THAT(PickIds(AtMs(1)), ElementsAre(1));
  const ExecutionId execution = last_execution_;
  ASSERT_EQ(Submit(Request(2)), Refusal::kNone);
  ASSERT_EQ(Submit(bucket), Refusal::kNone);
  ASSERT_EQ(Submit(other), Refusal::kNone);
  EXPECT_FALSE(core_->AddModel(kModel, {})) << "known already";
  EXPECT_THAT(core_->RemoveModel(kModel), ElementsAre(RequestId(2), RequestId(3)));
  EXPECT_EQ(Submit(Request(5)), Refusal::kUnknownModel);
  EXPECT_THAT(PickIds(AtMs(2)), ElementsAre(4));
  EXPECT_THAT(core_->OnCompleted(execution, AtMs(3), absl::Milliseconds(1)), ElementsAre(RequestId(1)));
  EXPECT_THAT(core_->OnCompleted(execution, AtMs(3), absl::Milliseconds(1)), IsEmpty()) << "ends once";
  EXPECT_TRUE(core_->AddModel(kModel, {})) << "forgotten with its last execution";
}

TEST_F(CoreTest, RefusalNamesAreLabels) {
  // Goal: metric labels are stable words. Method: the whole table; the two deadline reasons share one.
  EXPECT_EQ(RefusalName(Refusal::kQueueFull), "queue_full");
  EXPECT_EQ(RefusalName(Refusal::kModelQueueFull), "model_queue_full");
  EXPECT_EQ(RefusalName(Refusal::kBytesFull), "bytes_full");
  EXPECT_EQ(RefusalName(Refusal::kDeadlinePassed), "deadline");
  EXPECT_EQ(RefusalName(Refusal::kDeadlineUnreachable), "deadline");
  EXPECT_EQ(RefusalName(Refusal::kQueueTimeoutPassed), "queue_timeout");
  EXPECT_EQ(RefusalName(Refusal::kUnknownModel), "unknown_model");
  EXPECT_EQ(RefusalName(Refusal::kDraining), "draining");
  EXPECT_TRUE(RefusalStatus(Refusal::kNone).ok());
  EXPECT_EQ(RefusalStatus(Refusal::kDeadlineUnreachable).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RefusalStatus(Refusal::kDuplicateId).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice::scheduler
