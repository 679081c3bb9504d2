// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "gpu/device.h"
#include "gpu/kernels/cuda_matmul_lt.h"
#include "gpu/kernels/cuda_matmul_shape.h"
#include "gpu/kernels/cuda_trial.h"

namespace sluice::gpu::cuda {

/// A matrix product of FP32, FP16 or BF16 by cuBLASLt: as one product, or with its depth shared among several, which a
/// kernel of ours adds up, always in FP32. Few rows of a deep product leave one product a handful of blocks: [128,3072]
/// by [3072,768] has 72 tiles of 128 x 64 for 132 multiprocessors. Immutable once made; any number of threads may
/// submit it.
class MatMulWay {
 public:
  /// Ways worth trying, the one that cuBLASLt expects to be fastest first; none when it takes no such product. At most
  /// `most` of its algorithms for each number of parts. Load time only.
  static absl::StatusOr<std::vector<MatMulWay>> Ways(cublasLtHandle_t handle, const MatMulOperands& operands, int most);

  size_t workspace_bytes() const { return sums_bytes_ + product_.workspace_bytes(); }
  std::string name() const;
  /// All that tells it from other ways of its product, for a tuning.
  absl::StatusOr<std::string> LongName() const;
  /// Allocates nothing, and is capturable. `c` and `residual` are null when there are none; `residual` may be `out`.
  /// Addresses on 16 bytes.
  absl::Status Submit(cudaStream_t stream, const void* a, const void* b, const void* c, const void* residual, void* out,
                      DeviceSpan workspace) const;

 private:
  /// `sums`: the product goes into the workspace, and SubmitAddC does the rest.
  MatMulWay(const MatMulOperands& operands, const LtProduct& product, int64_t parts, bool sums);

  MatMulShape shape_;
  DataType type_;
  LtProduct product_;
  int64_t parts_ = 1;      ///< Of the depth.
  size_t sums_bytes_ = 0;  ///< Of the workspace: [parts, batches, rows, columns] before it is added up; 0 without.
};

/// The fastest way of each product that was asked for, found by trying, unless a tuning has it: cuBLASLt's own ranking
/// misses by up to five times in strict FP32. Kept, since models repeat their products. Any thread; load time only:
/// blocks, and lets one trial run at a time, so that two do not slow each other down.
class MatMulChoices {
 public:
  MatMulChoices(int ordinal, const TrialRules& rules) : ordinal_(ordinal), rules_(rules) {}
  /// None when cuBLASLt takes no such product.
  absl::StatusOr<std::optional<MatMulWay>> Choose(cublasLtHandle_t handle, const MatMulOperands& operands)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const int ordinal_;
  const TrialRules& rules_;
  Mutex mutex_;
  std::map<std::string, std::optional<MatMulWay>> chosen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gpu::cuda
