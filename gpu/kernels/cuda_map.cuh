// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpu/kernels/cuda_loop.cuh"

namespace sluice::gpu::cuda {

/// output[i] = function(input[i]), four at a time where both spans allow it. They may be the same memory.
template <class From, class To, class Function>
__global__ void Map(const From* input, To* output, int64_t count, bool aligned, Function function) {
  WaitForPrevious();
  int64_t done = 0;
  if (aligned) {
    const int64_t packs = count / 4;
    for (int64_t i = GridThread(); i < packs; i += GridStep()) {
      const Pack<From> from = reinterpret_cast<const Pack<From>*>(input)[i];
      Pack<To> to;
#pragma unroll
      for (int k = 0; k < 4; ++k) to.values[k] = function(from.values[k]);
      reinterpret_cast<Pack<To>*>(output)[i] = to;
    }
    done = packs * 4;
  }
  for (int64_t i = done + GridThread(); i < count; i += GridStep()) output[i] = function(input[i]);
}

/// Spans: input, output.
template <class From, class To, class Function>
PreparedKernel MakeMap(int ordinal, std::string name, int64_t count, Function function) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Map<From, To, Function>));
  return MakeLaunchKernel(std::move(name), {BytesOf<From>(count), BytesOf<To>(count)},
                          [count, function](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            if (count == 0) return absl::OkStatus();
                            const From* input = Elements<const From>(args, 0);
                            To* output = Elements<To>(args, 1);
                            const bool aligned =
                                IsAligned(input, sizeof(Pack<From>)) && IsAligned(output, sizeof(Pack<To>));
                            const unsigned blocks = BlocksFor(aligned ? (count + 3) / 4 : count);
                            LaunchAfterPrevious(Map<From, To, Function>, blocks, kBlockThreads, stream, input, output,
                                                count, aligned, function);
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

}  // namespace sluice::gpu::cuda
