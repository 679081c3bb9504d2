// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_status.h"

#include "tests/support/status_matchers.h"

namespace sluice::gpu::cuda {
namespace {

absl::Status Of(cudaError_t error) { return CudaStatus(error, "cudaCall(x)", "file.cc", 12); }

// Goal: the table of errors. Method: one of each row, by number too, since those are what logs show.
TEST(CudaStatusTest, Table) {
  EXPECT_OK(Of(cudaSuccess));
  EXPECT_THAT(Of(cudaErrorMemoryAllocation), StatusIs(absl::StatusCode::kResourceExhausted));
  for (const int code : {35, 100, 101, 209}) {
    EXPECT_THAT(Of(static_cast<cudaError_t>(code)), StatusIs(absl::StatusCode::kFailedPrecondition)) << code;
  }
  EXPECT_THAT(Of(cudaErrorECCUncorrectable), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Of(cudaErrorNvlinkUncorrectable), StatusIs(absl::StatusCode::kDataLoss));
  for (const int code : {1, 9, 98, 400, 700, 719, 900}) {
    EXPECT_THAT(Of(static_cast<cudaError_t>(code)), StatusIs(absl::StatusCode::kInternal)) << code;
  }
}

// Goal: exactly the errors after which the process must be started anew lose the device. Method: all numbers to 999.
TEST(CudaStatusTest, StickyErrorsLoseTheDevice) {
  std::vector<int> sticky;
  for (int code = 0; code < 1000; ++code) {
    const auto error = static_cast<cudaError_t>(code);
    EXPECT_EQ(MeansDeviceLost(Of(error)), IsSticky(error)) << code;
    if (IsSticky(error)) sticky.push_back(code);
  }
  EXPECT_THAT(sticky,
              ::testing::ElementsAre(214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911));
}

// Goal: a message that can be searched for. Method: its parts.
TEST(CudaStatusTest, Message) {
  EXPECT_THAT(std::string(Of(cudaErrorIllegalAddress).message()),
              ::testing::StartsWith("cudaCall(x) failed at file.cc:12: cudaErrorIllegalAddress ("));
}

}  // namespace
}  // namespace sluice::gpu::cuda
