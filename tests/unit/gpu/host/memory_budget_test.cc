// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/memory_budget.h"

#include <limits>

#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

// Goal: the refusal says the whole sum, and changes nothing. Method: fill a limit by kind, ask for one byte too many.
TEST(MemoryBudgetTest, RefusesWithTheSum) {
  MemoryBudget budget({.name = "cuda:0", .total_limit = 1000});
  EXPECT_OK(budget.Reserve(100, MemoryKind::kWeights));
  EXPECT_OK(budget.Reserve(200, MemoryKind::kSlots));
  EXPECT_OK(budget.Reserve(300, MemoryKind::kOther));
  const MemoryUse before = budget.use();
  const auto refused = StatusIs(kExhausted, HasSubstr("cuda:0: 401 bytes for slots do not fit: limit 1000 bytes, 600 "
                                                      "bytes in use = weights 100 + slots 200 + other 300"));
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(budget.CheckFits(401, MemoryKind::kSlots), refused);
    EXPECT_THAT(budget.Reserve(401, MemoryKind::kSlots), refused);
  }
  EXPECT_EQ(budget.use(), before);
  EXPECT_OK(budget.CheckFits(400, MemoryKind::kSlots));
  EXPECT_EQ(budget.use(), before);
  EXPECT_OK(budget.Reserve(400, MemoryKind::kSlots));
  EXPECT_THAT(budget.Reserve(1, MemoryKind::kOther), StatusIs(kExhausted));
  budget.Release(600, MemoryKind::kSlots);
  EXPECT_EQ(budget.use().total(), 400u);
}

// Goal: the largest sizes there are neither wrap nor pass. Method: ask for them, with and without use.
TEST(MemoryBudgetTest, HugeSizesDoNotWrap) {
  MemoryBudget budget({.name = "x", .counted_limit = 1000});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(budget.Reserve(std::numeric_limits<size_t>::max(), MemoryKind::kOther), StatusIs(kExhausted));
    EXPECT_OK(budget.Reserve(1, MemoryKind::kOther));
  }
  EXPECT_EQ(budget.use().counted(), 2u);
}

// Goal: what the owner of the memory sees beyond our count is other, counts against the total and is asked for again
// before a refusal. Method: a probe with a number that changes.
TEST(MemoryBudgetTest, WhatIsNotCountedIsOther) {
  size_t used = 500;
  int asked = 0;
  MemoryBudget budget({.name = "cuda:0", .total_limit = 1000, .probe = [&]() -> absl::StatusOr<size_t> {
                         ++asked;
                         return used;
                       }});
  EXPECT_OK(budget.Reserve(200, MemoryKind::kWeights));
  EXPECT_EQ(budget.use().uncounted_bytes, 500u);
  used = 700;  // The driver has given the 200 bytes.
  EXPECT_OK(budget.Refresh());
  EXPECT_EQ(budget.use().uncounted_bytes, 500u);
  EXPECT_EQ(budget.use().of(MemoryKind::kOther), 500u);
  EXPECT_EQ(budget.use().total(), 700u);
  EXPECT_EQ(budget.limit_bytes(), 500u);
  EXPECT_THAT(budget.Reserve(301, MemoryKind::kSlots),
              StatusIs(kExhausted, HasSubstr("700 bytes in use = weights 200 + slots 0 + other 500")));
  used = 300;  // Somebody else has gone.
  const int before = asked;
  EXPECT_OK(budget.Reserve(301, MemoryKind::kSlots));
  EXPECT_EQ(asked, before + 1);
  EXPECT_OK(budget.Reserve(10, MemoryKind::kSlots));
  EXPECT_EQ(asked, before + 1) << "small reservations that fit do not ask";
}

