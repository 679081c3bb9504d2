// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/onednn_recipe.h"
#include "gpu/kernels/spatial.h"

namespace sluice::gpu::host::onednn {
namespace {

dnnl::convolution_forward::primitive_desc DescribeConv(const dnnl::engine& engine, const ConvDescription& d,
                                                       const Spatial& s, const Layout& source, const Layout& weights,
                                                       const Layout& destination) {
  dnnl::post_ops after;
  if (d.residual) after.append_sum(1.0f);
  AppendActivation(d.activation, d.low, d.high, after);
  const dnnl::primitive_attr attributes = AttributesOf(after);
  constexpr auto kInference = dnnl::prop_kind::forward_inference;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const Dims gaps = MinusOne(s.dilations);
  if (d.bias.has_value()) {
    return Describe<dnnl::convolution_forward>(engine, attributes, kInference, kDirect, source, weights,
                                               RowMajor(d.bias->dims), destination, s.strides, gaps, s.pads_begin,
                                               s.pads_end);
  }
  return Describe<dnnl::convolution_forward>(engine, attributes, kInference, kDirect, source, weights, destination,
                                             s.strides, gaps, s.pads_begin, s.pads_end);
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
  return DescribeConv(engine, d, s, Layout(DimsOf(source), kFloat, kAny), weights,
                      Layout(DimsOf(destination), kFloat, kAny));
}

}  // namespace

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

}  // namespace sluice::gpu::host::onednn
