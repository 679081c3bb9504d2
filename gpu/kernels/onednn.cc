// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/onednn.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "gpu/kernels/onednn_recipe.h"

namespace sluice::gpu::host {

struct OneDnn::State {
  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
};

namespace {

using onednn::Recipe;
using onednn::Result;

template <class Body>
Result Guarded(int threads, const char* what, const Body& body) {
  const onednn::TeamSize team(threads);
  try {
    return body();
  } catch (const dnnl::error& error) {
    return onednn::ToStatus(what, error);
  }
}

}  // namespace

OneDnn::OneDnn(std::unique_ptr<State> state) : state_(std::move(state)) {}
OneDnn::~OneDnn() = default;

absl::StatusOr<std::unique_ptr<OneDnn>> OneDnn::Create(int threads) {
  try {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    return std::unique_ptr<OneDnn>(new OneDnn(std::unique_ptr<State>(new State{std::max(threads, 1), engine, stream})));
  } catch (const dnnl::error& error) {
    return onednn::ToStatus("start", error);
  }
}

Result OneDnn::PrepareConv(const ConvDescription& description) const {
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN convolves FP32 here");
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  return Guarded(state_->threads, "convolution",
                 [&] { return onednn::BuildConv(Recipe(state_->engine, state_->stream), description, geometry); });
}

Result OneDnn::PrepareMatMul(const MatMulDescription& description) const {
  SLUICE_ASSIGN_OR_RETURN(const MatMulGeometry geometry, MakeMatMulGeometry(description));
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN multiplies FP32 here");
  if (onednn::IsPointwise(description, geometry)) {
    Result kernel = Guarded(state_->threads, "matrix product as convolution", [&] {
      return onednn::BuildPointwise(Recipe(state_->engine, state_->stream), description, geometry);
    });
    if (!absl::IsUnimplemented(kernel.status())) return kernel;
  }
  return Guarded(state_->threads, "matrix product",
                 [&] { return onednn::BuildMatMul(Recipe(state_->engine, state_->stream), description, geometry); });
}

Result OneDnn::PreparePool(const PoolDescription& description) const {
  SLUICE_ASSIGN_OR_RETURN(const PoolGeometry geometry, MakePoolGeometry(description));
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN pools FP32 here");
  return Guarded(state_->threads, "pooling",
                 [&] { return onednn::BuildPool(Recipe(state_->engine, state_->stream), description, geometry); });
}

}  // namespace sluice::gpu::host
