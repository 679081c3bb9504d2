// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_wait.cuh"
#include "gpu/kernels/strided.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu::cuda {

// Building blocks of the CUDA kernels, as host_loop.h is of the host's.

using PreparedKernel = absl::StatusOr<std::unique_ptr<Kernel>>;

/// INTERNAL unless the launch has exactly `span_bytes.size()` spans of at least those bytes, and the workspace.
inline absl::Status CheckArgs(const Kernel& kernel, const KernelArgs& args, const std::vector<size_t>& span_bytes) {
  if (args.spans.size() != span_bytes.size()) {
    return absl::InternalError(
        absl::StrCat("kernel ", kernel.name(), " takes ", span_bytes.size(), " spans and got ", args.spans.size()));
  }
  for (size_t i = 0; i < span_bytes.size(); ++i) {
    if (args.spans[i].size_bytes >= span_bytes[i]) continue;
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), ": span ", i, " needs ", span_bytes[i],
                                            " bytes and has ", args.spans[i].size_bytes));
  }
  if (args.workspace.size_bytes < kernel.workspace_bytes()) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " needs ", kernel.workspace_bytes(),
                                            " bytes of workspace and has ", args.workspace.size_bytes));
  }
  return absl::OkStatus();
}

/// A CUDA kernel made of a callable `absl::Status(cudaStream_t, const KernelArgs&)` that launches and holds everything
/// decided at Prepare. It is called with checked spans.
template <class Body>
class LaunchKernel final : public CudaKernel {
 public:
  LaunchKernel(std::string name, std::vector<size_t> span_bytes, size_t workspace_bytes, Body body)
      : CudaKernel(std::move(name), workspace_bytes), span_bytes_(std::move(span_bytes)), body_(std::move(body)) {}
  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    SLUICE_RETURN_IF_ERROR(CheckArgs(*this, args, span_bytes_));
    return body_(stream, args);
  }

 private:
  const std::vector<size_t> span_bytes_;
  const Body body_;
};

template <class Body>
std::unique_ptr<Kernel> MakeLaunchKernel(std::string name, std::vector<size_t> span_bytes, Body body,
                                         size_t workspace_bytes = 0) {
  return std::make_unique<LaunchKernel<Body>>(std::move(name), std::move(span_bytes), workspace_bytes, std::move(body));
}

/// A kernel that has nothing to write.
inline std::unique_ptr<Kernel> MakeEmptyKernel(std::string name, std::vector<size_t> span_bytes) {
  return MakeLaunchKernel(std::move(name), std::move(span_bytes),
                          [](cudaStream_t, const KernelArgs&) { return absl::OkStatus(); });
}

/// Bytes of `count` elements of T.
template <class T>
size_t BytesOf(int64_t count) {
  return static_cast<size_t>(count) * sizeof(T);
}

/// The launch's i-th span as elements of T.
template <class T>
T* Elements(const KernelArgs& args, size_t i) {
  return reinterpret_cast<T*>(args.spans[i].data);
}

inline bool IsAligned(const void* pointer, size_t alignment_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment_bytes == 0;
}

/// Elements that are loaded and stored at once.
template <class T, int kCount = 4>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

/// This thread's place in a one-dimensional grid, and the threads there are.
__device__ inline int64_t GridThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t GridStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// Division of numbers that are not negative by one that is known at Prepare. Below 2^31 it takes a multiplication and
/// a shift (Granlund and Montgomery 1994); GPUs have no instruction for it.
class Divider {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(divisor) {
    if (divisor > INT32_MAX) {  // the quotient of anything below 2^31 is 0
      multiplier_ = 0;
      shift_ = 31;
      return;
    }
    shift_ = 0;
    while ((int64_t{1} << shift_) < divisor) ++shift_;
    multiplier_ =
        static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift_) - static_cast<uint64_t>(divisor)) /
                                  static_cast<uint64_t>(divisor) +
                              1);
  }
  /// The quotient; `rest` becomes what is left.
  __device__ int64_t Divide(int64_t dividend, int64_t& rest) const {
    int64_t quotient;
    if (static_cast<uint64_t>(dividend) < (uint64_t{1} << 31)) {
      const uint32_t small = static_cast<uint32_t>(dividend);
      quotient = (__umulhi(small, multiplier_) + small) >> shift_;
    } else {
      quotient = dividend / divisor_;
    }
    rest = dividend - quotient * divisor_;
    return quotient;
  }

 private:
  int64_t divisor_ = 1;  // at least 1
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};

