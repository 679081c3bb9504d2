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
                           const gpu::KernelFeatures& features) {
  SLUICE_RETURN_IF_ERROR(BindShapes(graph, signature, bucket));
  SLUICE_RETURN_IF_ERROR(FoldConstants(graph, host));
  RemoveIdentities(graph);
  SLUICE_RETURN_IF_ERROR(FoldBatchNorm(graph));  // Again: an identity may have stood between.
  SLUICE_RETURN_IF_ERROR(FuseOneHot(graph));
  FuseBias(graph);
  FuseGelu(graph);
  RemoveDeadCode(graph);  // So that what a fused node no longer reads does not count as a use.
  SLUICE_RETURN_IF_ERROR(HoistGather(graph, host));
  if (features.attention) {
    FuseAttention(graph);
    CancelSwaps(graph);
    MergeProducts(graph);
  }
  FuseResidual(graph);
  FuseActivation(graph, features.matmul_gelu);
  if (features.conv_activations) FuseConvActivation(graph);
  RemoveDeadCode(graph);
  if (features.channels_last) AssignLayouts(graph);
  return absl::OkStatus();
}

}  // namespace sluice::model
