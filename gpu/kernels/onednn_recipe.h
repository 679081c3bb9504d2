// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/kernel.h"
#include "gpu/kernels/conv.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_constant.h"
#include "gpu/kernels/matmul.h"
#include "gpu/kernels/onednn_version.h"
#include "gpu/kernels/pool.h"

// What oneDNN's kernels are put together from. Functions here throw dnnl::error; onednn.cc makes it a status.
namespace sluice::gpu::host::onednn {

using Result = absl::StatusOr<std::unique_ptr<Kernel>>;
inline constexpr auto kFloat = dnnl::memory::data_type::f32;
inline constexpr auto kAny = dnnl::memory::format_tag::any;

absl::Status ToStatus(const char* what, const dnnl::error& error);

/// Sets the calling thread's OpenMP team size for a scope: oneDNN divides work by it when it prepares.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamSize() { omp_set_num_threads(before_); }

 private:
  const int before_;
};

Layout RowMajor(const dnnl::memory::dims& dims);
/// [N, C, spatial...] as it lies in memory: in that order, or with the channels last.
Layout Images(const dnnl::memory::dims& dims, bool channels_last);

/// Where a primitive's argument lives at launch.
struct Place {
  enum class Kind : uint8_t { kSpan, kWorkspace, kConstant };
  Kind kind = Kind::kSpan;
  size_t index = 0;  ///< Of the span, or byte offset into the workspace.
  std::byte* data = nullptr;

  static Place Span(size_t index) { return {Kind::kSpan, index, nullptr}; }
  static Place At(const HostConstant& constant) { return {Kind::kConstant, 0, constant.data()}; }
  std::byte* Resolve(const KernelArgs& args) const {
    if (kind == Kind::kConstant) return data;
    return kind == Kind::kSpan ? args.spans[index].data : args.workspace.data + index;
  }
};

struct Argument {
  int role;
  Layout layout;
  Place place;
};

/// One primitive and its arguments.
struct Step {
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
};

/// What Prepare puts together: steps, run in order, and the memory they need.
class Recipe {
 public:
  Recipe(const dnnl::engine& engine, const dnnl::stream& stream) : engine_(engine), stream_(stream) {}
  const dnnl::engine& engine() const { return engine_; }

  Place Reserve(size_t size_bytes);
  void Add(const dnnl::primitive& primitive, const Layout& scratchpad, std::vector<Argument> arguments);
  void AddReorder(const Layout& from, Place source, const Layout& to, Place destination);
  /// The constant in `layout`, reordered from `given`, and kept alive by the kernel.
  absl::StatusOr<Place> Constant(PackedWeights* pool, const sluice::gpu::Constant& constant, const Layout& given,
                                 const Layout& layout);
  Place Keep(HostConstant constant);
  std::unique_ptr<Kernel> Finish(std::string name) &&;

 private:
  friend class OneDnnKernel;
  dnnl::engine engine_;
  dnnl::stream stream_;
  size_t workspace_bytes_ = 0;
  std::vector<Step> steps_;
  std::vector<HostConstant> constants_;
};

/// What oneDNN calls reference and simple is slower than the plain loops: UNIMPLEMENTED.
absl::Status RefuseReference(const char* implementation);

void AppendActivation(Activation activation, float low, float high, dnnl::post_ops& after);
/// `after`, and the launch's workspace for scratch memory.
dnnl::primitive_attr AttributesOf(const dnnl::post_ops& after);

dnnl::memory::dims Joined(const dnnl::memory::dims& front, const Dims& back);
/// oneDNN counts the gap.
Dims MinusOne(Dims dilations);

// onednn_conv.cc, onednn_matmul.cc, onednn_pool.cc
Result BuildConv(Recipe recipe, const ConvDescription& d, const ConvGeometry& geometry);
Result BuildMatMul(Recipe recipe, const MatMulDescription& d, const MatMulGeometry& geometry);
/// True for rows times one constant matrix, plus a constant row: what a pointwise convolution with the channels last
/// computes, over as many places as there are rows.
bool IsPointwise(const MatMulDescription& d, const MatMulGeometry& g);
Result BuildPointwise(Recipe recipe, const MatMulDescription& d, const MatMulGeometry& g);
Result BuildPool(Recipe recipe, const PoolDescription& d, const PoolGeometry& geometry);

}  // namespace sluice::gpu::host::onednn
