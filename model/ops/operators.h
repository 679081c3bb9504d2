// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace sluice::model {

class InferContext;
class LowerContext;

// Shape rules and lowerings, by family; registry.cc says which operator uses which.

// attention.cc
/// On an Attention whose first three inputs are one value [batch, length, 3 * heads * size]: Q, K and V are its thirds.
inline constexpr absl::string_view kMergedAttribute = "sluice.merged";
absl::Status InferAttention(InferContext& context);
absl::Status LowerAttention(LowerContext& context);

// elementwise.cc
absl::Status InferUnary(InferContext& context);
absl::Status LowerUnary(LowerContext& context);
absl::Status InferClip(InferContext& context);
absl::Status InferBinary(InferContext& context);
absl::Status InferComparison(InferContext& context);
absl::Status LowerBinary(LowerContext& context);
absl::Status LowerMod(LowerContext& context);
absl::Status InferIsNan(InferContext& context);
absl::Status LowerIsNan(LowerContext& context);
absl::Status InferVariadic(InferContext& context);
absl::Status LowerVariadic(LowerContext& context);
absl::Status InferCast(InferContext& context);
absl::Status LowerCast(LowerContext& context);
absl::Status InferWhere(InferContext& context);
absl::Status LowerWhere(LowerContext& context);

// elementwise_chain.cc
absl::Status InferElementwise(InferContext& context);
absl::Status LowerElementwise(LowerContext& context);

// linear.cc
absl::Status InferConv(InferContext& context);
absl::Status LowerConv(LowerContext& context);
absl::Status InferMatMul(InferContext& context);
absl::Status LowerMatMul(LowerContext& context);
absl::Status InferGemm(InferContext& context);
absl::Status LowerGemm(LowerContext& context);

// ml.cc
absl::Status InferArrayFeatureExtractor(InferContext& context);
absl::Status LowerArrayFeatureExtractor(LowerContext& context);
absl::Status InferScaler(InferContext& context);
absl::Status LowerScaler(LowerContext& context);

// pool.cc
absl::Status InferPool(InferContext& context);
absl::Status LowerPool(LowerContext& context);
absl::Status InferGlobalPool(InferContext& context);
absl::Status LowerGlobalPool(LowerContext& context);

// reduce.cc
absl::Status InferReduce(InferContext& context);
absl::Status LowerReduce(LowerContext& context);
absl::Status InferArgReduce(InferContext& context);
absl::Status LowerArgReduce(LowerContext& context);
absl::Status InferSoftmax(InferContext& context);
absl::Status LowerSoftmax(LowerContext& context);

// normalize.cc
/// Inputs of a LayerNormalization that a pass may have put behind those that files know. What is normalised is the sum
/// of input 0 and those from kNormAddends on. For each of the four, input 0 first, there may be indices from
/// kNormIndices on: then what is added is rows of it. A second output is that sum.
inline constexpr size_t kNormAddends = 3;
inline constexpr size_t kNormIndices = 6;
absl::Status InferBatchNorm(InferContext& context);
absl::Status LowerBatchNorm(LowerContext& context);
absl::Status InferLayerNorm(InferContext& context);
absl::Status LowerLayerNorm(LowerContext& context);

// movement.cc
/// Input of a Conv that a pass may have put behind those that files know: a tensor to be added to the result.
inline constexpr size_t kConvResidual = 3;
/// The same of a MatMul or Gemm of halves.
inline constexpr size_t kProductResidual = 3;
/// On a Transpose that a pass made: it changes the order in memory, not the dimensions.
inline constexpr absl::string_view kLayoutAttribute = "sluice.layout";
absl::Status InferTranspose(InferContext& context);
absl::Status LowerTranspose(LowerContext& context);
absl::Status InferConcat(InferContext& context);
absl::Status LowerConcat(LowerContext& context);
absl::Status InferSlice(InferContext& context);
absl::Status LowerSlice(LowerContext& context);
absl::Status InferSplit(InferContext& context);
absl::Status LowerSplit(LowerContext& context);
absl::Status InferGather(InferContext& context);
absl::Status LowerGather(LowerContext& context);
absl::Status InferGatherNd(InferContext& context);
absl::Status LowerGatherNd(LowerContext& context);
absl::Status InferExpand(InferContext& context);
absl::Status LowerExpand(LowerContext& context);
absl::Status InferTile(InferContext& context);
absl::Status LowerTile(LowerContext& context);

// shape.cc
absl::Status InferReshape(InferContext& context);
absl::Status InferFlatten(InferContext& context);
absl::Status InferSqueeze(InferContext& context);
absl::Status InferUnsqueeze(InferContext& context);
absl::Status InferSame(InferContext& context);
absl::Status InferDropout(InferContext& context);
absl::Status LowerView(LowerContext& context);
absl::Status InferShape(InferContext& context);
absl::Status InferSize(InferContext& context);
absl::Status InferConstant(InferContext& context);
absl::Status InferConstantOfShape(InferContext& context);
absl::Status InferRange(InferContext& context);

}  // namespace sluice::model
