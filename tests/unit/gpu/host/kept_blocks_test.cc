// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kept_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace sluice::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class KeptBlocksTest : public ::testing::Test {
 protected:
  KeptBlocks::Block Block(size_t index, size_t size_bytes) { return {&memory_[index], &memory_[index], size_bytes}; }
  std::array<std::byte, 8> memory_{};
};

TEST_F(KeptBlocksTest, GivesOutExactSizesOnlyAndTheNewestFirst) {
  KeptBlocks kept(1000);
  EXPECT_THAT(kept.Keep(Block(0, 100)), IsEmpty());
  EXPECT_THAT(kept.Keep(Block(1, 200)), IsEmpty());
  EXPECT_THAT(kept.Keep(Block(2, 100)), IsEmpty());
  EXPECT_EQ(kept.Take(99), std::nullopt);
  EXPECT_EQ(kept.Take(101), std::nullopt);
  EXPECT_EQ(kept.Take(100), Block(2, 100));
  EXPECT_EQ(kept.size_bytes(), 300u);
  EXPECT_EQ(kept.Take(100), Block(0, 100));
  EXPECT_EQ(kept.Take(100), std::nullopt) << "each once";
  EXPECT_EQ(kept.Take(200), Block(1, 200));
  EXPECT_EQ(kept.size_bytes(), 0u);
}

TEST_F(KeptBlocksTest, TheOldestGoWhenThereIsNoRoom) {
  KeptBlocks kept(1000);
  EXPECT_THAT(kept.Keep(Block(0, 400)), IsEmpty());
  EXPECT_THAT(kept.Keep(Block(1, 400)), IsEmpty());
  EXPECT_THAT(kept.Keep(Block(2, 700)), ElementsAre(Block(0, 400), Block(1, 400)));
  EXPECT_EQ(kept.size_bytes(), 700u);
  EXPECT_THAT(kept.Keep(Block(3, 300)), IsEmpty()) << "just as much as may be kept";
  EXPECT_THAT(kept.TakeAll(), ElementsAre(Block(2, 700), Block(3, 300)));
  EXPECT_EQ(kept.size_bytes(), 0u);
  EXPECT_THAT(kept.TakeAll(), IsEmpty());
}

TEST_F(KeptBlocksTest, WhatIsTooLargeIsNotKeptAndDrivesNothingOut) {
  KeptBlocks kept(1000);
  EXPECT_THAT(kept.Keep(Block(0, 600)), IsEmpty());
  EXPECT_THAT(kept.Keep(Block(1, 1001)), ElementsAre(Block(1, 1001)));
  EXPECT_EQ(kept.Take(600), Block(0, 600));
  KeptBlocks nothing(0);
  EXPECT_THAT(nothing.Keep(Block(0, 1)), ElementsAre(Block(0, 1)));
}

}  // namespace
}  // namespace sluice::gpu
