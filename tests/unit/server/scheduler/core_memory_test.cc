// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Requests whose responses need memory: when there is none they wait in the queue, in nobody's way, and not for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scheduler/core.h"
#include "tests/unit/server/scheduler/core_fixture.h"

namespace sluice::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CoreMemoryTest : public CoreTest {
 protected:
  void SetUp() override { Make(CoreOptions{.response_wait = absl::Milliseconds(100)}); }

  void Submit(uint64_t id, size_t response_bytes, Time arrival = AtMs(0), ModelId model = kModel) {
    QueuedRequest request = Request(id, arrival);
    request.response_bytes = response_bytes;
    request.model = model;
    ASSERT_EQ(SubmitAt(request, arrival), Refusal::kNone);
  }
  /// Picks with `room_` bytes of memory.
  std::vector<uint64_t> Pick(Time now) {
    const std::optional<scheduler::Pick> pick = core_->PickNext(now, [this](size_t bytes) {
      if (bytes > room_) return false;
      room_ -= bytes;
      return true;
    });
    std::vector<uint64_t> ids;
    if (!pick.has_value()) return ids;
    last_execution_ = pick->execution;
    reserved_ = pick->response_bytes;
    for (const RequestId id : pick->requests) ids.push_back(id.value());
    return ids;
  }
  size_t room_ = 0;
  size_t reserved_ = 0;
};

TEST_F(CoreMemoryTest, WhatNeedsMemoryWaitsAndBlocksNothing) {
  // Goal: no head-of-line block by a request without memory, in its own model or another. Method: it has the earliest
  // deadline of three; then memory comes.
  core_->AddModel(kModel, {.max_concurrent_executions = 8});
  core_->AddModel(kOther, {.max_concurrent_executions = 8});
  Submit(1, 10);
  Submit(2, 0);
  Submit(3, 0, AtMs(0), kOther);
  EXPECT_THAT(Pick(AtMs(1)), ElementsAre(2));
  EXPECT_THAT(Pick(AtMs(1)), ElementsAre(3));
  EXPECT_THAT(Pick(AtMs(1)), IsEmpty());
  EXPECT_TRUE(core_->starved());
  EXPECT_TRUE(core_->NextPick().is_infinite()) << "only memory helps";
  room_ = 10;
  EXPECT_THAT(Pick(AtMs(50)), ElementsAre(1));
  EXPECT_EQ(reserved_, 10u);
  EXPECT_EQ(room_, 0u);
  EXPECT_FALSE(core_->starved());
  EXPECT_THAT(ExpireIds(AtMs(5'000)), IsEmpty()) << "it runs";
}

TEST_F(CoreMemoryTest, GivesUpAfterTheWait) {
  // Goal: a bounded wait, counted from when the group first had no memory or from arrival if that is later; an honest
  // answer. Method: two requests that starve together and one that comes later.
  core_->AddModel(kModel, {.max_concurrent_executions = 8});
  Submit(1, 10);
  Submit(2, 10);
  EXPECT_TRUE(core_->NextExpiry().is_infinite());
  EXPECT_THAT(Pick(AtMs(20)), IsEmpty());
  EXPECT_EQ(core_->NextExpiry(), AtMs(120));
  Submit(3, 10, AtMs(70));
  EXPECT_EQ(core_->NextExpiry(), AtMs(120));
  EXPECT_THAT(Pick(AtMs(119)), IsEmpty());
  const std::vector<Expired> expired = core_->Expire(AtMs(120));
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].reason, ExpiryReason::kResponseWait);
  EXPECT_EQ(expired[0].place, RequestPlace::kQueued);
  EXPECT_EQ(core_->NextExpiry(), AtMs(170));
  EXPECT_THAT(ExpireIds(AtMs(169)), IsEmpty());
  EXPECT_THAT(ExpireIds(AtMs(170)), ElementsAre(3));
  EXPECT_FALSE(core_->starved());
  EXPECT_TRUE(core_->NextExpiry().is_infinite());
  EXPECT_EQ(core_->counts().queued, 0u);
  const absl::Status answer = ExpiryStatus(ExpiryReason::kResponseWait);
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer.message()), HasSubstr("Request timeout expired"));
}

TEST_F(CoreMemoryTest, ProgressStartsTheWaitAnew) {
  // Goal: a queue whose responses are read is only slow. Method: memory for one every 90 ms, with a wait of 100 ms.
  core_->AddModel(kModel, {.max_concurrent_executions = 8});
  for (uint64_t id = 1; id <= 5; ++id) Submit(id, 10);
  for (uint64_t id = 1; id <= 5; ++id) {
    const Time now = AtMs(90 * static_cast<int64_t>(id));
    EXPECT_THAT(Pick(now), IsEmpty());
    EXPECT_THAT(ExpireIds(now + absl::Milliseconds(99)), IsEmpty());
    room_ = 10;
    EXPECT_THAT(Pick(now + absl::Milliseconds(89)), ElementsAre(id));
  }
}

TEST_F(CoreMemoryTest, MergesWhatTheMemoryAllows) {
  // Goal: an execution never has more than was reserved. Method: eight merge; memory for all, for three, for none.
  core_->AddModel(kModel, Merging(8));
  for (uint64_t id = 1; id <= 8; ++id) Submit(id, 10);
  room_ = 35;
  EXPECT_THAT(Pick(AtMs(1)), ElementsAre(1, 2));
  EXPECT_EQ(reserved_, 20u);
  EXPECT_THAT(Pick(AtMs(1)), ElementsAre(3));
  EXPECT_THAT(Pick(AtMs(1)), IsEmpty());
  room_ = 1000;
  EXPECT_THAT(Pick(AtMs(2)), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_EQ(reserved_, 50u);
}

TEST_F(CoreMemoryTest, CancelDeadlineAndRemovalEndTheWait) {
  // Goal: a request that starves leaves in every other way too, and leaves no trace. Method: one of each.
  core_->AddModel(kModel, {.max_concurrent_executions = 8});
  Submit(1, 10);
  EXPECT_THAT(Pick(AtMs(1)), IsEmpty());
  EXPECT_EQ(core_->Cancel(RequestId(1)), RequestPlace::kQueued);
  EXPECT_FALSE(core_->starved());
  QueuedRequest soon = Request(2);
  soon.response_bytes = 10;
  soon.deadline = AtMs(30);
  ASSERT_EQ(SubmitAt(soon, AtMs(2)), Refusal::kNone);
  EXPECT_THAT(Pick(AtMs(3)), IsEmpty());
  const std::vector<Expired> expired = core_->Expire(AtMs(30));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].reason, ExpiryReason::kDeadline);
  Submit(3, 10, AtMs(31));
  EXPECT_THAT(Pick(AtMs(31)), IsEmpty());
  EXPECT_THAT(core_->RemoveModel(kModel), ElementsAre(RequestId(3)));
  EXPECT_FALSE(core_->starved());
}

}  // namespace
}  // namespace sluice::scheduler
