// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Memory and copies.
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {
namespace {

class MemorySuite : public DeviceTest {};

uint8_t Pattern(size_t index, uint8_t seed) { return static_cast<uint8_t>(index * 31 + (index >> 8) + seed); }

// Goal: bytes survive the way in and out, for every size. Method: a pattern, copied in, wiped on the host, copied out.
TEST_F(MemorySuite, CopiesBothWays) {
  Stream stream = MakeStream();
  for (const size_t size :
       {1, 2, 3, 7, 8, 63, 64, 65, 1000, 4095, 4096, 4097, 100'001, 1 << 20, (4 << 20) - 1, 4 << 20}) {
    StagedBuffer buffer = MakeBuffer(size);
    for (size_t i = 0; i < size; ++i) buffer.bytes()[i] = Pattern(i, 5);
    Upload(stream, buffer);
    Finish(stream);
    std::memset(buffer.bytes().data(), 0xEE, size);
    Download(stream, buffer);
    Finish(stream);
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) wrong += buffer.bytes()[i] != Pattern(i, 5);
    EXPECT_EQ(wrong, 0u) << size;
  }
}

// Goal: parts of buffers copy to the right place. Method: swap two halves by copying each to the other's place.
TEST_F(MemorySuite, CopiesParts) {
  constexpr size_t kHalf = 1001;
  Stream stream = MakeStream();
  StagedBuffer buffer = MakeBuffer(2 * kHalf);
  for (size_t i = 0; i < 2 * kHalf; ++i) buffer.bytes()[i] = i < kHalf ? 1 : 2;
  const PinnedSpan pinned = buffer.pinned;
  const DeviceSpan memory = buffer.device;
  EXPECT_OK(device().CopyToDevice(stream, pinned.subspan(0, kHalf), memory.subspan(kHalf, kHalf)));
  EXPECT_OK(device().CopyToDevice(stream, pinned.subspan(kHalf, kHalf), memory.subspan(0, kHalf)));
  Download(stream, buffer);
  Finish(stream);
  EXPECT_THAT(buffer.bytes().first(kHalf), ::testing::Each(2));
  EXPECT_THAT(buffer.bytes().last(kHalf), ::testing::Each(1));
}

// Goal: a copy of unequal sizes is our bug and does nothing. Method: both directions.
TEST_F(MemorySuite, UnequalSizesAreRefused) {
  Stream stream = MakeStream();
  StagedBuffer buffer = MakeBuffer(64);
  EXPECT_THAT(device().CopyToDevice(stream, buffer.pinned, buffer.device.view().subspan(0, 63)),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(device().CopyToHost(stream, buffer.device, buffer.pinned.view().subspan(0, 63)),
              StatusIs(absl::StatusCode::kInternal));
  Finish(stream);
}

// Goal: copies and kernels of one stream keep their order. Method: copy in, add, copy out, again and again, without
// waiting in between, each round into a part of its own.
TEST_F(MemorySuite, CopiesFollowStreamOrder) {
  constexpr int64_t kCount = 513;
  constexpr size_t kRounds = 16;
  Stream stream = MakeStream();
  std::vector<StagedBuffer> inputs;
  StagedBuffer sum = MakeBuffer(kCount * sizeof(float));
  StagedBuffer results = MakeBuffer(kRounds * kCount * sizeof(float));
  Upload(stream, sum);
  for (size_t i = 0; i < kRounds; ++i) {
    inputs.push_back(MakeBuffer(kCount * sizeof(float)));
    for (float& value : inputs[i].floats()) value = static_cast<float>(i + 1);
  }
  for (size_t i = 0; i < kRounds; ++i) {
    Upload(stream, inputs[i]);
    EXPECT_OK(device().Launch(stream, add_kernel(kCount), Args({sum.device, inputs[i].device, sum.device})));
    const size_t bytes = kCount * sizeof(float);
    EXPECT_OK(device().CopyToHost(stream, sum.device, results.pinned.view().subspan(i * bytes, bytes)));
  }
  Finish(stream);
  for (size_t i = 0; i < kRounds; ++i) {
    const float expected = static_cast<float>((i + 1) * (i + 2) / 2);
    EXPECT_THAT(results.floats().subspan(i * kCount, kCount), ::testing::Each(expected)) << i;
  }
}

// Goal: a pinned span copied to its own device span keeps its bytes. Method: do it, both ways.
TEST_F(MemorySuite, CopyOntoItself) {
  Stream stream = MakeStream();
  ASSERT_OK_AND_ASSIGN(PinnedBuffer pinned, device().AllocatePinned(1000));
  std::memset(pinned.view().data, 7, 1000);
  EXPECT_OK(device().CopyToDevice(stream, pinned, pinned.view().device_span()));
  EXPECT_OK(device().CopyToHost(stream, pinned.view().device_span(), pinned));
  Finish(stream);
  EXPECT_THAT(std::vector<uint8_t>(1000, 7),
              ::testing::ElementsAreArray(reinterpret_cast<const uint8_t*>(pinned.view().data), 1000));
}

// Goal: kernels read and write pinned memory in place. Method: fill and add on mapped spans, no copy.
TEST_F(MemorySuite, KernelsReachPinnedMemory) {
  constexpr int64_t kCount = 777;
  Stream stream = MakeStream();
  StagedBuffer buffer = MakeBuffer(kCount * sizeof(float));
  StagedBuffer result = MakeBuffer(kCount * sizeof(float));
  for (float& value : buffer.floats()) value = 2.5f;
  const DeviceSpan mapped = buffer.pinned.view().device_span();
  const DeviceSpan mapped_result = result.pinned.view().device_span();
  EXPECT_OK(device().Launch(stream, add_kernel(kCount), Args({mapped, mapped, mapped_result})));
  Finish(stream);
  EXPECT_THAT(result.floats(), ::testing::Each(5.0f));
}

// Goal: no allocation of nothing. Method: ask for 0 bytes of both kinds.
TEST_F(MemorySuite, NoBytesIsInvalid) {
  EXPECT_THAT(device().AllocateDevice(0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(device().AllocatePinned(0), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Goal: memory that does not exist is refused and the device goes on. Method: ask for far too much, then work.
TEST_F(MemorySuite, TooMuchIsResourceExhausted) {
  for (const size_t size : {device().info().total_bytes + 1, std::numeric_limits<size_t>::max() / 4}) {
    EXPECT_THAT(device().AllocateDevice(size), StatusIs(absl::StatusCode::kResourceExhausted)) << size;
  }
  EXPECT_THAT(device().AllocatePinned(std::numeric_limits<size_t>::max() / 4),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(device().lost());
  Stream stream = MakeStream();
  Stamps stamps = MakeStamps(1);
  Stamp(stream, stamps, 0);
  Finish(stream);
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: buffers are aligned for vector instructions. Method: odd sizes, addresses modulo 64.
TEST_F(MemorySuite, AlignedTo64Bytes) {
  for (const size_t size : {1, 3, 65, 4097}) {
    StagedBuffer buffer = MakeBuffer(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.pinned.view().data) % 64, 0u) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.pinned.view().device_data) % 64, 0u) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.device.view().data) % 64, 0u) << size;
    EXPECT_EQ(buffer.device.view().size_bytes, size);
    EXPECT_EQ(buffer.pinned.view().size_bytes, size);
  }
}

// Goal: memory comes back. Method: allocate and free a hundred times 8 MiB of each kind, more than a small device has.
TEST_F(MemorySuite, AllocateAndFreeLeaksNothing) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK_AND_ASSIGN(PinnedBuffer pinned, device().AllocatePinned(size_t{8} << 20));
    ASSERT_OK_AND_ASSIGN(DeviceBuffer memory, device().AllocateDevice(size_t{8} << 20));
  }
}

// Goal: every byte shows under what it is for while it lives, and in no other place. Method: allocate of each kind,
// look at both budgets, free, look again.
TEST_F(MemorySuite, CountsWhatMemoryIsFor) {
  MemoryBudget& memory = device().memory();
  MemoryBudget& pinned = device().pinned_memory();
  const auto of = [](const MemoryUse& use, MemoryKind kind) { return use.counted_bytes[static_cast<size_t>(kind)]; };
  const MemoryUse memory_before = memory.use();
  const MemoryUse pinned_before = pinned.use();
  for (const MemoryKind kind : kMemoryKinds) {
    ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, device().AllocateDevice(4097, kind));
    ASSERT_OK_AND_ASSIGN(PinnedBuffer staging, device().AllocatePinned(333, kind));
    const bool shared = &memory == &pinned;
    for (const MemoryKind other : kMemoryKinds) {
      const size_t device_bytes = other == kind ? 4097 : 0;
      const size_t pinned_bytes = other == kind ? 333 : 0;
      EXPECT_EQ(of(memory.use(), other) - of(memory_before, other), device_bytes + (shared ? pinned_bytes : 0));
      EXPECT_EQ(of(pinned.use(), other) - of(pinned_before, other), pinned_bytes + (shared ? device_bytes : 0));
    }
  }
  EXPECT_EQ(memory.use().counted_bytes, memory_before.counted_bytes);
  EXPECT_EQ(pinned.use().counted_bytes, pinned_before.counted_bytes);
}

// Goal: the sum adds up with what the device's owner says: memory we count is not in the rest as well. Method: ask
// before and after 64 MiB; the rest may move by the driver's rounding only.
TEST_F(MemorySuite, CountedMemoryIsNotInTheRest) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr size_t kRounding = size_t{8} << 20;
  MemoryBudget& memory = device().memory();
  ASSERT_OK(memory.Refresh());
  const MemoryUse before = memory.use();
  {
    ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, device().AllocateDevice(kBytes, MemoryKind::kWeights));
    ASSERT_OK(memory.Refresh());
    const MemoryUse during = memory.use();
    EXPECT_EQ(during.counted() - before.counted(), kBytes);
    EXPECT_LE(during.uncounted_bytes, before.uncounted_bytes + kRounding);
    EXPECT_GE(during.uncounted_bytes + kRounding, before.uncounted_bytes);
    EXPECT_LE(during.total(), memory.limit_bytes() + during.uncounted_bytes);
  }
  ASSERT_OK(memory.Refresh());
  EXPECT_EQ(memory.use().counted(), before.counted());
  EXPECT_LE(memory.use().uncounted_bytes, before.uncounted_bytes + kRounding);
}

