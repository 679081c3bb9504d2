// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/class_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::rpc {
namespace {

constexpr auto L = RequestClass::kLatency;
constexpr auto S = RequestClass::kStandard;
constexpr auto B = RequestClass::kBatch;
constexpr auto kNone = std::nullopt;

server::ClassRules Rules(RequestClass default_class, uint64_t levels = 0, uint64_t default_level = 0,
                         std::vector<RequestClass> allowed = {}) {
  server::ClassRules rules;
  rules.default_class = default_class;
  rules.priority_levels = levels;
  rules.default_priority_level = default_level;
  rules.allowed = std::move(allowed);
  return rules;
}

struct Row {
  server::ClassRules rules;
  ClassWishes wishes;
  RequestClass wished;
  RequestClass used;
};

// Goal: the order of the rules and the meaning of every priority. Method: a table of rules, wishes and results.
TEST(ClassRules, Table) {
  const std::vector<Row> rows = {
      // Nothing said: the model's default.
      {Rules(S), {kNone, kNone, kNone}, S, S},
      {Rules(L), {kNone, kNone, kNone}, L, L},
      {Rules(B), {kNone, kNone, kNone}, B, B},
      // Metadata wins over everything.
      {Rules(B), {L, 3, S}, L, L},
      {Rules(L), {B, 1, L}, B, B},
      {Rules(L, 5, 3), {B, 1, L}, B, B},
      // Priority wins over port and default; without levels 1 is latency, 2 standard, 3 and above batch.
      {Rules(B), {kNone, 1, S}, L, L},
      {Rules(B), {kNone, 2, L}, S, S},
      {Rules(L), {kNone, 3, L}, B, B},
      {Rules(L), {kNone, ~uint64_t{0}, kNone}, B, B},
      // Priority 0 says nothing: port, then default.
      {Rules(B), {kNone, 0, L}, L, L},
      {Rules(B), {kNone, 0, kNone}, B, B},
      {Rules(B), {kNone, kNone, L}, L, L},
      // With levels: 0 and values above the last level mean the default level.
      {Rules(L, 5, 3), {kNone, 0, kNone}, S, S},
      {Rules(L, 5, 3), {kNone, 1, kNone}, L, L},
      {Rules(L, 5, 3), {kNone, 2, kNone}, S, S},
      {Rules(L, 5, 3), {kNone, 3, kNone}, S, S},
      {Rules(L, 5, 3), {kNone, 4, kNone}, B, B},
      {Rules(L, 5, 3), {kNone, 5, kNone}, B, B},
      {Rules(L, 5, 3), {kNone, 6, kNone}, S, S},
      {Rules(L, 2, 1), {kNone, 0, kNone}, L, L},
      {Rules(L, 2, 1), {kNone, 2, kNone}, B, B},
      {Rules(L, 2, 1), {kNone, 9, kNone}, L, L},
      {Rules(S, 2, 2), {kNone, 9, L}, S, S},
      // A class that is not allowed becomes the nearest lower one, else the nearest higher one.
      {Rules(S, 0, 0, {S, B}), {L, kNone, kNone}, L, S},
      {Rules(S, 0, 0, {B}), {L, kNone, kNone}, L, B},
      {Rules(S, 0, 0, {L, B}), {S, kNone, kNone}, S, B},
      {Rules(S, 0, 0, {L, S}), {B, kNone, kNone}, B, S},
      {Rules(S, 0, 0, {L}), {B, kNone, kNone}, B, L},
      {Rules(S, 0, 0, {B}), {kNone, 1, kNone}, L, B},
      {Rules(L, 0, 0, {B}), {kNone, kNone, kNone}, L, B},
      {Rules(S, 0, 0, {L, S, B}), {L, kNone, kNone}, L, L},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const ClassDecision decision = DecideClass(rows[i].rules, rows[i].wishes);
    EXPECT_EQ(decision.wished, rows[i].wished) << "row " << i;
    EXPECT_EQ(decision.used, rows[i].used) << "row " << i;
    EXPECT_EQ(decision.demoted(), rows[i].wished != rows[i].used) << "row " << i;
  }
}

// Goal: only the three words are classes. Method: each word, then near misses.
TEST(ClassRules, MetadataWords) {
  EXPECT_EQ(*ParseClassMetadata("latency"), L);
  EXPECT_EQ(*ParseClassMetadata("standard"), S);
  EXPECT_EQ(*ParseClassMetadata("batch"), B);
  for (const absl::string_view word : {"", "Latency", "latency ", "high", "0"}) {
    const absl::Status status = ParseClassMetadata(word).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << word;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("latency, standard or batch"));
  }
}

}  // namespace
}  // namespace sluice::rpc
