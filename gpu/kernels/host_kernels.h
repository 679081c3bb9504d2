// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu::host {

// The host's plain-loop kernels, one function per family. They are the reference every other implementation is compared
// with, and what runs where no library does better. Contracts: the family headers.

absl::StatusOr<std::unique_ptr<Kernel>> PlainAttention(const AttentionDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainConv(const ConvDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainMatMul(const MatMulDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainPool(const PoolDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainGlobalPool(const GlobalPoolDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainUnary(const UnaryDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainCast(const CastDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainBinary(const BinaryDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainWhere(const WhereDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainElementwiseChain(const ElementwiseChainDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainReduce(const ReduceDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainArgReduce(const ArgReduceDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainSoftmax(const SoftmaxDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainBatchNorm(const BatchNormDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainLayerNorm(const LayerNormDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainTranspose(const TransposeDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainConcat(const ConcatDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainSlice(const SliceDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainGather(const GatherDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainExpand(const ExpandDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainCopy(const CopyDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainFill(const FillDescription& description);
absl::StatusOr<std::unique_ptr<Kernel>> PlainDelay(const Clock& clock, const DelayDescription& description);
std::unique_ptr<Kernel> PlainStamp(const Clock& clock);

}  // namespace sluice::gpu::host
