// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: standard and batch work runs in the bucket that the rule names. Method: tables of profiles, in microseconds.
#include "server/execution/row_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::server {
namespace {

using ::testing::DoubleNear;

constexpr absl::Duration kLimit = absl::Microseconds(60);

struct Row {
  int64_t rows;
  double whole_us;
  double longest_us;
};

std::vector<RowProfile> Profiles(const std::vector<Row>& rows) {
  std::vector<RowProfile> profiles;
  for (const Row& row : rows) {
    profiles.push_back({.rows = row.rows,
                        .whole = absl::Microseconds(row.whole_us),
                        .longest_unit = absl::Microseconds(row.longest_us),
                        .longest_kernel = "conv"});
  }
  return profiles;
}

struct Case {
  std::string name;
  std::vector<Row> rows;
  int64_t chosen;
  RowRule rule;
  double cost;
};

TEST(ChooseRows, FollowsTheTable) {
  const std::vector<Case> table = {
      {"one bucket within the limit", {{4, 100, 20}}, 4, RowRule::kThroughput, 0},
      {"one bucket beyond it", {{4, 100, 61}}, 4, RowRule::kUncuttable, 0},
      {"exactly at the limit", {{4, 100, 60}}, 4, RowRule::kThroughput, 0},
      {"shorter units at 97 % of the best", {{1, 100, 10}, {4, 103, 20}, {8, 200, 40}}, 4, RowRule::kThroughput, 0.029},
      {"just above 97 %", {{971, 1000, 10}, {2000, 2000, 50}}, 971, RowRule::kThroughput, 0.029},
      {"just below 97 %", {{969, 1000, 10}, {2000, 2000, 50}}, 2000, RowRule::kThroughput, 0},
      {"the larger bucket is slower", {{4, 100, 20}, {8, 300, 60}}, 4, RowRule::kThroughput, 0},
      {"equal units: more throughput", {{4, 101, 20}, {8, 200, 20}}, 8, RowRule::kThroughput, 0},
      {"equal in both: fewer rows", {{4, 100, 20}, {8, 200, 20}}, 4, RowRule::kThroughput, 0},
      // Unit length wins from here on.
      {"the best is too long", {{1, 100, 30}, {4, 200, 58}, {8, 360, 110}}, 4, RowRule::kUnitLimit, 0.1},
      {"throughput among those within", {{1, 50, 20}, {2, 90, 59}, {8, 160, 200}}, 2, RowRule::kUnitLimit, 0.556},
      {"not the shortest of those within", {{1, 100, 10}, {2, 150, 55}, {8, 300, 100}}, 2, RowRule::kUnitLimit, 0.5},
      // Nothing keeps to the limit.
      {"the shortest unit", {{1, 150, 100}, {4, 320, 250}}, 1, RowRule::kUncuttable, 0.467},
      {"nearly as short and fast", {{1, 150, 100}, {4, 320, 150}}, 4, RowRule::kUncuttable, 0},
      {"a little longer than nearly", {{1, 150, 100}, {4, 320, 151}}, 1, RowRule::kUncuttable, 0.467},
      {"nearly as short, faster, not fast",
       {{1, 150, 100}, {2, 200, 105}, {8, 400, 300}},
       2,
       RowRule::kUncuttable,
       0.5},
  };
  for (const Case& entry : table) {
    const std::vector<RowProfile> profiles = Profiles(entry.rows);
    const RowChoice choice = ChooseRows(profiles, kLimit);
    EXPECT_EQ(profiles[choice.index].rows, entry.chosen) << entry.name;
    EXPECT_EQ(RowRuleName(choice.rule), RowRuleName(entry.rule)) << entry.name;
    EXPECT_EQ(choice.uncuttable, entry.rule == RowRule::kUncuttable) << entry.name;
    EXPECT_THAT(choice.cost, DoubleNear(entry.cost, 0.001)) << entry.name;
  }
}

TEST(ChooseRows, TheLimitDecides) {
  const std::vector<RowProfile> profiles = Profiles({{1, 100, 30}, {4, 200, 58}, {8, 360, 110}});
  EXPECT_EQ(ChooseRows(profiles, absl::Microseconds(120)).index, 2u);
  EXPECT_EQ(ChooseRows(profiles, absl::Microseconds(60)).index, 1u);
  EXPECT_EQ(ChooseRows(profiles, absl::Microseconds(40)).index, 0u);
  EXPECT_TRUE(ChooseRows(profiles, absl::Microseconds(20)).uncuttable);
}

TEST(ChooseRows, TimesThatCannotBeMeasuredDivideByNothing) {
  const RowChoice choice = ChooseRows(Profiles({{1, 0, 0}, {2, 0, 0}}), kLimit);
  EXPECT_EQ(choice.index, 1u) << "two rows in no time are more than one";
  EXPECT_EQ(choice.cost, 0);
}

TEST(TakeRows, SaysWhatAGivenBucketCosts) {
  const RowChoice choice = TakeRows(Profiles({{1, 100, 30}, {4, 200, 58}}), 0, RowRule::kConfigured);
  EXPECT_EQ(choice.index, 0u);
  EXPECT_EQ(choice.rule, RowRule::kConfigured);
  EXPECT_THAT(choice.cost, DoubleNear(0.5, 1e-9));
  EXPECT_FALSE(choice.uncuttable);
}

}  // namespace
}  // namespace sluice::server
