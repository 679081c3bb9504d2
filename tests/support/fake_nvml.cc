// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// NVML's part that Sluice uses, as a shared library that answers what a test says. With SLUICE_OLD_NVML it is of a
// driver that cannot tell energy.
#include "tests/support/fake_nvml.h"

#include <sched.h>

#include <cstring>

namespace {

constexpr int kNotFound = 6;

sluice::testing::FakeNvml& State() {
  static sluice::testing::FakeNvml state;
  return state;
}

const sluice::testing::FakeGpu& GpuOf(void* handle) { return *static_cast<const sluice::testing::FakeGpu*>(handle); }

/// What the question returns, when it does.
int Answer(const std::atomic<int>& result) {
  while (State().hang.load()) {
    State().in_hang.store(true);
    sched_yield();
  }
  State().in_hang.store(false);
  return result.load();
}

}  // namespace

extern "C" {

sluice::testing::FakeNvml* sluice_fake_nvml() { return &State(); }

int nvmlInit_v2() {
  ++State().init_calls;
  const int result = State().init_result.load();
  if (result == 0) ++State().initialised;
  return result;
}

int nvmlShutdown() {
  --State().initialised;
  return 0;
}

const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Some Error"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (const int result = Answer(State().find_result); result != 0) return result;
  for (const sluice::testing::FakeGpu& gpu : sluice::testing::kFakeGpus) {
    if (std::strcmp(gpu.uuid, uuid) != 0) continue;
    *handle = const_cast<sluice::testing::FakeGpu*>(&gpu);
    return 0;
  }
  return kNotFound;
}

int nvmlDeviceGetUtilizationRates(void* handle, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = GpuOf(handle).utilization_percent;
  gpu_and_memory[1] = 3;
  return Answer(State().utilization_result);
}

int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* total_free_used) {
  total_free_used[0] = GpuOf(handle).memory_total_bytes;
  total_free_used[1] = GpuOf(handle).memory_total_bytes - GpuOf(handle).memory_used_bytes;
  total_free_used[2] = GpuOf(handle).memory_used_bytes;
  return Answer(State().memory_result);
}

int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  *milliwatts = GpuOf(handle).power_milliwatts;
  return Answer(State().power_result);
}

int nvmlDeviceGetPowerManagementLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = GpuOf(handle).power_limit_milliwatts;
  return Answer(State().power_limit_result);
}

#ifndef SLUICE_OLD_NVML
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  *millijoules = GpuOf(handle).energy_millijoules;
  return Answer(State().energy_result);
}
#endif

}  // extern "C"
