// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/kernels/cuda_global_timer.cuh"
#include "gpu/kernels/cuda_wait.cuh"
#include "gpu/kernels/transfer.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kThreads = 512;
// Words each thread asks for before it waits for the first: PCIe needs some 50 KB in flight to be busy.
constexpr int kWordsInFlight = 4;
constexpr size_t kBlockBytes = size_t{kThreads} * kWordsInFlight * sizeof(uint4);
// A transfer shares the device with whatever still runs; more blocks bring no more bytes over the bus.
constexpr size_t kMaxBlocks = 32;

struct Piece {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  uint64_t size_bytes = 0;
};

struct TransferTable {
  Piece pieces[kMaxTransferTensors];
  int count = 0;
};

__device__ void MovePiece(const Piece& piece) {
  const auto* source = reinterpret_cast<const uint4*>(piece.source);
  auto* destination = reinterpret_cast<uint4*>(piece.destination);
  const uint64_t words = piece.size_bytes / sizeof(uint4);
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kWordsInFlight - 1) * step < words; i += kWordsInFlight * step) {
    uint4 held[kWordsInFlight];
    // Not cached: the host writes this memory between two launches.
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) held[k] = __ldcv(source + i + k * step);
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) destination[i + k * step] = held[k];
  }
  for (; i < words; i += step) destination[i] = __ldcv(source + i);
  const uint64_t tail = words * sizeof(uint4) + threadIdx.x;
  if (blockIdx.x == 0 && tail < piece.size_bytes) {
    piece.destination[tail] = *static_cast<const volatile std::byte*>(piece.source + tail);
  }
}

/// The block that finishes last writes the end stamp, so the stamp is later than every byte.
__global__ void __launch_bounds__(kThreads)
    Transfer(const __grid_constant__ TransferTable table, uint64_t* stamps, unsigned* counter) {
  WaitForPrevious();
  if (blockIdx.x == 0 && threadIdx.x == 0) stamps[0] = GlobalTimer();
  for (int p = 0; p < table.count; ++p) MovePiece(table.pieces[p]);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(counter, 1) != gridDim.x - 1) return;
  *counter = 0;
  stamps[1] = GlobalTimer();
}

class TransferKernel final : public CudaKernel {
 public:
  explicit TransferKernel(std::vector<size_t> sizes_bytes)
      : CudaKernel(absl::StrCat("Transfer of ", sizes_bytes.size(), " tensors"), 0),
        sizes_bytes_(std::move(sizes_bytes)),
        blocks_(BlocksOf(sizes_bytes_)) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    const size_t tensors = sizes_bytes_.size();
    if (args.spans.size() != 2 * tensors + 2) {
      return absl::InternalError(
          absl::StrCat("kernel ", name(), " takes ", 2 * tensors + 2, " spans and got ", args.spans.size()));
    }
    TransferTable table;
    for (size_t i = 0; i < tensors; ++i) {
      const DeviceSpan source = args.spans[2 * i];
      const DeviceSpan destination = args.spans[2 * i + 1];
      SLUICE_RETURN_IF_ERROR(CheckSpan(source, sizes_bytes_[i]));
      SLUICE_RETURN_IF_ERROR(CheckSpan(destination, sizes_bytes_[i]));
      if (sizes_bytes_[i] == 0) continue;
      table.pieces[table.count++] = {source.data, destination.data, sizes_bytes_[i]};
    }
    SLUICE_RETURN_IF_ERROR(CheckSpan(args.spans[2 * tensors], 2 * sizeof(uint64_t)));
    SLUICE_RETURN_IF_ERROR(CheckSpan(args.spans[2 * tensors + 1], sizeof(unsigned)));
    LaunchAfterPrevious(Transfer, blocks_, kThreads, stream, table,
                        reinterpret_cast<uint64_t*>(args.spans[2 * tensors].data),
                        reinterpret_cast<unsigned*>(args.spans[2 * tensors + 1].data));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  }

 private:
  static unsigned BlocksOf(const std::vector<size_t>& sizes_bytes) {
    const size_t total = std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), size_t{0});
    return static_cast<unsigned>(std::clamp<size_t>((total + kBlockBytes - 1) / kBlockBytes, 1, kMaxBlocks));
  }

  absl::Status CheckSpan(DeviceSpan span, size_t size_bytes) const {
    if (span.size_bytes < size_bytes) {
      return absl::InternalError(
          absl::StrCat("kernel ", name(), ": a span needs ", size_bytes, " bytes and has ", span.size_bytes));
    }
    if (reinterpret_cast<uintptr_t>(span.data) % sizeof(uint4) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("kernel ", name(), ": a span is not aligned to 16 bytes"));
  }

  const std::vector<size_t> sizes_bytes_;
  const unsigned blocks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareTransfer(const TransferDescription& description) {
  if (description.sizes_bytes.size() > kMaxTransferTensors) {
    return absl::InvalidArgumentError(absl::StrCat("a transfer of ", description.sizes_bytes.size(),
                                                   " tensors; at most ", kMaxTransferTensors, " go into one launch"));
  }
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, Transfer));
  return std::make_unique<TransferKernel>(description.sizes_bytes);
}

}  // namespace sluice::gpu::cuda
