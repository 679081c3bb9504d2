// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/spin_budget.h"

namespace sluice::server {
namespace {
constexpr int kLeastCpus = 4;
constexpr int kKeptCpus = 2;
}  // namespace

SpinBudget MakeSpinBudget(int cpus, int cuda_devices, int latency_threads, int standard_threads) {
  SpinBudget budget;
  if (cpus < kLeastCpus || cuda_devices == 0) return budget;
  int left = cpus;
  const auto take = [&left](int count, int kept) {
    if (left - count < kept) return false;
    left -= count;
    return true;
  };
  budget.launchers = take(cuda_devices, kKeptCpus);
  if (!budget.launchers || latency_threads < 1 || !take(cuda_devices, kKeptCpus)) return budget;
  budget.latency_threads = 1;
  budget.io_thread = take(1, kKeptCpus);
  while (budget.latency_threads < latency_threads && take(cuda_devices, (cpus + 1) / 2)) ++budget.latency_threads;
  budget.standard_threads = take(standard_threads * cuda_devices, (cpus + 1) / 2);
  return budget;
}

}  // namespace sluice::server
