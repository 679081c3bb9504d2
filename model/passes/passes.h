// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "gpu/device.h"
#include "gpu/kernels/features.h"
#include "model/graph.h"
#include "model/model.h"

namespace sluice::model {

// Rewrites of a graph, one file each. Every pass leaves a graph that computes the same outputs, with nodes in order;
// each is linear in the graph's size. A fused node stands where the last of its parts stood, so that everything it
// reads comes before it. What depends on the device that will run the graph says so.

/// Gives every input the shape the bucket has for it. INVALID_ARGUMENT when the bucket does not fit the signature.
absl::Status BindShapes(Graph& graph, const Signature& signature, const Bucket& bucket);

/// Runs shape rules, and replaces nodes whose inputs are all constant by their results, computed on `host`. Nodes whose
/// input shapes are not known yet are left alone. Results far larger than what they come from stay unfolded.
absl::Status FoldConstants(Graph& graph, gpu::Device& host);

/// Removes nodes that hand on their input unchanged: Identity, Dropout, and where shapes are known casts to the same
/// type, slices of everything, expansions to the same shape and the like. A graph's output keeps its node.
void RemoveIdentities(Graph& graph);

/// Multiplies a BatchNormalization's scale and shift into the weights and bias of the convolution before it.
absl::Status FoldBatchNorm(Graph& graph);

/// Nodes that compute the same of the same become one, such as the mask that every layer makes of its own.
void MergeEqualNodes(Graph& graph);

/// Layer normalisation written out, as exporters spell it without or before the operator, becomes one
/// LayerNormalization where shapes show that it is over the last dimensions. Needs shapes; after MergeEqualNodes, since
/// some spell the difference from the mean twice.
void FuseLayerNorm(Graph& graph);

/// Product of a one-hot matrix (Equal against 0, 1, 2 ..., then Cast) and a constant: a Gather of the constant's rows,
/// and a row of zeros for indices outside. Needs shapes.
absl::Status FuseOneHot(Graph& graph);

/// The sums and products that exporters spell GELU with become one Gelu node.
void FuseGelu(Graph& graph);

/// Applies what follows a Gather of constant rows, element by element, to the rows instead, where the table is smaller
/// than what is gathered from it. Needs shapes.
absl::Status HoistGather(Graph& graph, gpu::Device& host);

/// Attention written out, as exporters spell it, becomes one Attention node on packed tokens, [batch, length, heads *
/// size], and so do Attention nodes whose operands and result are turned to heads and back around them. For devices
/// with a kernel for those. Needs shapes; after FuseBias.
void FuseAttention(Graph& graph);

/// A product of each row with constants computes the same with the rows in another order: two Transposes that swap the
/// first two dimensions before it and back after it vanish. (Torch's multi-head attention has them.) Needs shapes.
void CancelSwaps(Graph& graph);

/// The products that give one Attention its Q, K and V, of one input and with constant weights, become one, with their
/// weights side by side. For devices whose attention takes those in one value. Needs shapes; after FuseBias, before
/// FuseActivation.
void MergeProducts(Graph& graph);

/// A mask of 0 and minus infinity that an Attention adds becomes the truth values it was chosen by, without those that
/// are true everywhere.
void SimplifyMasks(Graph& graph);

/// An Add of a constant becomes the bias of the convolution or matrix product before it. Needs shapes.
void FuseBias(Graph& graph);

/// An Add of another tensor becomes the residual of the convolution before it, and where `products` of the matrix
/// product. Needs shapes.
void FuseResidual(Graph& graph, bool products = false);

/// A Relu, and where `gelu` a Gelu behind a matrix product, becomes the activation of the node before it.
void FuseActivation(Graph& graph, bool gelu = false);

/// What follows a convolution and only it, a Clip or x * Sigmoid(x), becomes its activation. For devices whose
/// convolutions take those. Needs shapes.
void FuseConvActivation(Graph& graph);

/// An Add, or several of which only the last has other readers, becomes part of the LayerNormalization behind it, which
/// then gives the sum as a second output to those; so does a Gather of rows that only such an Add reads. Needs shapes;
/// after FuseResidual, which costs no kernel at all.
void FuseAddNorm(Graph& graph);

/// Lets convolutions with two spatial dimensions, and what stands between them, work with the channels last in memory;
/// the order is changed where such a region begins and ends. For devices whose convolutions are faster so. A region of
/// one convolution is left alone unless `every` is set, for devices that convolve in no other order. Behind the passes
/// that do not know layouts. Needs shapes.
void AssignLayouts(Graph& graph, bool every = false);

/// Lets values of FP32 be halves, with casts where operators lack them and at inputs and outputs; or allows TF32. Needs
/// shapes.
void LowerPrecision(Graph& graph, Precision precision);

/// Elementwise nodes of one floating type and one shape whose results only each other read become one Elementwise node,
/// from a result backwards, within the bounds of gpu/kernels/elementwise_chain.h. Operands of smaller shapes are
/// inputs, made outside. Last: types and layouts are settled, and what other passes fuse better they have. Needs
/// shapes.
void FuseElementwise(Graph& graph);

/// Removes nodes whose results nobody reads.
void RemoveDeadCode(Graph& graph);

/// What can be done before any shape is bound: done once per device, so that the weights it makes are shared by all
/// buckets' plans.
absl::Status SimplifyUnbound(Graph& graph, gpu::Device& host);

/// Binds the bucket and runs every pass; `features` are those of the device that will run the graph, which have what
/// `precision` needs. Afterwards every
/// value that is read has a type and a shape.
absl::Status SimplifyBound(Graph& graph, const Signature& signature, const Bucket& bucket, gpu::Device& host,
                           const gpu::KernelFeatures& features, Precision precision);

}  // namespace sluice::model
