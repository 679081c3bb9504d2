// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace sluice::gpu::cuda {

/// The first statement of every kernel that LaunchAfterPrevious launches, in every thread: returns once the grid in
/// front has ended and its writes can be seen. Only then may the next grid be made ready, so that one waits at a time
/// and what waits takes no room from what runs. Without it a kernel would race with its input.
__device__ inline void WaitForPrevious() {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
}

}  // namespace sluice::gpu::cuda
