// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What polls on a machine of a given size: in order launcher, latency, I/O; nothing below four CPUs.
#include "server/spin_budget.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

int Threads(const SpinBudget& budget, int cuda_devices) {
  return (budget.launchers ? cuda_devices : 0) + (budget.latency_threads ? cuda_devices : 0) +
         (budget.io_thread ? 1 : 0);
}

TEST(SpinBudget, NothingBelowFourCpusOrWithoutCuda) {
  EXPECT_EQ(Threads(MakeSpinBudget(3, 1), 1), 0);
  const SpinBudget host_only = MakeSpinBudget(64, 0);
  EXPECT_FALSE(host_only.launchers || host_only.latency_threads || host_only.io_thread);
}

TEST(SpinBudget, LauncherThenLatencyThenIo) {
  const SpinBudget four = MakeSpinBudget(4, 1);
  EXPECT_TRUE(four.launchers && four.latency_threads && !four.io_thread);
  const SpinBudget five = MakeSpinBudget(5, 1);
  EXPECT_TRUE(five.launchers && five.latency_threads && five.io_thread);
  const SpinBudget two_devices = MakeSpinBudget(5, 2);
  EXPECT_TRUE(two_devices.launchers && !two_devices.latency_threads && !two_devices.io_thread);
}

TEST(SpinBudget, LeavesTwoCpusToThreadsThatSleep) {
  for (int cpus = 1; cpus <= 64; ++cpus) {
    for (int devices = 0; devices <= 8; ++devices) {
      const int threads = Threads(MakeSpinBudget(cpus, devices), devices);
      EXPECT_TRUE(threads == 0 || threads <= cpus - 2) << cpus << " CPUs, " << devices << " devices";
    }
  }
}

}  // namespace
}  // namespace sluice::server
