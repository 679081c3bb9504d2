// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_constant.h"

namespace sluice::gpu::host {

struct OneDnn::State {
  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
};

namespace {

using Layout = dnnl::memory::desc;
using Result = absl::StatusOr<std::unique_ptr<Kernel>>;
constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr auto kAny = dnnl::memory::format_tag::any;
constexpr size_t kAlignment = 64;

absl::Status ToStatus(const char* what, const dnnl::error& error) {
  const std::string message = absl::StrCat("oneDNN ", what, ": ", error.what());
  if (error.status == dnnl_unimplemented) return absl::UnimplementedError(message);
  if (error.status == dnnl_out_of_memory) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

/// Sets the calling thread's OpenMP team size for a scope: oneDNN divides work by it when it prepares.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamSize() { omp_set_num_threads(before_); }

 private:
  const int before_;
};

template <class Body>
Result Guarded(int threads, const char* what, const Body& body) {
  const TeamSize team(threads);
  try {
    return body();
  } catch (const dnnl::error& error) {
    return ToStatus(what, error);
  }
}

Layout RowMajor(const dnnl::memory::dims& dims) {
  dnnl::memory::dims strides(dims.size());
  dnnl::memory::dim stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return Layout(dims, kFloat, strides);
}

/// Names a layout so that equal ones share their packed weights. Empty (no sharing) for one that cannot be named.
std::string LayoutName(const Layout& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  if (d.format_kind != dnnl_blocked || d.extra.flags != 0) return "";
  std::string name = " onednn";
  for (int i = 0; i < d.ndims; ++i) {
    absl::StrAppend(&name, " ", d.dims[i], "/", d.padded_dims[i], ":", d.format_desc.blocking.strides[i]);
  }
  for (int i = 0; i < d.format_desc.blocking.inner_nblks; ++i) {
    absl::StrAppend(&name, " ", d.format_desc.blocking.inner_blks[i], "x", d.format_desc.blocking.inner_idxs[i]);
  }
  return name;
}

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

  Place Reserve(size_t size_bytes) {
    const size_t offset = workspace_bytes_;
    workspace_bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return {Place::Kind::kWorkspace, offset, nullptr};
  }
  void Add(const dnnl::primitive& primitive, const Layout& scratchpad, std::vector<Argument> arguments) {
    if (scratchpad.get_size() > 0) {
      arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, Reserve(scratchpad.get_size())});
    }
    steps_.push_back({primitive, std::move(arguments)});
  }
  void AddReorder(const Layout& from, Place source, const Layout& to, Place destination) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc description(engine_, from, engine_, to, attributes);
    Add(dnnl::reorder(description), description.scratchpad_desc(),
        {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, destination}});
  }
  /// The constant in `layout`, reordered from `given`, and kept alive by the kernel.
  absl::StatusOr<Place> Constant(PackedWeights* pool, const sluice::gpu::Constant& constant, const Layout& given,
                                 const Layout& layout) {
    if (layout == given) {  // the file's bytes as they are
      SLUICE_ASSIGN_OR_RETURN(HostConstant plain, HostConstant::MakePlain(pool, constant));
      return Keep(std::move(plain));
    }
    // Both layouts: a square matrix given as it is and transposed packs to different bytes of one layout.
    std::string name = LayoutName(layout);
    if (!name.empty()) absl::StrAppend(&name, " from", LayoutName(given));
    const auto pack = [&](std::span<std::byte> destination) -> absl::Status {
      // Alone: a team would stay with this loading thread, and once libgomp has more threads than there are CPUs, all
      // its teams go to sleep between two loops instead of waiting awake. MobileNetV2 then takes 9.1 ms instead of 4.7.
      const TeamSize alone(1);
      try {
        dnnl::memory source(given, engine_, const_cast<std::byte*>(constant.data.data()));
        dnnl::memory packed(layout, engine_, destination.data());
        dnnl::stream stream(engine_);
        dnnl::reorder(source, packed).execute(stream, source, packed);
        stream.wait();
      } catch (const dnnl::error& error) {
        return ToStatus("reorder of weights", error);
      }
      return absl::OkStatus();
    };
    SLUICE_ASSIGN_OR_RETURN(HostConstant packed, HostConstant::Make(name.empty() ? nullptr : pool, constant.name, name,
                                                                    layout.get_size(), pack));
    return Keep(std::move(packed));
  }
  Place Keep(HostConstant constant) {
    constants_.push_back(std::move(constant));
    return Place::At(constants_.back());
  }
  std::unique_ptr<Kernel> Finish(std::string name) &&;

 private:
  friend class OneDnnKernel;
  dnnl::engine engine_;
  dnnl::stream stream_;
  size_t workspace_bytes_ = 0;
  std::vector<Step> steps_;
  std::vector<HostConstant> constants_;
};

