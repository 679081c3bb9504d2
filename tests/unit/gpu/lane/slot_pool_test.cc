// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/slot_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "gpu/transfer.h"

namespace sluice::gpu {
namespace {

std::vector<std::unique_ptr<Slot>> EmptySlots(size_t count) {
  std::vector<std::unique_ptr<Slot>> slots(count);
  for (auto& slot : slots) slot = std::make_unique<Slot>();
  return slots;
}

TEST(SlotPoolTest, GivesEachSlotOnceAndTakesItBack) {
  // Goal: never more leases than slots, and a lease returns its slot when it
  // dies or is overwritten. Method: take all.
  SlotPool pool(EmptySlots(2));
  SlotLease first = pool.TryAcquire();
  SlotLease second = pool.TryAcquire();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE(first.get(), second.get());
  EXPECT_FALSE(pool.TryAcquire());
  const SlotLease moved = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): a moved-from lease is empty
  EXPECT_EQ(pool.free_count(), 0u);
  second = SlotLease();
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_TRUE(pool.TryAcquire());
}

TEST(SlotPoolTest, AcquireEndsAtTheDeadlineAndAtStop) {
  // Goal: a wait in vain is bounded. Method: no free slot; a deadline that has
  // passed, and a flag set meanwhile.
  const MonotonicClock clock{};
  SlotPool pool(EmptySlots(1));
  const SlotLease taken = pool.TryAcquire();
  EXPECT_FALSE(pool.Acquire(clock, clock.Now()));
  EXPECT_FALSE(pool.Acquire(clock, clock.Now() + absl::Milliseconds(1)));
  std::atomic<bool> stop = false;
  Thread stopper("stopper", [&stop] { stop = true; });
  EXPECT_FALSE(pool.Acquire(clock, Time::Infinite(), &stop));
}

TEST(SlotPoolTest, AcquireIsWokenByARelease) {
  // Goal: threads share one slot without end. Method: four threads, each takes
  // it many times; a lost wake-up hangs.
  const MonotonicClock clock{};
  SlotPool pool(EmptySlots(1));
  std::atomic<int> holders = 0;
  std::atomic<int> worst = 0;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("request", [&] {
        for (int round = 0; round < 2000; ++round) {
          const SlotLease lease = pool.Acquire(clock, Time::Infinite());
          if (holders.fetch_add(1) + 1 > 1) worst = 2;
          holders.fetch_sub(1);
        }
      });
    }
  }
  EXPECT_EQ(worst.load(), 0);
  EXPECT_EQ(pool.free_count(), 1u);
}

TEST(SlotPoolTest, ThoseWhoWaitComeFirst) {
  // Goal: a thread that takes slot after slot does not starve one that waits. Method: while one waits, a slot that is
  // given back is not to be had by TryAcquire.
  const MonotonicClock clock{};
  SlotPool pool(EmptySlots(1));
  SlotLease held = pool.TryAcquire();
  std::atomic<bool> stop = false;
  std::atomic<bool> got = false;
  std::atomic<bool> done = false;
  Thread waiter("waiter", [&] {
    const SlotLease lease = pool.Acquire(clock, Time::Infinite(), &stop);
    got = static_cast<bool>(lease);
    while (!done) std::this_thread::yield();
  });
  // Gives the slot back and tries to have it again, until the waiter was there in between.
  while (!got) {
    held = SlotLease();
    held = pool.TryAcquire();
    if (!held) break;
  }
  while (!got) EXPECT_FALSE(pool.TryAcquire()) << "it is the waiter's";
  EXPECT_FALSE(pool.TryAcquire());
  done = true;
}

TEST(SlotPoolTest, WhoGivesUpLeavesItsPlace) {
  // Goal: a wait that ended in vain keeps nobody from a slot. Method: a wait that is over at once, then a free slot.
  const MonotonicClock clock{};
  SlotPool pool(EmptySlots(1));
  SlotLease held = pool.TryAcquire();
  EXPECT_FALSE(pool.Acquire(clock, Time::Zero()));
  held = SlotLease();
  EXPECT_TRUE(pool.TryAcquire());
  EXPECT_TRUE(pool.Acquire(clock, Time::Zero())) << "a free slot needs no wait";
}

TEST(ChunkCursorTest, CoversEveryByteOnceInChunksOfAtMostTheBound) {
  constexpr size_t kChunkBytes = size_t{1} << 18;
  // Goal: chunks are bounded, never span tensors, skip empty ones. Method:
  // tensors around the bound; add up.
  std::vector<std::byte> memory(size_t{4} << 20);
  std::vector<SlotTensor> tensors;
  size_t offset = 0;
  for (const size_t size : {size_t{0}, size_t{10}, kChunkBytes, kChunkBytes + 1, size_t{0}}) {
    std::byte* data = memory.data() + offset;
    tensors.push_back({{data, data, size}, {data, size}});
    offset += size;
  }
  std::vector<size_t> sizes;
  const std::byte* next = memory.data();
  for (ChunkCursor cursor(tensors, kChunkBytes); !cursor.done();) {
    const Chunk chunk = cursor.Next();
    EXPECT_EQ(chunk.pinned.data, next);
    EXPECT_EQ(chunk.device.data, next);
    EXPECT_EQ(chunk.device.size_bytes, chunk.pinned.size_bytes);
    sizes.push_back(chunk.pinned.size_bytes);
    next += chunk.pinned.size_bytes;
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{10, kChunkBytes, kChunkBytes, 1}));
  EXPECT_TRUE(ChunkCursor().done());
}

}  // namespace
}  // namespace sluice::gpu
