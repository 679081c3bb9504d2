// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::model {
namespace {

/// True when two requests that live at the same time share a byte.
bool AnyOverlap(const std::vector<MemoryRequest>& requests, const MemoryLayout& layout) {
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t j = i + 1; j < requests.size(); ++j) {
      const bool together =
          requests[i].first_launch <= requests[j].last_launch && requests[j].first_launch <= requests[i].last_launch;
      const bool shared = layout.offsets[i] < layout.offsets[j] + requests[j].size_bytes &&
                          layout.offsets[j] < layout.offsets[i] + requests[i].size_bytes;
      if (together && shared) return true;
    }
  }
  return false;
}

TEST(MemoryPlanTest, RandomRequestsNeverOverlapAndNeverExceedTheSum) {
  // Goal: the two promises of the planner hold for any lifetimes. Method: 300 seeded random sets of requests; every
  // pair is compared, and the total with the sum and with the most that is alive at once.
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<MemoryRequest> requests(1 + random() % 60);
    size_t sum = 0;
    for (MemoryRequest& request : requests) {
      request.size_bytes = random() % 5 == 0 ? 0 : random() % 10'000;
      request.first_launch = random() % 40;
      request.last_launch = request.first_launch + random() % 12;
      sum += AlignUp(request.size_bytes, 64);
    }
    const MemoryLayout layout = PlanMemory(requests, 64);
    ASSERT_FALSE(AnyOverlap(requests, layout)) << "seed " << seed;
    ASSERT_LE(layout.total_bytes, sum) << "seed " << seed;
    size_t most_alive = 0;
    for (size_t launch = 0; launch < 60; ++launch) {
      size_t alive = 0;
      for (const MemoryRequest& request : requests) {
        if (request.first_launch <= launch && launch <= request.last_launch) alive += AlignUp(request.size_bytes, 64);
      }
      most_alive = std::max(most_alive, alive);
    }
    ASSERT_GE(layout.total_bytes, most_alive) << "seed " << seed;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(layout.offsets[i] % 64, 0u);
      ASSERT_LE(layout.offsets[i] + requests[i].size_bytes, layout.total_bytes);
    }
  }
}

TEST(MemoryPlanTest, ReusesMemoryOfWhatIsDead) {
  // Goal: a chain needs the memory of two neighbours, not of all. Method: ten equal requests, each alive for two
  // launches.
  std::vector<MemoryRequest> requests;
  for (size_t i = 0; i < 10; ++i) requests.push_back({1024, i, i + 1});
  EXPECT_EQ(PlanMemory(requests, 256).total_bytes, 2048u);
}

TEST(MemoryPlanTest, PrefersTheSmallestGapThatFits) {
  // Goal: best fit, not first fit. Method: two gaps of 512 and 256 bytes; a request of 256 must take the second.
  const std::vector<MemoryRequest> requests = {
      {2048, 0, 9},  // 0
      {1024, 0, 0},  // gap of 1024 afterwards
      {960, 0, 9},   // 3072
      {256, 0, 0},   // gap of 256 afterwards
      {192, 0, 9},   // behind it
      {128, 5, 5},
  };
  const MemoryLayout layout = PlanMemory(requests, 64);
  EXPECT_FALSE(AnyOverlap(requests, layout));
  EXPECT_EQ(layout.offsets[5], layout.offsets[3]);
}

TEST(MemoryPlanTest, NothingTakesNothing) {
  // Goal: empty sets and empty requests are legal. Method: both.
  EXPECT_EQ(PlanMemory({}, 64).total_bytes, 0u);
  const std::vector<MemoryRequest> requests = {{0, 0, 3}, {0, 1, 1}};
  EXPECT_EQ(PlanMemory(requests, 64).total_bytes, 0u);
}

}  // namespace
}  // namespace sluice::model
