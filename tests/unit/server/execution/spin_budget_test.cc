// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What polls on a machine of a given size: launcher, one latency thread, I/O, the other latency threads, standard
// threads; nothing below four CPUs.
#include "server/spin_budget.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

int Threads(const SpinBudget& budget, int cuda_devices) {
  return (budget.launchers ? cuda_devices : 0) + budget.latency_threads * cuda_devices + (budget.io_thread ? 1 : 0) +
         (budget.standard_threads ? 2 * cuda_devices : 0);
}

TEST(SpinBudget, NothingBelowFourCpusOrWithoutCuda) {
  EXPECT_EQ(Threads(MakeSpinBudget(3, 1, 2, 2), 1), 0);
  const SpinBudget host_only = MakeSpinBudget(64, 0, 2, 2);
  EXPECT_FALSE(host_only.launchers || host_only.latency_threads > 0 || host_only.io_thread ||
               host_only.standard_threads);
}

TEST(SpinBudget, LauncherThenLatencyThenIoThenTheOtherLatencyThreads) {
  const SpinBudget four = MakeSpinBudget(4, 1, 2, 2);
  EXPECT_TRUE(four.launchers && four.latency_threads == 1 && !four.io_thread);
  const SpinBudget five = MakeSpinBudget(5, 1, 2, 2);
  EXPECT_TRUE(five.launchers && five.latency_threads == 1 && five.io_thread);
  const SpinBudget sixteen = MakeSpinBudget(16, 1, 2, 2);
  EXPECT_TRUE(sixteen.launchers && sixteen.latency_threads == 2 && sixteen.io_thread && sixteen.standard_threads);
  EXPECT_FALSE(MakeSpinBudget(10, 1, 2, 2).standard_threads);
  const SpinBudget two_devices = MakeSpinBudget(5, 2, 2, 2);
  EXPECT_TRUE(two_devices.launchers && two_devices.latency_threads == 0 && !two_devices.io_thread);
}

TEST(SpinBudget, MoreLatencyThreadsOnlyWhereTheyMayPoll) {
  EXPECT_EQ(LatencyThreads(MakeSpinBudget(16, 1, 4, 2), 2), 4);
  EXPECT_EQ(LatencyThreads(MakeSpinBudget(8, 1, 4, 2), 2), 2);
  EXPECT_EQ(LatencyThreads(MakeSpinBudget(10, 1, 4, 2), 2), 3);
  EXPECT_EQ(LatencyThreads(SpinBudget(), 3), 3);
}

TEST(SpinBudget, LeavesCpusToThreadsThatSleep) {
  for (int cpus = 1; cpus <= 64; ++cpus) {
    for (int devices = 0; devices <= 8; ++devices) {
      for (int latency_threads = 2; latency_threads <= 8; ++latency_threads) {
        const SpinBudget budget = MakeSpinBudget(cpus, devices, latency_threads, 2);
        const int threads = Threads(budget, devices);
        EXPECT_TRUE(threads == 0 || threads <= cpus - 2) << cpus << " CPUs, " << devices << " devices";
        EXPECT_TRUE((budget.latency_threads < 2 && !budget.standard_threads) || threads <= cpus / 2)
            << cpus << " CPUs, " << devices << " devices";
      }
    }
  }
}

}  // namespace
}  // namespace sluice::server
