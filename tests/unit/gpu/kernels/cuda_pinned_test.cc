// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Pinned memory that is kept after it was freed. Linked with the CUDA backend only.
#include <cstring>

#include "base/clock.h"
#include "gpu/cuda/cuda_module.h"
#include "gpu/memory_budget.h"
#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

constexpr size_t kBytes = size_t{3} << 20;

TEST(CudaPinned, WhatWasFreedIsUsedAgainAndCountsOnlyWhileItIs) {
  // Goal: the same pages serve the next allocation of their size, by copies as well, and are nobody's in between.
  // Method: addresses, the budget, a round trip through the device.
  const MonotonicClock clock;
  MemoryBudget budget({.name = "host memory", .counted_limit = 2 * kBytes});
  CudaDeviceOptions options;
  options.pinned_memory = &budget;
  absl::StatusOr<std::unique_ptr<Device>> device = LoadCudaDevice(CudaModuleUnderTest(), 0, clock, options);
  ASSERT_TRUE(device.ok()) << device.status();
  const size_t before = budget.use().counted();
  const std::byte* first = nullptr;
  {
    absl::StatusOr<PinnedBuffer> buffer = (*device)->AllocatePinned(kBytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    first = buffer->view().data;
  }
  EXPECT_EQ(budget.use().counted(), before);
  absl::StatusOr<PinnedBuffer> again = (*device)->AllocatePinned(kBytes);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->view().data, first);
  EXPECT_EQ(budget.use().counted(), before + kBytes);
  absl::StatusOr<DeviceBuffer> memory = (*device)->AllocateDevice(kBytes);
  absl::StatusOr<Stream> stream = (*device)->CreateStream(StreamPriority::kLow);
  ASSERT_TRUE(memory.ok() && stream.ok());
  std::memset(again->view().data, 7, kBytes);
  ASSERT_TRUE((*device)->CopyToDevice(*stream, *again, *memory).ok());
  ASSERT_TRUE((*device)->Synchronize(*stream).ok());
  std::memset(again->view().data, 0, kBytes);
  ASSERT_TRUE((*device)->CopyToHost(*stream, *memory, *again).ok());
  ASSERT_TRUE((*device)->Synchronize(*stream).ok());
  EXPECT_EQ(again->view().data[kBytes - 1], std::byte{7});
}

}  // namespace
}  // namespace sluice::gpu
