// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::gpu::cuda {

/// The device's clock, in nanoseconds; cuda_clock.h relates it to the process's.
__device__ inline uint64_t GlobalTimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace sluice::gpu::cuda
