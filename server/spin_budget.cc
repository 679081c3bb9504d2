// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/spin_budget.h"

namespace sluice::server {
namespace {
constexpr int kLeastCpus = 4;
constexpr int kKeptCpus = 2;
}  // namespace

SpinBudget MakeSpinBudget(int cpus, int cuda_devices) {
  SpinBudget budget;
  if (cpus < kLeastCpus || cuda_devices == 0) return budget;
  int spare = cpus - kKeptCpus;
  const auto take = [&spare](int count) {
    if (spare < count) return false;
    spare -= count;
    return true;
  };
  budget.launchers = take(cuda_devices);
  budget.latency_threads = budget.launchers && take(cuda_devices);
  budget.io_thread = budget.latency_threads && take(1);
  return budget;
}

}  // namespace sluice::server
