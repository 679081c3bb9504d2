// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// How a plan is cut into units: the first and last launch are stamps and belong to their neighbours.
#include "model/plan_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

std::vector<absl::Duration> Times(std::initializer_list<int> microseconds) {
  std::vector<absl::Duration> times;
  for (const int us : microseconds) times.push_back(absl::Microseconds(us));
  return times;
}

constexpr absl::Duration kTarget = absl::Microseconds(20);

TEST(CutUnits, OnTheHostAUnitIsAKernel) {
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 5, 5, 5, 1}), kTarget), ElementsAre(0, 2, 3));
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 5, 1}), kTarget), ElementsAre(0));
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 1}), kTarget), ElementsAre(0)) << "a plan without kernels";
}

TEST(CutUnits, OnCudaKernelsArePutTogetherUpToTheTarget) {
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 9, 9, 9, 9, 1}), kTarget), ElementsAre(0, 3));
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 9, 9, 1}), kTarget), ElementsAre(0));
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 1}), kTarget), ElementsAre(0));
}

TEST(CutUnits, AKernelLongerThanTheTargetIsAUnitOfItsOwn) {
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 90, 90, 5, 90, 5, 5, 1}), kTarget), ElementsAre(0, 2, 3, 4, 5));
}

}  // namespace
}  // namespace sluice::model
