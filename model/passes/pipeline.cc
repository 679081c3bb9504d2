// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/status_macros.h"
#include "model/passes/passes.h"

namespace sluice::model {

absl::Status SimplifyUnbound(Graph& graph, gpu::Device& host) {
  RemoveDeadCode(graph);
  SLUICE_RETURN_IF_ERROR(FoldConstants(graph, host));
  RemoveIdentities(graph);
  SLUICE_RETURN_IF_ERROR(FoldBatchNorm(graph));
  RemoveDeadCode(graph);
  return absl::OkStatus();
}

absl::Status SimplifyBound(Graph& graph, const Signature& signature, const Bucket& bucket, gpu::Device& host,
                           const gpu::KernelFeatures& features, Precision precision) {
  const bool half = IsHalf(precision);
  SLUICE_RETURN_IF_ERROR(BindShapes(graph, signature, bucket));
  SLUICE_RETURN_IF_ERROR(FoldConstants(graph, host));
  RemoveIdentities(graph);
  SLUICE_RETURN_IF_ERROR(FoldBatchNorm(graph));  // Again: an identity may have stood between.
  MergeEqualNodes(graph);
  FuseLayerNorm(graph);
  SLUICE_RETURN_IF_ERROR(FuseOneHot(graph));
  FuseBias(graph);
  FuseGelu(graph);
  RemoveDeadCode(graph);  // So that what a fused node no longer reads does not count as a use.
  SLUICE_RETURN_IF_ERROR(HoistGather(graph, host));
  if (features.attention || half) {  // Devices with halves have it for them.
    FuseAttention(graph);
    SimplifyMasks(graph);
    CancelSwaps(graph);
    MergeProducts(graph);
  }
  FuseResidual(graph, /*products=*/half);
  FuseActivation(graph, features.matmul_gelu && !half);
  if (features.conv_activations || half) FuseConvActivation(graph);
  RemoveDeadCode(graph);
  FuseAddNorm(graph);
  LowerPrecision(graph, precision);
  if (features.channels_last || half) AssignLayouts(graph, /*every=*/half);
  FuseElementwise(graph);  // Takes what all others left, and so no other pass must know what it makes.
  return absl::OkStatus();
}

}  // namespace sluice::model
