// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/host_library.h"

#include <utility>

#include "base/log.h"
#include "gpu/kernels/host_kernels.h"
#if SLUICE_HAVE_ONEDNN
#include "gpu/kernels/onednn.h"
#endif

namespace sluice::gpu {
namespace {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;

/// Plain loops for everything.
class PlainLibrary : public KernelLibrary {
 public:
  explicit PlainLibrary(const Clock& clock) : KernelLibrary(Backend::kHost), clock_(clock) {}

  // One kernel takes as long as the plain products that it stands for, and no memory for scores. oneDNN's products are
  // two to three times faster than either.
  KernelFeatures features() const override { return {.attention = true}; }
  Result PrepareAttention(const AttentionDescription& d) override { return host::PlainAttention(d); }
  Result PrepareConv(const ConvDescription& d) override { return host::PlainConv(d); }
  Result PrepareMatMul(const MatMulDescription& d) override { return host::PlainMatMul(d); }
  Result PreparePool(const PoolDescription& d) override { return host::PlainPool(d); }
  Result PrepareGlobalPool(const GlobalPoolDescription& d) override { return host::PlainGlobalPool(d); }
  Result PrepareUnary(const UnaryDescription& d) override { return host::PlainUnary(d); }
  Result PrepareCast(const CastDescription& d) override { return host::PlainCast(d); }
  Result PrepareBinary(const BinaryDescription& d) override { return host::PlainBinary(d); }
  Result PrepareWhere(const WhereDescription& d) override { return host::PlainWhere(d); }
  Result PrepareElementwiseChain(const ElementwiseChainDescription& d) override {
    return host::PlainElementwiseChain(d);
  }
  Result PrepareReduce(const ReduceDescription& d) override { return host::PlainReduce(d); }
  Result PrepareArgReduce(const ArgReduceDescription& d) override { return host::PlainArgReduce(d); }
  Result PrepareSoftmax(const SoftmaxDescription& d) override { return host::PlainSoftmax(d); }
  Result PrepareBatchNorm(const BatchNormDescription& d) override { return host::PlainBatchNorm(d); }
  Result PrepareLayerNorm(const LayerNormDescription& d) override { return host::PlainLayerNorm(d); }
  Result PrepareTranspose(const TransposeDescription& d) override { return host::PlainTranspose(d); }
  Result PrepareConcat(const ConcatDescription& d) override { return host::PlainConcat(d); }
  Result PrepareSlice(const SliceDescription& d) override { return host::PlainSlice(d); }
  Result PrepareGather(const GatherDescription& d) override { return host::PlainGather(d); }
  Result PrepareExpand(const ExpandDescription& d) override { return host::PlainExpand(d); }
  Result PrepareCopy(const CopyDescription& d) override { return host::PlainCopy(d); }
  Result PrepareFill(const FillDescription& d) override { return host::PlainFill(d); }
  Result PrepareDelay(const DelayDescription& d) override { return host::PlainDelay(clock_, d); }
  Result PrepareStamp() override { return host::PlainStamp(clock_); }

 private:
  const Clock& clock_;
};

#if SLUICE_HAVE_ONEDNN
/// oneDNN where it has something faster, else the plain loops.
class OneDnnLibrary final : public PlainLibrary {
 public:
  OneDnnLibrary(const Clock& clock, std::unique_ptr<host::OneDnn> onednn)
      : PlainLibrary(clock), onednn_(std::move(onednn)) {}

  KernelFeatures features() const override {
    return {.channels_last = true, .conv_activations = true, .matmul_gelu = true};
  }
  Result PrepareConv(const ConvDescription& d) override {
    Result kernel = onednn_->PrepareConv(d);
    return absl::IsUnimplemented(kernel.status()) ? PlainLibrary::PrepareConv(d) : std::move(kernel);
  }
  Result PrepareMatMul(const MatMulDescription& d) override {
    Result kernel = onednn_->PrepareMatMul(d);
    return absl::IsUnimplemented(kernel.status()) ? PlainLibrary::PrepareMatMul(d) : std::move(kernel);
  }
  Result PreparePool(const PoolDescription& d) override {
    Result kernel = onednn_->PreparePool(d);
    return absl::IsUnimplemented(kernel.status()) ? PlainLibrary::PreparePool(d) : std::move(kernel);
  }

 private:
  const std::unique_ptr<host::OneDnn> onednn_;
};
#endif

}  // namespace

bool HostLibraryHasOneDnn() {
#if SLUICE_HAVE_ONEDNN
  return true;
#else
  return false;
#endif
}

std::unique_ptr<KernelLibrary> MakeHostKernelLibrary(const Clock& clock, const HostLibraryOptions& options) {
#if SLUICE_HAVE_ONEDNN
  if (options.use_onednn) {
    absl::StatusOr<std::unique_ptr<host::OneDnn>> onednn = host::OneDnn::Create(options.threads);
    if (onednn.ok()) return std::make_unique<OneDnnLibrary>(clock, *std::move(onednn));
    Log(Severity::kError, "oneDNN does not start; the host device runs its plain loops",
        {{"error", onednn.status().ToString()}});
  }
#endif
  (void)options;
  return std::make_unique<PlainLibrary>(clock);
}

}  // namespace sluice::gpu
