// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernel.h"

namespace sluice::gpu::cuda {

inline constexpr unsigned kBlockThreads = 256;

/// Blocks for a grid-stride loop over `count` elements: a few waves of any GPU at most.
inline unsigned BlocksFor(int64_t count) {
  constexpr int64_t kMaxBlocks = 4096;
  return static_cast<unsigned>(std::clamp<int64_t>((count + kBlockThreads - 1) / kBlockThreads, 1, kMaxBlocks));
}

/// Launches a kernel so that it may be made ready while what is in front of it in the stream still runs: its code is
/// fetched and its blocks wait, instead of starting from nothing when the last block of the other has gone. Such a
/// kernel begins with WaitForPrevious() in every thread (cuda_wait.cuh). The caller checks cudaGetLastError.
template <class... Params, class... Args>
void LaunchAfterPrevious(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

/// Loads `function`'s code onto device `ordinal` now; CUDA would otherwise do it at the first launch.
template <class Function>
absl::Status LoadKernel(int ordinal, Function* function) {
  SLUICE_RETURN_IF_ERROR(SLUICE_CUDA_STATUS(cudaSetDevice(ordinal)));
  cudaFuncAttributes attributes;
  return SLUICE_CUDA_STATUS(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(function)));
}

/// INTERNAL unless `args` has exactly `sizes` spans of at least those bytes.
template <size_t count>
absl::Status CheckSpans(const Kernel& kernel, const KernelArgs& args, const size_t (&sizes)[count]) {
  if (args.spans.size() != count) {
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " takes ", count, " spans and got ", args.spans.size()));
  }
  for (size_t i = 0; i < count; ++i) {
    if (args.spans[i].size_bytes >= sizes[i]) continue;
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), ": span ", i, " needs ", sizes[i],
                                            " bytes and has ", args.spans[i].size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sluice::gpu::cuda
