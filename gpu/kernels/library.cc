// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/library.h"

#include "absl/strings/str_cat.h"
#include "gpu/kernels/stamp.h"

namespace sluice::gpu {

absl::Status KernelLibrary::Unimplemented(absl::string_view family) const {
  return absl::UnimplementedError(
      absl::StrCat("the ", backend_ == Backend::kHost ? "host" : "CUDA", " backend has no kernel for ", family));
}

// One family: the default of the virtual, and the free function that its header promises.
#define SLUICE_KERNEL_FAMILY(Prepare, Description, family)                                                             \
  absl::StatusOr<std::unique_ptr<Kernel>> KernelLibrary::Prepare(const Description&) { return Unimplemented(family); } \
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(Device& device, const Description& description) {                    \
    return device.kernels().Prepare(description);                                                                      \
  }

SLUICE_KERNEL_FAMILY(PrepareAttention, AttentionDescription, "attention")
SLUICE_KERNEL_FAMILY(PrepareConv, ConvDescription, "convolution")
SLUICE_KERNEL_FAMILY(PrepareMatMul, MatMulDescription, "matrix product")
SLUICE_KERNEL_FAMILY(PreparePool, PoolDescription, "pooling")
SLUICE_KERNEL_FAMILY(PrepareGlobalPool, GlobalPoolDescription, "global pooling")
SLUICE_KERNEL_FAMILY(PrepareUnary, UnaryDescription, "unary elementwise")
SLUICE_KERNEL_FAMILY(PrepareCast, CastDescription, "cast")
SLUICE_KERNEL_FAMILY(PrepareBinary, BinaryDescription, "binary elementwise")
SLUICE_KERNEL_FAMILY(PrepareWhere, WhereDescription, "where")
SLUICE_KERNEL_FAMILY(PrepareElementwiseChain, ElementwiseChainDescription, "elementwise chains")
SLUICE_KERNEL_FAMILY(PrepareReduce, ReduceDescription, "reduction")
SLUICE_KERNEL_FAMILY(PrepareArgReduce, ArgReduceDescription, "index reduction")
SLUICE_KERNEL_FAMILY(PrepareSoftmax, SoftmaxDescription, "softmax")
SLUICE_KERNEL_FAMILY(PrepareBatchNorm, BatchNormDescription, "batch normalisation")
SLUICE_KERNEL_FAMILY(PrepareLayerNorm, LayerNormDescription, "layer normalisation")
SLUICE_KERNEL_FAMILY(PrepareTranspose, TransposeDescription, "transpose")
SLUICE_KERNEL_FAMILY(PrepareConcat, ConcatDescription, "concatenation")
SLUICE_KERNEL_FAMILY(PrepareSlice, SliceDescription, "slice")
SLUICE_KERNEL_FAMILY(PrepareGather, GatherDescription, "gather")
SLUICE_KERNEL_FAMILY(PrepareExpand, ExpandDescription, "expand")
SLUICE_KERNEL_FAMILY(PrepareCopy, CopyDescription, "copy")
SLUICE_KERNEL_FAMILY(PrepareFill, FillDescription, "fill")
SLUICE_KERNEL_FAMILY(PrepareDelay, DelayDescription, "delay")
SLUICE_KERNEL_FAMILY(PrepareTransfer, TransferDescription, "transfers over mapped memory")

#undef SLUICE_KERNEL_FAMILY

KernelFeatures KernelFeaturesOf(Device& device) { return device.kernels().features(); }

absl::StatusOr<std::unique_ptr<Kernel>> KernelLibrary::PrepareStamp() { return Unimplemented("stamp"); }

absl::StatusOr<std::unique_ptr<Kernel>> PrepareStamp(Device& device) { return device.kernels().PrepareStamp(); }

}  // namespace sluice::gpu