// Goal: a probe that fails stops the reservation and counts nothing. Method: one that always fails.
TEST(MemoryBudgetTest, AProbeThatFailsReservesNothing) {
  MemoryBudget budget({.name = "x", .total_limit = 1000, .probe = []() -> absl::StatusOr<size_t> {
                         return absl::UnavailableError("gone");
                       }});
  EXPECT_THAT(budget.Reserve(1, MemoryKind::kOther), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(budget.use().counted(), 0u);
}

// Goal: a limit of counted bytes does not hold what others use against us, and says so. Method: both limits, each the
// nearer once.
TEST(MemoryBudgetTest, CountedLimitLeavesOthersOut) {
  size_t used = 5000;
  MemoryBudget budget(
      {.name = "host memory", .counted_limit = 100, .total_limit = 6000, .probe = [&]() -> absl::StatusOr<size_t> {
         return used;
       }});
  EXPECT_THAT(budget.Reserve(101, MemoryKind::kSlots),
              StatusIs(kExhausted, HasSubstr("limit 100 bytes, 0 bytes in use")));
  EXPECT_EQ(budget.limit_bytes(), 100u);
  used = 5950;
  EXPECT_OK(budget.Refresh());
  EXPECT_THAT(budget.Reserve(60, MemoryKind::kSlots),
              StatusIs(kExhausted, HasSubstr("limit 6000 bytes, 5950 bytes in use")));
  EXPECT_EQ(budget.limit_bytes(), 50u);
  used = 7000;
  EXPECT_OK(budget.Refresh());
  EXPECT_EQ(budget.limit_bytes(), 0u);
  EXPECT_THAT(budget.Reserve(1, MemoryKind::kSlots), StatusIs(kExhausted));
}

// Goal: two devices share what the machine has; what the parent refuses leaves no trace in the child. Method: two
// children of one parent.
TEST(MemoryBudgetTest, ChildrenShareTheirParentsLimit) {
  MemoryBudget parent({.name = "host memory", .counted_limit = 1000});
  MemoryBudget first({.name = "host:0", .parent = &parent});
  MemoryBudget second({.name = "host:1", .counted_limit = 700, .parent = &parent});
  EXPECT_EQ(first.limit_bytes(), 1000u);
  EXPECT_EQ(second.limit_bytes(), 700u);
  EXPECT_OK(first.Reserve(600, MemoryKind::kWeights));
  EXPECT_THAT(second.Reserve(401, MemoryKind::kSlots), StatusIs(kExhausted, HasSubstr("host memory: 401")));
  EXPECT_THAT(second.CheckFits(401, MemoryKind::kSlots), StatusIs(kExhausted));
  EXPECT_EQ(second.use().counted(), 0u);
  EXPECT_OK(second.Reserve(400, MemoryKind::kSlots));
  EXPECT_EQ(parent.use().counted(), 1000u);
  EXPECT_EQ(parent.use().of(MemoryKind::kSlots), 400u);
  first.Release(600, MemoryKind::kWeights);
  EXPECT_EQ(parent.use().counted(), 400u);
  EXPECT_THAT(second.Reserve(301, MemoryKind::kSlots), StatusIs(kExhausted, HasSubstr("host:1: 301")));
}

// Goal: whoever keeps memory gives it back before anything is refused, and only then. Method: a keeper whose bytes the
// probe sees.
TEST(MemoryBudgetTest, AsksForKeptMemoryBeforeItRefuses) {
  size_t kept = 600;
  int asked = 0;
  MemoryBudget parent({.name = "all", .total_limit = 1000, .probe = [&]() -> absl::StatusOr<size_t> { return kept; }});
  MemoryBudget budget({.name = "cuda:0", .parent = &parent});
  const auto reclaim = [&] {
    ++asked;
    kept = 0;
  };
  parent.AddReclaimer(&kept, reclaim);
  EXPECT_OK(budget.CheckFits(400, MemoryKind::kSlots));
  EXPECT_EQ(asked, 0) << "there is room";
  EXPECT_OK(budget.CheckFits(401, MemoryKind::kSlots));
  EXPECT_EQ(asked, 1);
  kept = 600;
  ASSERT_OK(parent.Refresh());
  EXPECT_OK(budget.Reserve(900, MemoryKind::kSlots));
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(budget.Reserve(200, MemoryKind::kSlots), StatusIs(kExhausted)) << "asked in vain";
  EXPECT_EQ(asked, 3);
  parent.RemoveReclaimer(&kept);
  EXPECT_THAT(budget.Reserve(200, MemoryKind::kSlots), StatusIs(kExhausted));
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace sluice::gpu
