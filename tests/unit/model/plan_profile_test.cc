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

/// Runs until it is over; `run_us` gives the n-th run's time.
template <class RunUs>
int RunsUntilOver(RunUs run_us) {
  WarmUp warm_up;
  int runs = 1;
  while (!warm_up.IsOver(absl::Microseconds(run_us(runs)))) ++runs;
  return runs;
}

TEST(WarmUp, EndsWhenRunsStopGettingShorter) {
  EXPECT_EQ(RunsUntilOver([](int) { return 1000; }), 5) << "the first, and four that are not faster";
  EXPECT_EQ(RunsUntilOver([](int run) { return run < 5 ? 2000 - 200 * run : 1000; }), 9);
  EXPECT_EQ(RunsUntilOver([](int run) { return run % 2 == 0 ? 1000 : 995; }), 5) << "less than a percent is noise";
}

TEST(WarmUp, IsBounded) {
  EXPECT_EQ(RunsUntilOver([](int) { return 9000; }), 3) << "by time";
  EXPECT_EQ(RunsUntilOver([](int run) { return 300 - 4 * run; }), WarmUp::kMostRuns) << "by runs";
  EXPECT_EQ(RunsUntilOver([](int) { return 0; }), WarmUp::kMostRuns);
}

TEST(WarmUp, ShortRunsProveNothingBeforeClocksCouldRise) {
  EXPECT_EQ(RunsUntilOver([](int) { return 100; }), 20) << "2 ms";
}

}  // namespace
}  // namespace sluice::model
