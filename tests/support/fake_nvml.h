// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace sluice::testing {

/// A GPU of the fake library; what NVML would say of it.
struct FakeGpu {
  const char* uuid;
  unsigned utilization_percent;
  unsigned long long memory_total_bytes, memory_used_bytes;
  unsigned power_milliwatts, power_limit_milliwatts;
  unsigned long long energy_millijoules;
};

inline constexpr FakeGpu kFakeGpus[] = {
    {"GPU-11111111-2222-3333-4444-555555555555", 100, 16'000'000'000, 1'000'000, 300'000, 300'000, 1},
    {"GPU-0a0b0c0d-1e1f-2a2b-3c3d-4e4f5a5b5c5d", 37, 150'754'820'096, 4'294'967'296, 81'250, 700'000, 123'456'789'012},
    // A slice: CUDA calls it GPU-...
    {"MIG-99999999-8888-7777-6666-555555555555", 0, 18'000'000'000, 0, 0, 0, 0},
};

/// What the fake library does, in NVML's codes (0 success, 3 not supported, 6 not found, 15 the GPU is lost, 999
/// unknown). One a loaded library; any thread.
struct FakeNvml {
  std::atomic<int> init_result = 0;
  std::atomic<int> find_result = 0;
  std::atomic<int> utilization_result = 0;
  std::atomic<int> memory_result = 0;
  std::atomic<int> power_result = 0;
  std::atomic<int> power_limit_result = 0;
  std::atomic<int> energy_result = 0;
  std::atomic<bool> hang = false;     ///< Questions do not return while this is set.
  std::atomic<bool> in_hang = false;  ///< One does not.
  std::atomic<int> initialised = 0;   ///< Inits without their shutdown.
  std::atomic<int> init_calls = 0;
};

/// Exported by the library under this name.
inline constexpr char kFakeNvmlSymbol[] = "sluice_fake_nvml";
using FakeNvmlFunction = FakeNvml*();

}  // namespace sluice::testing