// Goal: what exceeds the limit is refused with the sum before anything is taken, any number of times. Method: one byte
// more than fits, fifty times; then memory that fits.
TEST_F(MemorySuite, RefusalsTakeNothing) {
  MemoryBudget& memory = device().memory();
  ASSERT_OK(memory.Refresh());
  const MemoryUse before = memory.use();
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(device().AllocateDevice(memory.limit_bytes() + 1, MemoryKind::kWeights),
                StatusIs(absl::StatusCode::kResourceExhausted, ::testing::HasSubstr("bytes in use = weights ")));
    EXPECT_THAT(device().AllocatePinned(device().pinned_memory().limit_bytes() + 1, MemoryKind::kSlots),
                StatusIs(absl::StatusCode::kResourceExhausted, ::testing::HasSubstr(" + slots ")));
  }
  EXPECT_EQ(memory.use().counted_bytes, before.counted_bytes);
  EXPECT_OK(device().AllocateDevice(4096, MemoryKind::kSlots));
}

// Goal: freeing what is not ours is an error, not a crash. Method: an address in the middle of a buffer.
TEST_F(MemorySuite, ForeignMemoryIsRefused) {
  StagedBuffer buffer = MakeBuffer(4096);
  EXPECT_THAT(device().Destroy(buffer.device.view().subspan(64, 64)), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(device().Destroy(buffer.pinned.view().subspan(64, 64)), StatusIs(absl::StatusCode::kInternal));
  EXPECT_FALSE(device().lost());
}

// Goal: transfers of both directions and kernels of different streams do not disturb each other. Method: three streams,
// several rounds, results checked.
TEST_F(MemorySuite, TransfersBesideCompute) {
  constexpr int64_t kCount = 65'537;
  constexpr int kStreams = 3;
  std::vector<Stream> streams;
  std::vector<StagedBuffer> a, b;
  for (int s = 0; s < kStreams; ++s) {
    streams.push_back(MakeStream());
    a.push_back(MakeBuffer(kCount * sizeof(float)));
    b.push_back(MakeBuffer(kCount * sizeof(float)));
    for (float& value : b[s].floats()) value = static_cast<float>(s + 1);
  }
  for (int round = 0; round < 5; ++round) {
    for (int s = 0; s < kStreams; ++s) {
      Upload(streams[s], a[s]);
      Upload(streams[s], b[s]);
      EXPECT_OK(device().Launch(streams[s], add_kernel(kCount), Args({a[s].device, b[s].device, a[s].device})));
      Download(streams[s], a[s]);
    }
  }
  for (int s = 0; s < kStreams; ++s) {
    Finish(streams[s]);
    EXPECT_THAT(a[s].floats(), ::testing::Each(5.0f * static_cast<float>(s + 1))) << s;
  }
}

}  // namespace
}  // namespace sluice::gpu::conformance