inline constexpr int kMaxWalkRank = 8;

/// A merged walk over K inputs as a kernel's parameter. Not empty.
template <int K>
struct DeviceWalk {
  int rank = 1;
  int64_t count = 1;
  Divider dims[kMaxWalkRank];
  int64_t strides[K][kMaxWalkRank] = {};

  /// Where each input stands for output element `index`.
  __device__ void Locate(int64_t index, int64_t (&offsets)[K]) const {
    for (int k = 0; k < K; ++k) offsets[k] = 0;
    for (int d = rank - 1; d > 0; --d) {
      int64_t coordinate;
      index = dims[d].Divide(index, coordinate);
      for (int k = 0; k < K; ++k) offsets[k] += coordinate * strides[k][d];
    }
    for (int k = 0; k < K; ++k) offsets[k] += index * strides[k][0];
  }
};

/// UNIMPLEMENTED for more than kMaxWalkRank dimensions.
template <int K>
absl::StatusOr<DeviceWalk<K>> MakeDeviceWalk(const StridedWalk& walk) {
  if (walk.dims.size() > kMaxWalkRank) {
    return absl::UnimplementedError(
        absl::StrCat("the CUDA backend walks at most ", kMaxWalkRank, " dimensions, not ", DimsToString(walk.dims)));
  }
  DeviceWalk<K> result;
  result.rank = static_cast<int>(walk.dims.size());
  result.count = walk.count;
  for (size_t i = 0; i < walk.dims.size(); ++i) {
    result.dims[i] = Divider(walk.dims[i] > 0 ? walk.dims[i] : 1);
    for (int k = 0; k < K; ++k) result.strides[k][i] = walk.strides[static_cast<size_t>(k)][i];
  }
  return result;
}

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Joins `value` over groups of `width` neighbouring threads: a power of two up to 32, or the whole block (of whole
/// warps). Every thread of the block must call it, and every thread of a group gets the same result. `shared` holds one
/// value per warp and may be used again by the next call.
template <class T, class Join>
__device__ T JoinGroup(T value, int width, T* shared, const Join& join) {
  for (int offset = (width < kWarp ? width : kWarp) / 2; offset > 0; offset /= 2) {
    value = join(value, static_cast<T>(__shfl_xor_sync(kAllLanes, value, offset)));
  }
  if (width <= kWarp) return value;
  __syncthreads();  // an earlier call's values have been read
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = shared[0];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int warp = 1; warp < warps; ++warp) value = join(value, shared[warp]);
  return value;
}

/// How many threads walk one row of `length` elements, which JoinGroup then joins, and how many make a block.
struct RowThreads {
  int width = 1;
  int block = kBlockThreads;
};
/// Kernels launched with it must say __launch_bounds__(kMostThreads), or their registers may not suffice for the
/// largest.
inline constexpr int kMostThreads = 1024;
inline RowThreads RowThreadsFor(int64_t length) {
  if (length > 8192) return {kMostThreads, kMostThreads};
  if (length > 1024) return {256, 256};
  int width = 1;
  while (width < kWarp && width < length) width *= 2;
  return {width, 256};
}
/// Blocks for `rows` rows, which then go round.
inline unsigned RowBlocks(int64_t rows, RowThreads threads) {
  constexpr int64_t kMaxBlocks = 1 << 16;
  const int64_t each = threads.block / threads.width;
  return static_cast<unsigned>(std::clamp<int64_t>((rows + each - 1) / each, 1, kMaxBlocks));
}

}  // namespace sluice::gpu::cuda
