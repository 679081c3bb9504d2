// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/pool.h"

namespace sluice::gpu::host {

/// oneDNN, version 2 or 3, behind the host's kernels: only onednn*.cc see it. Purpose: its fast convolution, matrix
/// product and pooling, with every decision and allocation of ours made at Prepare (its own execution keeps a few
/// hundred bytes of bookkeeping per call). Bounds: scratch memory is the launch's workspace. Ownership: must outlive
/// its kernels. Threads: any number may prepare at once. Errors: UNIMPLEMENTED where oneDNN has nothing faster than the
/// plain loops (its reference implementations are slower), so that the caller uses those; its exceptions end here. A
/// launch that oneDNN refuses is INTERNAL, which loses the device: a stale result must not pass for one.
class OneDnn {
 public:
  /// `threads`: the team size kernels are prepared for, see HostLibraryOptions.
  static absl::StatusOr<std::unique_ptr<OneDnn>> Create(int threads);
  ~OneDnn();

  /// Rule for layouts: dimensions of 1 over which nothing slides are dropped. With the channels last oneDNN computes in
  /// that order. In row-major it picks its own (blocked) layouts, and input and result are reordered in the same
  /// kernel: with one thread 97 ms for ResNet-50's convolutions against 136 ms computed in row-major.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const ConvDescription& description) const;
  /// From four rows on a product with one constant matrix is a pointwise convolution.
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const MatMulDescription& description) const;
  absl::StatusOr<std::unique_ptr<Kernel>> PreparePool(const PoolDescription& description) const;

 private:
  struct State;
  explicit OneDnn(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::gpu::host
