// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/host/host_memory.h"

#include <cstdint>
#include <limits>

#include "tests/support/status_matchers.h"

namespace sluice::gpu::host {
namespace {

// Goal: what is allocated counts against the limit and comes back when freed. Method: fill the limit exactly.
TEST(HostMemoryTest, KeepsItsLimit) {
  HostMemory memory(1000);
  ASSERT_OK_AND_ASSIGN(std::byte* const first, memory.Allocate(600));
  EXPECT_THAT(memory.Allocate(401), StatusIs(absl::StatusCode::kResourceExhausted,
                                             ::testing::HasSubstr("limit 1000 bytes, 600 bytes in use")));
  ASSERT_OK_AND_ASSIGN(std::byte* const second, memory.Allocate(400));
  EXPECT_EQ(memory.allocated_bytes(), 1000u);
  EXPECT_EQ(memory.allocation_count(), 2u);
  EXPECT_THAT(memory.Allocate(1), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(memory.Free(first, 600));
  EXPECT_OK(memory.Free(second, 400));
  EXPECT_EQ(memory.allocated_bytes(), 0u);
  EXPECT_EQ(memory.allocation_count(), 0u);
}

// Goal: sizes near the end of the range neither wrap nor reach the allocator. Method: the largest sizes there are.
TEST(HostMemoryTest, HugeSizesAreRefused) {
  HostMemory memory(0);
  EXPECT_GT(memory.limit_bytes(), 0u);
  for (const size_t size : {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - 63}) {
    EXPECT_THAT(memory.Allocate(size), StatusIs(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_THAT(memory.Allocate(0), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Goal: only what was allocated can be freed, once, with its size. Method: the wrong address, size and number of times.
TEST(HostMemoryTest, WrongFreesAreRefused) {
  HostMemory memory(0);
  ASSERT_OK_AND_ASSIGN(std::byte* const data, memory.Allocate(100));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % HostMemory::kAlignment, 0u);
  EXPECT_THAT(memory.Free(data + 64, 36), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(memory.Free(data, 99), StatusIs(absl::StatusCode::kInternal));
  EXPECT_OK(memory.Free(data, 100));
  EXPECT_THAT(memory.Free(data, 100), StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace sluice::gpu::host
