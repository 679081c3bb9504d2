// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpu/kernels/cuda_loop.cuh"

namespace sluice::gpu::cuda {

/// Elements that a thread takes at once: four, of two bytes eight.
template <class From, class To>
inline constexpr int kMapPack = sizeof(From) == 2 && sizeof(To) == 2 ? 8 : 4;

/// output[i] = function(input[i]), a pack at a time where both spans allow it. They may be the same memory.
template <class From, class To, class Function>
__global__ void Map(const From* input, To* output, int64_t count, bool aligned, Function function) {
  WaitForPrevious();
  constexpr int kEach = kMapPack<From, To>;
  int64_t done = 0;
  if (aligned) {
    const int64_t packs = count / kEach;
    for (int64_t i = GridThread(); i < packs; i += GridStep()) {
      const Pack<From, kEach> from = reinterpret_cast<const Pack<From, kEach>*>(input)[i];
      Pack<To, kEach> to;
#pragma unroll
      for (int k = 0; k < kEach; ++k) to.values[k] = function(from.values[k]);
      reinterpret_cast<Pack<To, kEach>*>(output)[i] = to;
    }
    done = packs * kEach;
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
                            constexpr int kEach = kMapPack<From, To>;
                            const bool aligned = IsAligned(input, sizeof(Pack<From, kEach>)) &&
                                                 IsAligned(output, sizeof(Pack<To, kEach>));
                            const unsigned blocks = BlocksFor(aligned ? (count + kEach - 1) / kEach : count);
                            LaunchAfterPrevious(Map<From, To, Function>, blocks, kBlockThreads, stream, input, output,
                                                count, aligned, function);
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

}  // namespace sluice::gpu::cuda
