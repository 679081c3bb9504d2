// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/response_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace sluice::server {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr auto kLatency = RequestClass::kLatency;
constexpr auto kStandard = RequestClass::kStandard;
constexpr auto kBatch = RequestClass::kBatch;

/// Reserves and takes one buffer; empty when there is no room.
ResponseBuffer Get(ResponsePool& pool, RequestClass request_class, size_t bytes, size_t waiter = 0) {
  const size_t pooled = ResponsePool::PooledBytes(bytes);
  if (!pool.TryReserve(request_class, pooled, waiter)) return {};
  return pool.Adopt(request_class, pooled).Take(bytes);
}

size_t Used(const ResponsePool& pool) {
  size_t sum = 0;
  for (const RequestClass request_class : kRequestClasses) sum += pool.use(request_class).used_bytes;
  return sum;
}

TEST(ResponsePoolTest, SizesAreRoundedByAQuarterAtMost) {
  // Goal: few sizes, little waste. Method: small ones take nothing; others around every boundary.
  EXPECT_EQ(ResponsePool::PooledBytes(0), 0u);
  EXPECT_EQ(ResponsePool::PooledBytes(ResponsePool::kSmallBytes), 0u);
  EXPECT_EQ(ResponsePool::PooledBytes(ResponsePool::kSmallBytes + 1), 80u << 10);
  EXPECT_EQ(ResponsePool::PooledBytes(16 * kMiB), 16 * kMiB);
  EXPECT_EQ(ResponsePool::PooledBytes(16 * kMiB + 1), 20 * kMiB);
  for (size_t bytes = ResponsePool::kSmallBytes + 1; bytes < 64 * kMiB; bytes += bytes / 7) {
    const size_t pooled = ResponsePool::PooledBytes(bytes);
    EXPECT_GE(pooled, bytes);
    EXPECT_LE(pooled, bytes + bytes / 4 + 1);
    EXPECT_EQ(ResponsePool::PooledBytes(pooled), pooled) << "rounding again changes nothing";
  }
}

TEST(ResponsePoolTest, NeverMoreThanItsLimit) {
  // Goal: the bound holds and everything comes back. Method: a pool of two buffers, asked for three.
  const auto pool = ResponsePool::Create({.limit_bytes = 32 * kMiB, .reserved_share = 0});
  const size_t waiter = pool->AddWaiter([] {});
  ResponseBuffer first = Get(*pool, kBatch, 16 * kMiB, waiter);
  ResponseBuffer second = Get(*pool, kStandard, 16 * kMiB, waiter);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  std::memset(first.bytes().data(), 1, first.bytes().size());
  EXPECT_FALSE(Get(*pool, kLatency, 16 * kMiB, waiter));
  EXPECT_FALSE(pool->TryReserve(kLatency, 1, waiter));
  EXPECT_EQ(pool->use(kLatency).waits, 1) << "one wait, however often it is tried";
  first = ResponseBuffer();
  EXPECT_EQ(Used(*pool), 16 * kMiB);
  EXPECT_EQ(pool->kept_bytes(), 16 * kMiB);
  EXPECT_TRUE(Get(*pool, kLatency, 16 * kMiB, waiter));
}

TEST(ResponsePoolTest, HigherClassesHaveWhatIsReservedForThem) {
  // Goal: readers of batch responses cannot use up what standard and latency are owed, nor standard latency's. Method:
  // each class takes all it can, lowest first.
  const auto pool = ResponsePool::Create({.limit_bytes = 4 * kMiB, .reserved_share = 0.25});
  EXPECT_EQ(pool->limit(kLatency), 4 * kMiB);
  EXPECT_EQ(pool->limit(kStandard), 3 * kMiB);
  EXPECT_EQ(pool->limit(kBatch), 2 * kMiB);
  const size_t waiter = pool->AddWaiter([] {});
  std::vector<ResponseBuffer> held;
  const auto take_all = [&](RequestClass request_class) {
    int count = 0;
    while (ResponseBuffer buffer = Get(*pool, request_class, kMiB / 2, waiter)) {
      held.push_back(std::move(buffer));
      ++count;
    }
    return count;
  };
  EXPECT_EQ(take_all(kBatch), 4);
  EXPECT_EQ(take_all(kStandard), 2);
  EXPECT_EQ(take_all(kLatency), 2);
  held.clear();
  EXPECT_EQ(take_all(kLatency), 8) << "latency may use all of it";
  EXPECT_EQ(take_all(kBatch), 0);
}