class OneDnnKernel final : public HostKernel {
 public:
  OneDnnKernel(std::string name, Recipe recipe)
      : HostKernel(std::move(name), recipe.workspace_bytes_), recipe_(std::move(recipe)) {}

  absl::Status Run(const KernelArgs& args) const override {
    for (const Step& step : recipe_.steps_) {
      if (const dnnl_status_t status = RunStep(step, args); status != dnnl_success) {
        return absl::InternalError(absl::StrCat("oneDNN refused a launch of ", name(), ": status ", status));
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kMaxArguments = 8;

  // The C interface: the C++ one would build a hash map for every launch.
  dnnl_status_t RunStep(const Step& step, const KernelArgs& args) const {
    std::array<dnnl_exec_arg_t, kMaxArguments> bound;
    size_t count = 0;
    dnnl_status_t status = dnnl_success;
    for (const Argument& argument : step.arguments) {
      dnnl_memory_t memory = nullptr;
      status = dnnl_memory_create(&memory, &argument.layout.data, recipe_.engine_.get(), argument.place.Resolve(args));
      if (status != dnnl_success) break;
      bound[count++] = {argument.role, memory};
    }
    if (status == dnnl_success) {
      status =
          dnnl_primitive_execute(step.primitive.get(), recipe_.stream_.get(), static_cast<int>(count), bound.data());
    }
    if (status == dnnl_success) status = dnnl_stream_wait(recipe_.stream_.get());
    for (size_t i = 0; i < count; ++i) dnnl_memory_destroy(bound[i].memory);
    return status;
  }

  const Recipe recipe_;
};

std::unique_ptr<Kernel> Recipe::Finish(std::string name) && {
  return std::make_unique<OneDnnKernel>(std::move(name), std::move(*this));
}

/// What oneDNN calls reference and simple is slower than the plain loops.
absl::Status RefuseReference(const char* implementation) {
  if (!absl::StartsWith(implementation, "ref") && !absl::StartsWith(implementation, "simple")) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("oneDNN has nothing faster than its '", implementation, "'"));
}

dnnl::memory::dims Joined(const dnnl::memory::dims& front, const Dims& back) {
  dnnl::memory::dims result = front;
  result.insert(result.end(), back.begin(), back.end());
  return result;
}

/// [N, C, spatial...] as it lies in memory: in that order, or with the channels last.
Layout Images(const dnnl::memory::dims& dims, bool channels_last) {
  if (!channels_last) return RowMajor(dims);
  dnnl::memory::dims strides(dims.size());
  dnnl::memory::dim stride = dims[1];
  strides[1] = 1;
  for (size_t i = dims.size(); i-- > 2; stride *= dims[i]) strides[i] = stride;
  strides[0] = stride;
  return Layout(dims, kFloat, strides);
}

void AppendActivation(Activation activation, float low, float high, dnnl::post_ops& after) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    case Activation::kClip:
      return after.append_eltwise(1.0f, dnnl::algorithm::eltwise_clip, low, high);
    case Activation::kSwish:
      return after.append_eltwise(1.0f, dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
    case Activation::kGelu:
      return after.append_eltwise(1.0f, dnnl::algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
  }
}

Dims MinusOne(Dims dilations) {
  for (int64_t& dilation : dilations) --dilation;  // oneDNN counts the gap
  return dilations;
}

dnnl::convolution_forward::primitive_desc DescribeConv(const dnnl::engine& engine, const ConvDescription& d,
                                                       const Spatial& s, const Layout& source, const Layout& weights,
                                                       const Layout& destination) {
  dnnl::post_ops after;
  if (d.residual) after.append_sum(1.0f);
  AppendActivation(d.activation, d.low, d.high, after);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  constexpr auto kInference = dnnl::prop_kind::forward_inference;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const Dims gaps = MinusOne(s.dilations);
  if (d.bias.has_value()) {
    return {{kInference, kDirect, source, weights, RowMajor(d.bias->dims), destination, s.strides, gaps, s.pads_begin,
             s.pads_end},
            attributes,
            engine};
  }
  return {{kInference, kDirect, source, weights, destination, s.strides, gaps, s.pads_begin, s.pads_end},
          attributes,
          engine};
}

/// Channels last is a layout that oneDNN computes in as fast as in its own. In row-major it does not, and what it has
/// no generated code for in either it takes in a layout of its own.
dnnl::convolution_forward::primitive_desc ChooseConv(const dnnl::engine& engine, const ConvDescription& d,
                                                     const Spatial& s, const Layout& source, const Layout& weights,
                                                     const Layout& destination) {
  if (d.channels_last) {
    try {
      auto description = DescribeConv(engine, d, s, source, weights, destination);
      if (RefuseReference(description.impl_info_str()).ok()) return description;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
  }
  return DescribeConv(engine, d, s, Layout(source.dims(), kFloat, kAny), weights,
                      Layout(destination.dims(), kFloat, kAny));
}

Result BuildConv(Recipe recipe, const ConvDescription& d, const ConvGeometry& geometry) {
  const Spatial s = DropUnitDims(geometry.spatial);
  const dnnl::memory::dims source_dims = Joined({geometry.batch, geometry.channels}, s.input);
  const dnnl::memory::dims output_dims = Joined({geometry.batch, geometry.filters}, s.output);
  dnnl::memory::dims weight_dims =
      Joined({geometry.filters / geometry.groups, geometry.channels / geometry.groups}, s.kernel);
  if (geometry.groups > 1) weight_dims.insert(weight_dims.begin(), geometry.groups);
  const Layout source = Images(source_dims, d.channels_last), output = Images(output_dims, d.channels_last);
  const auto description = ChooseConv(recipe.engine(), d, s, source, Layout(weight_dims, kFloat, kAny), output);
  SLUICE_RETURN_IF_ERROR(RefuseReference(description.impl_info_str()));

  const size_t output_span = d.residual ? 2 : 1;
  Place from = Place::Span(0), to = Place::Span(output_span);
  if (description.src_desc() != source) {
    from = recipe.Reserve(description.src_desc().get_size());
    recipe.AddReorder(source, Place::Span(0), description.src_desc(), from);
  }
  if (description.dst_desc() != output) to = recipe.Reserve(description.dst_desc().get_size());
  // The sum adds to what stands in the destination. In place (residual and output the same) a reorder would be given
  // one memory twice, which the copying reorder of equal layouts survives: it moves every element onto itself.
  if (d.residual) recipe.AddReorder(output, Place::Span(1), description.dst_desc(), to);
  SLUICE_ASSIGN_OR_RETURN(const Place weights, recipe.Constant(d.packed_weights, d.weights, RowMajor(weight_dims),
                                                               description.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, description.src_desc(), from},
                                     {DNNL_ARG_WEIGHTS, description.weights_desc(), weights},
                                     {DNNL_ARG_DST, description.dst_desc(), to}};
  if (d.bias.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(HostConstant bias, HostConstant::MakePlain(d.packed_weights, *d.bias));
    arguments.push_back({DNNL_ARG_BIAS, RowMajor(d.bias->dims), recipe.Keep(std::move(bias))});
  }
  recipe.Add(dnnl::convolution_forward(description), description.scratchpad_desc(), std::move(arguments));
  if (description.dst_desc() != output) {
    recipe.AddReorder(description.dst_desc(), to, output, Place::Span(output_span));
  }
  return std::move(recipe).Finish(absl::StrCat("conv ", DimsToString(d.input), " by ", DimsToString(d.weights.dims),
                                               " (oneDNN ", description.impl_info_str(), ")"));
}

/// Operands as oneDNN is given them, all of one rank: dimensions, and strides where transposed.
struct Operands {
  Layout a, b, output;
  std::optional<Layout> c;
};

Layout Matrices(const dnnl::memory::dims& batch, int64_t rows, int64_t columns, bool transposed) {
  dnnl::memory::dims stored = batch;
  stored.push_back(transposed ? columns : rows);
  stored.push_back(transposed ? rows : columns);
  if (!transposed) return RowMajor(stored);
  const Dims strides = [&] {
    Dims result(stored.size());
    int64_t stride = 1;
    for (size_t i = stored.size(); i-- > 0; stride *= stored[i]) result[i] = stride;
    std::swap(result[result.size() - 1], result[result.size() - 2]);
    return result;
  }();
  std::swap(stored[stored.size() - 1], stored[stored.size() - 2]);
  return Layout(stored, kFloat, strides);
}

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

Operands FlattenOperands(const MatMulDescription& d, const MatMulGeometry& g) {
  const bool one_b = Product(g.b_batch) == 1;
  const bool one_row_c = g.c.empty() || Product(g.c) == g.c.back();
  if (one_b && one_row_c && !d.transpose_a) {  // batches are more rows
    Operands result{Matrices({}, Product(g.batch) * g.rows, g.depth, false),
                    Matrices({}, g.depth, g.columns, d.transpose_b),
                    Matrices({}, Product(g.batch) * g.rows, g.columns, false), std::nullopt};
    if (!g.c.empty()) result.c = Matrices({}, 1, g.c.back(), false);
    return result;
  }
  Operands result{Matrices(g.a_batch, g.rows, g.depth, d.transpose_a),
                  Matrices(g.b_batch, g.depth, g.columns, d.transpose_b), Matrices(g.batch, g.rows, g.columns, false),
                  std::nullopt};
  if (!g.c.empty()) result.c = RowMajor(g.c);
  return result;
}

/// C as a constant, times beta.
absl::StatusOr<HostConstant> ScaledConstant(PackedWeights* pool, const Constant& constant, float beta) {
  if (beta == 1.0f) return HostConstant::MakePlain(pool, constant);
  const size_t size = constant.data.size();
  return HostConstant::Make(pool, constant.name, absl::StrCat("times ", beta), size, [&](std::span<std::byte> to) {
    std::memcpy(to.data(), constant.data.data(), size);
    auto* values = reinterpret_cast<float*>(to.data());
    for (size_t i = 0; i < size / sizeof(float); ++i) values[i] *= beta;
    return absl::OkStatus();
  });
}

// Below it a product is bound by reading its matrix, which oneDNN's own does better.
constexpr int64_t kLeastPointwiseRows = 4;

/// True for rows times one constant matrix, plus a constant row: what a pointwise convolution with the channels last
/// computes, over as many places as there are rows.
bool IsPointwise(const MatMulDescription& d, const MatMulGeometry& g) {
  const bool constant_row =
      g.c.empty() || (d.c_constant.has_value() && g.c.back() == g.columns && Product(g.c) == g.columns);
  return d.b_constant.has_value() && Product(g.b_batch) == 1 && !d.transpose_a && d.alpha == 1.0f && constant_row &&
         g.depth > 0 && Product(g.batch) * g.rows >= kLeastPointwiseRows;
}

/// oneDNN's generated code for such convolutions is 1.2 to 2.5 times faster than its matrix product without AVX-512:
/// [128,768] by [768,3072] 4.2 ms instead of 12.5 with two threads, [16,768] by [768,768] 107 us instead of 160.
Result BuildPointwise(Recipe recipe, const MatMulDescription& d, const MatMulGeometry& g) {
  const int64_t rows = Product(g.batch) * g.rows;
  const dnnl::memory::dims weight_dims = {g.columns, g.depth, 1, 1};
  const Layout source = Images({1, g.depth, rows, 1}, true), output = Images({1, g.columns, rows, 1}, true);
  const Layout given = d.transpose_b ? RowMajor(weight_dims) : Layout(weight_dims, kFloat, {1, g.columns, 1, 1});
  dnnl::post_ops after;
  AppendActivation(d.activation, 0, 0, after);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Layout any(weight_dims, kFloat, kAny), bias({g.columns}, kFloat, dnnl::memory::format_tag::a);
  constexpr auto kInference = dnnl::prop_kind::forward_inference;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const dnnl::memory::dims ones = {1, 1}, zeros = {0, 0};
  const dnnl::convolution_forward::desc operation =
      g.c.empty() ? dnnl::convolution_forward::desc(kInference, kDirect, source, any, output, ones, zeros, zeros)
                  : dnnl::convolution_forward::desc(kInference, kDirect, source, any, bias, output, ones, zeros, zeros);
  const dnnl::convolution_forward::primitive_desc description(operation, attributes, recipe.engine());
  SLUICE_RETURN_IF_ERROR(RefuseReference(description.impl_info_str()));
  SLUICE_ASSIGN_OR_RETURN(const Place weights,
                          recipe.Constant(d.packed_weights, *d.b_constant, given, description.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, source, Place::Span(0)},
                                     {DNNL_ARG_WEIGHTS, description.weights_desc(), weights},
                                     {DNNL_ARG_DST, output, Place::Span(1)}};
  if (!g.c.empty()) {
    SLUICE_ASSIGN_OR_RETURN(HostConstant scaled, ScaledConstant(d.packed_weights, *d.c_constant, d.beta));
    arguments.push_back({DNNL_ARG_BIAS, bias, recipe.Keep(std::move(scaled))});
  }
  recipe.Add(dnnl::convolution_forward(description), description.scratchpad_desc(), std::move(arguments));
  return std::move(recipe).Finish(absl::StrCat("matmul ", DimsToString(d.a), " by ", DimsToString(d.b), " (oneDNN ",
                                               description.impl_info_str(), ")"));
}

Result BuildMatMul(Recipe recipe, const MatMulDescription& d, const MatMulGeometry& geometry) {
  if (geometry.batch.size() > DNNL_MAX_NDIMS - 2 || Product(geometry.batch) == 0) {
    return absl::UnimplementedError("oneDNN takes neither empty nor that many batch dimensions");
  }
  Operands operands = FlattenOperands(d, geometry);
  if (d.b_constant.has_value()) operands.b = Layout(operands.b.dims(), kFloat, kAny);
  const bool has_c = operands.c.has_value();
  // oneDNN scales the bias with the product, so that C can be one only when alpha is 1; otherwise it is added after.
  const bool c_is_bias = has_c && d.alpha == 1.0f;
  if (has_c && d.beta != 1.0f && !d.c_constant.has_value()) {
    return absl::UnimplementedError("oneDNN adds C with beta 1 only");
  }
  dnnl::post_ops after;
  if (has_c && !c_is_bias) after.append_binary(dnnl::algorithm::binary_add, *operands.c);
  AppendActivation(d.activation, 0, 0, after);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  if (d.alpha != 1.0f) attributes.set_output_scales(0, {d.alpha});
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::desc operation = c_is_bias
                                           ? dnnl::matmul::desc(operands.a, operands.b, *operands.c, operands.output)
                                           : dnnl::matmul::desc(operands.a, operands.b, operands.output);
  const dnnl::matmul::primitive_desc description(operation, attributes, recipe.engine());
  SLUICE_RETURN_IF_ERROR(RefuseReference(description.impl_info_str()));

  size_t next = 0;
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, operands.a, Place::Span(next++)}};
  if (d.b_constant.has_value()) {
    const Layout given = FlattenOperands(d, geometry).b;
    SLUICE_ASSIGN_OR_RETURN(const Place b,
                            recipe.Constant(d.packed_weights, *d.b_constant, given, description.weights_desc()));
    arguments.push_back({DNNL_ARG_WEIGHTS, description.weights_desc(), b});
  } else {
    arguments.push_back({DNNL_ARG_WEIGHTS, operands.b, Place::Span(next++)});
  }
  if (has_c) {
    Place c = Place::Span(next);
    if (d.c_constant.has_value()) {
      SLUICE_ASSIGN_OR_RETURN(HostConstant scaled, ScaledConstant(d.packed_weights, *d.c_constant, d.beta));
      c = recipe.Keep(std::move(scaled));
    } else {
      ++next;
    }
    arguments.push_back(
        {c_is_bias ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, *operands.c, c});
  }
  arguments.push_back({DNNL_ARG_DST, operands.output, Place::Span(next)});
  recipe.Add(dnnl::matmul(description), description.scratchpad_desc(), std::move(arguments));
  return std::move(recipe).Finish(absl::StrCat("matmul ", DimsToString(d.a), " by ", DimsToString(d.b), " (oneDNN ",
                                               description.impl_info_str(), ")"));
}

/// Channels in blocks of one vector, which is what oneDNN's generated code for pooling wants: on row-major memory it
/// has only a loop three times slower than ours.
Layout Blocked(const dnnl::memory::dims& dims) {
  using Tag = dnnl::memory::format_tag;
  const bool wide = (static_cast<int>(dnnl::get_effective_cpu_isa()) & static_cast<int>(dnnl::cpu_isa::avx512_core)) ==
                    static_cast<int>(dnnl::cpu_isa::avx512_core);
  constexpr Tag kNarrow[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
  constexpr Tag kWide[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
  return Layout(dims, kFloat, (wide ? kWide : kNarrow)[dims.size() - 3]);
}

Result BuildPool(Recipe recipe, const PoolDescription& d, const PoolGeometry& geometry) {
  const Spatial s = DropUnitDims(geometry.spatial);
  Dims pads_end = s.pads_end;
  for (size_t i = 0; i < pads_end.size(); ++i) {
    const int64_t reach = (s.kernel[i] - 1) * s.dilations[i] + 1;
    const int64_t needed = (s.output[i] - 1) * s.strides[i] + reach - s.input[i] - s.pads_begin[i];
    if (needed <= pads_end[i]) continue;
    if (d.count_include_pad) return absl::UnimplementedError("oneDNN would count positions beyond the pads");
    pads_end[i] = needed;
  }
  const dnnl::algorithm algorithm = d.kind == PoolKind::kMax ? dnnl::algorithm::pooling_max
                                    : d.count_include_pad    ? dnnl::algorithm::pooling_avg_include_padding
                                                             : dnnl::algorithm::pooling_avg_exclude_padding;
  const dnnl::memory::dims source_dims = Joined({d.input[0], d.input[1]}, s.input);
  const dnnl::memory::dims output_dims = Joined({d.input[0], d.input[1]}, s.output);
  const Layout source = Images(source_dims, d.channels_last), output = Images(output_dims, d.channels_last);
  const Layout blocked = d.channels_last ? source : Blocked(source_dims);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::pooling_v2_forward::primitive_desc description(
      {dnnl::prop_kind::forward_inference, algorithm, blocked, d.channels_last ? output : Blocked(output_dims),
       s.strides, s.kernel, MinusOne(s.dilations), s.pads_begin, pads_end},
      attributes, recipe.engine());
  SLUICE_RETURN_IF_ERROR(RefuseReference(description.impl_info_str()));
  const Place from = d.channels_last ? Place::Span(0) : recipe.Reserve(blocked.get_size());
  const Place to = d.channels_last ? Place::Span(1) : recipe.Reserve(description.dst_desc().get_size());
  if (!d.channels_last) recipe.AddReorder(source, Place::Span(0), blocked, from);
  recipe.Add(dnnl::pooling_v2_forward(description), description.scratchpad_desc(),
             {{DNNL_ARG_SRC, blocked, from}, {DNNL_ARG_DST, description.dst_desc(), to}});
  if (!d.channels_last) recipe.AddReorder(description.dst_desc(), to, output, Place::Span(1));
  return std::move(recipe).Finish(absl::StrCat(d.kind == PoolKind::kMax ? "max pool " : "average pool ",
                                               DimsToString(d.input), " by ", DimsToString(d.kernel), " (oneDNN ",
                                               description.impl_info_str(), ")"));
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
    return ToStatus("start", error);
  }
}

Result OneDnn::PrepareConv(const ConvDescription& description) const {
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN convolves FP32 here");
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeConvGeometry(description));
  return Guarded(state_->threads, "convolution",
                 [&] { return BuildConv(Recipe(state_->engine, state_->stream), description, geometry); });
}

Result OneDnn::PrepareMatMul(const MatMulDescription& description) const {
  SLUICE_ASSIGN_OR_RETURN(const MatMulGeometry geometry, MakeMatMulGeometry(description));
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN multiplies FP32 here");
  if (IsPointwise(description, geometry)) {
    Result kernel = Guarded(state_->threads, "matrix product as convolution", [&] {
      return BuildPointwise(Recipe(state_->engine, state_->stream), description, geometry);
    });
    if (!absl::IsUnimplemented(kernel.status())) return kernel;
  }
  return Guarded(state_->threads, "matrix product",
                 [&] { return BuildMatMul(Recipe(state_->engine, state_->stream), description, geometry); });
}

Result OneDnn::PreparePool(const PoolDescription& description) const {
  SLUICE_ASSIGN_OR_RETURN(const PoolGeometry geometry, MakePoolGeometry(description));
  if (description.type != DataType::kFp32) return absl::UnimplementedError("oneDNN pools FP32 here");
  return Guarded(state_->threads, "pooling",
                 [&] { return BuildPool(Recipe(state_->engine, state_->stream), description, geometry); });
}

}  // namespace sluice::gpu::host
