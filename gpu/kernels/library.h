// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "gpu/kernels/attention.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/delay.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/elementwise_chain.h"
#include "gpu/kernels/features.h"
#include "gpu/kernels/fill.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/movement.h"
#include "gpu/kernels/normalize.h"
#include "gpu/kernels/pool.h"
#include "gpu/kernels/reduce.h"
#include "gpu/kernels/softmax.h"
#include "gpu/kernels/transfer.h"
#include "gpu/kernels/tuning.h"
#include "gpu/load_turns.h"

namespace sluice::gpu {

/// The kernels of one backend. Purpose: what stands behind the Prepare functions of every operator family; a family a
/// backend lacks answers UNIMPLEMENTED. Bounds: keeps nothing per call. Ownership: the device owns it; kernels are the
/// caller's and must not outlive it. Threads: any number may prepare at once; may allocate, so load time only. Errors:
/// INVALID_ARGUMENT saying what was expected and what came when a description is inconsistent (descriptions come from
/// files and are never trusted), UNIMPLEMENTED for what the backend cannot do, RESOURCE_EXHAUSTED, INTERNAL when a
/// library underneath fails.
class KernelLibrary {
 public:
  explicit KernelLibrary(Backend backend) : backend_(backend) {}
  virtual ~KernelLibrary() = default;
  Backend backend() const { return backend_; }

  virtual KernelFeatures features() const { return {}; }
  /// What its trials chose; null for a backend that tries nothing.
  virtual TuningTable* tuning() { return nullptr; }
  /// Whom trials ask before they run, and profiles of what was prepared here; null at first: nobody. Before anything is
  /// prepared while the device serves.
  virtual void SetLoadTurns(LoadTurns* turns) { load_turns_ = turns; }
  LoadTurns* load_turns() const { return load_turns_; }
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttention(const AttentionDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const ConvDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const MatMulDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PreparePool(const PoolDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareGlobalPool(const GlobalPoolDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareUnary(const UnaryDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareCast(const CastDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareBinary(const BinaryDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareWhere(const WhereDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareElementwiseChain(
      const ElementwiseChainDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareReduce(const ReduceDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareArgReduce(const ArgReduceDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareSoftmax(const SoftmaxDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNorm(const BatchNormDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNorm(const LayerNormDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareTranspose(const TransposeDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const ConcatDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareSlice(const SliceDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareGather(const GatherDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareExpand(const ExpandDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareCopy(const CopyDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareFill(const FillDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareDelay(const DelayDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareTransfer(const TransferDescription& description);
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareStamp();

 private:
  absl::Status Unimplemented(absl::string_view family) const;

  const Backend backend_;
  LoadTurns* load_turns_ = nullptr;
};

}  // namespace sluice::gpu
