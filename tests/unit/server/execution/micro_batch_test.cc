// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: every row of an execution goes through exactly one slot, with the padding the class wants, and tensors that
// arrive in pieces are put together byte for byte. Method: tables, and all row counts up to a bound.
#include "server/execution/micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> RowCounts(int64_t rows, std::vector<int64_t> plan_rows, RequestClass request_class) {
  std::vector<int64_t> counts;
  for (const MicroBatch& part : CutRows(rows, plan_rows, request_class)) counts.push_back(part.row_count);
  return counts;
}

TEST(CutRows, BatchFillsPlansLargestFirst) {
  EXPECT_THAT(RowCounts(7, {1, 2, 4}, RequestClass::kBatch), ElementsAre(4, 2, 1));
  EXPECT_THAT(RowCounts(8, {1, 2, 4}, RequestClass::kBatch), ElementsAre(4, 4));
  EXPECT_THAT(RowCounts(3, {2, 8}, RequestClass::kBatch), ElementsAre(2, 1));
}

TEST(CutRows, LatencyTakesOnePaddedPlanRatherThanTwoRuns) {
  EXPECT_THAT(RowCounts(3, {1, 2, 4}, RequestClass::kLatency), ElementsAre(3));
  EXPECT_EQ(CutRows(3, std::vector<int64_t>{1, 2, 4}, RequestClass::kLatency)[0].plan_index, 2u);
  EXPECT_THAT(RowCounts(6, {1, 2, 4}, RequestClass::kLatency), ElementsAre(4, 2));
}

TEST(CutRows, CoversEveryRowOnceInOrder) {
  for (const RequestClass request_class : kRequestClasses) {
    for (const auto& plan_rows : std::vector<std::vector<int64_t>>{{1}, {4}, {1, 3}, {2, 5, 16}}) {
      for (int64_t rows = 1; rows <= 40; ++rows) {
        int64_t next = 0;
        for (const MicroBatch& part : CutRows(rows, plan_rows, request_class)) {
          EXPECT_EQ(part.first_row, next);
          EXPECT_GE(part.row_count, 1);
          EXPECT_LE(part.row_count, plan_rows[part.plan_index]);
          next += part.row_count;
        }
        EXPECT_EQ(next, rows);
      }
    }
  }
}

TEST(CopyFromPieces, JoinsRangesAcrossPieces) {
  std::mt19937 random(7);
  std::vector<std::byte> whole(257);
  for (auto& byte : whole) byte = static_cast<std::byte>(random());
  const Bytes all(whole);
  const std::vector<Bytes> pieces = {all.subspan(0, 1), all.subspan(1, 0), all.subspan(1, 100), all.subspan(101)};
  for (size_t offset = 0; offset < whole.size(); ++offset) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{99}, whole.size() - offset}) {
      if (offset + count > whole.size()) continue;
      std::vector<std::byte> out(count);
      CopyFromPieces(pieces, offset, count, out.data());
      EXPECT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
  }
}

}  // namespace
}  // namespace sluice::server