TEST(ResponsePoolTest, SteadyWorkUsesTheSameMemory) {
  // Goal: recycled, and kept memory of other sizes makes way. Method: addresses of buffers of one size; then another
  // size that needs the room.
  const auto pool = ResponsePool::Create({.limit_bytes = 4 * kMiB, .reserved_share = 0});
  const std::byte* memory = Get(*pool, kBatch, 3 * kMiB).bytes().data();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Get(*pool, kBatch, 3 * kMiB - 5).bytes().data(), memory);
  EXPECT_EQ(pool->kept_bytes(), 3 * kMiB);
  { const ResponseBuffer other = Get(*pool, kBatch, 2 * kMiB); }
  EXPECT_EQ(pool->kept_bytes(), 2 * kMiB) << "3 + 2 MiB would be more than the limit";
  EXPECT_EQ(Used(*pool), 0u);
}

TEST(ResponsePoolTest, AReservationGivesBackWhatWasNotTaken) {
  // Goal: an execution that ends early leaves nothing behind. Method: reserve for two, take one.
  const auto pool = ResponsePool::Create({.limit_bytes = 4 * kMiB});
  ASSERT_TRUE(pool->TryReserve(kStandard, 2 * kMiB, 0));
  ResponseBuffer taken;
  {
    ResponseReservation reservation = pool->Adopt(kStandard, 2 * kMiB);
    taken = reservation.Take(kMiB);
    EXPECT_FALSE(reservation.Take(kMiB + 1)) << "more than is left";
    EXPECT_EQ(pool->use(kStandard).used_bytes, 2 * kMiB);
  }
  EXPECT_EQ(pool->use(kStandard).used_bytes, kMiB);
}

TEST(ResponsePoolTest, BuffersOutliveTheServersHold) {
  // Goal: gRPC may let go of a slice when the server is gone. Method: the buffer is the pool's last owner.
  auto pool = ResponsePool::Create({.limit_bytes = 4 * kMiB});
  ResponseBuffer buffer = Get(*pool, kStandard, kMiB);
  const std::weak_ptr<ResponsePool> watch = pool;
  pool.reset();
  EXPECT_FALSE(watch.expired());
  buffer = ResponseBuffer();
  EXPECT_TRUE(watch.expired());
}

TEST(ResponsePoolTest, EveryRefusalIsFollowedByACall) {
  // Goal: whoever was refused hears of memory that comes back; nobody else is called. Method: two waiters, one refused;
  // a removed waiter is not called.
  const auto pool = ResponsePool::Create({.limit_bytes = kMiB, .reserved_share = 0});
  int first_calls = 0, second_calls = 0;
  const size_t first = pool->AddWaiter([&] { ++first_calls; });
  const size_t second = pool->AddWaiter([&] { ++second_calls; });
  ResponseBuffer buffer = Get(*pool, kStandard, kMiB, first);
  buffer = ResponseBuffer();
  EXPECT_EQ(first_calls, 0);
  buffer = Get(*pool, kStandard, kMiB, first);
  EXPECT_FALSE(Get(*pool, kStandard, kMiB, second));
  buffer = ResponseBuffer();
  EXPECT_EQ(first_calls, 0);
  EXPECT_EQ(second_calls, 1);
  buffer = Get(*pool, kStandard, kMiB, first);
  EXPECT_FALSE(Get(*pool, kStandard, kMiB, second));
  pool->RemoveWaiter(second);
  buffer = ResponseBuffer();
  EXPECT_EQ(second_calls, 1);
}

TEST(ResponsePoolTest, ThreadsNeverLoseAWakeUpOrShareABuffer) {
  // Goal: any thread takes and gives back; a refused one is woken. Method: four threads share two buffers, each filled
  // with its owner's mark; a lost wake-up hangs.
  const auto pool = ResponsePool::Create({.limit_bytes = kMiB / 2, .reserved_share = 0});
  constexpr size_t kBytes = kMiB / 4;
  std::atomic<int> clashes = 0;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("request", [&, mark = static_cast<std::byte>(i + 1)] {
        std::atomic<int> freed = 0;
        const size_t waiter = pool->AddWaiter([&freed] {
          freed.fetch_add(1);
          freed.notify_one();
        });
        for (int round = 0; round < 300; ++round) {
          ResponseBuffer buffer;
          while (true) {
            const int seen = freed.load();
            buffer = Get(*pool, kBatch, kBytes, waiter);
            if (buffer) break;
            freed.wait(seen);
          }
          std::memset(buffer.bytes().data(), static_cast<int>(mark), 64);
          for (size_t k = 0; k < 64; ++k) clashes += buffer.bytes()[k] != mark;
        }
        pool->RemoveWaiter(waiter);
      });
    }
  }
  EXPECT_EQ(clashes.load(), 0);
  EXPECT_EQ(Used(*pool), 0u);
  EXPECT_LE(pool->kept_bytes(), kMiB / 2);
}

}  // namespace
}  // namespace sluice::server
