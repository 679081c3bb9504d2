// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/transfer_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

constexpr size_t kKiB = 1024;

CopyDuration Copy(size_t size_bytes, double engine_in, double kernel_in, double engine_out, double kernel_out) {
  return {size_bytes, absl::Microseconds(engine_in), absl::Microseconds(kernel_in), absl::Microseconds(engine_out),
          absl::Microseconds(kernel_out)};
}

// Goal: the fewest bytes in flight that keep the bandwidth in both directions win. Method: tables, one of them an
// H200's, one where the way back needs more than the way in.
TEST(ChooseTransferTuning, TakesTheFewestBytesInFlightThatKeepTheBandwidth) {
  const std::vector<ChunkBandwidth> h200 = {{256 * kKiB, 1, 15e9, 16e9},  {256 * kKiB, 2, 35e9, 35e9},
                                            {512 * kKiB, 1, 27e9, 28e9},  {512 * kKiB, 2, 42e9, 43e9},
                                            {1024 * kKiB, 1, 36e9, 37e9}, {1024 * kKiB, 2, 48e9, 49e9},
                                            {2048 * kKiB, 1, 44e9, 45e9}, {2048 * kKiB, 2, 52e9, 53e9}};
  TransferTuning tuning = ChooseTransferTuning(h200, {});
  EXPECT_EQ(tuning.chunk_bytes, 1024 * kKiB);
  EXPECT_EQ(tuning.copy_window, 2);
  EXPECT_EQ(tuning.kernel_bytes, TransferTuning().kernel_bytes);

  const std::vector<ChunkBandwidth> uneven = {{256 * kKiB, 2, 20e9, 10e9}, {512 * kKiB, 2, 20e9, 20e9}};
  tuning = ChooseTransferTuning(uneven, {});
  EXPECT_EQ(tuning.chunk_bytes, 512 * kKiB);

  // As many bytes in flight: the first of the table, and so the smaller chunk.
  const std::vector<ChunkBandwidth> even = {{512 * kKiB, 2, 20e9, 20e9}, {1024 * kKiB, 1, 20e9, 20e9}};
  tuning = ChooseTransferTuning(even, {});
  EXPECT_EQ(tuning.chunk_bytes, 512 * kKiB);
  EXPECT_EQ(tuning.copy_window, 2);
}

// Goal: the kernel moves what it moves nearly as fast as an engine, in both directions. Method: tables.
TEST(ChooseTransferTuning, TakesTheKernelUpToWhereItFallsBehind) {
  // A kernel takes some microseconds longer to start, which is more than a quarter of a small copy.
  const std::vector<CopyDuration> copies = {Copy(64 * kKiB, 6, 12, 6, 10), Copy(128 * kKiB, 50, 60, 50, 62),
                                            Copy(256 * kKiB, 60, 70, 60, 76), Copy(512 * kKiB, 90, 95, 90, 95)};
  EXPECT_EQ(ChooseTransferTuning({}, copies).kernel_bytes, 128 * kKiB);  // 76 is more than a quarter above 60.
  EXPECT_EQ(ChooseTransferTuning({}, std::vector<CopyDuration>(copies.begin() + 2, copies.end())).kernel_bytes,
            256 * kKiB);  // At least the smallest that was measured.
  EXPECT_EQ(ChooseTransferTuning({}, {}), TransferTuning());
}

// Goal: nothing is measured where copies do nothing; where they are real, both directions are, and the choice is one of
// the table. Method: the host device with unified memory and with copiers.
TEST(CalibrateTransfers, MeasuresWhereCopiesAreReal) {
  const MonotonicClock clock;
  HostDeviceOptions options;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Device> unified,
                       CreateHostDevice(options, clock, MakeHostKernelLibrary(clock)));
  ASSERT_OK_AND_ASSIGN(const TransferCalibration nothing, CalibrateTransfers(*unified, clock));
  EXPECT_TRUE(nothing.chunks.empty());
  EXPECT_EQ(nothing.tuning, TransferTuning());

  options.copiers = true;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Device> copying,
                       CreateHostDevice(options, clock, MakeHostKernelLibrary(clock)));
  ASSERT_OK_AND_ASSIGN(const TransferCalibration measured, CalibrateTransfers(*copying, clock));
  ASSERT_FALSE(measured.chunks.empty());
  bool among = false;
  for (const ChunkBandwidth& chunk : measured.chunks) {
    EXPECT_GT(chunk.to_device, 0);
    EXPECT_GT(chunk.to_host, 0);
    among |= chunk.chunk_bytes == measured.tuning.chunk_bytes && chunk.window == measured.tuning.copy_window;
  }
  EXPECT_TRUE(among);
  EXPECT_TRUE(measured.copies.empty());  // The host has no such kernel.
}

}  // namespace
}  // namespace sluice::gpu
