// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Pooling by oneDNN.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/onednn_recipe.h"
#include "gpu/kernels/spatial.h"

namespace sluice::gpu::host::onednn {
namespace {

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

}  // namespace

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
  const Pooling::primitive_desc description =
      Describe<Pooling>(recipe.engine(), AttributesOf({}), dnnl::prop_kind::forward_inference, algorithm, blocked,
                        d.channels_last ? output : Blocked(output_dims), s.strides, s.kernel, MinusOne(s.dilations),
                        s.pads_begin, pads_end);
  SLUICE_RETURN_IF_ERROR(RefuseReference(description.impl_info_str()));
  const Place from = d.channels_last ? Place::Span(0) : recipe.Reserve(blocked.get_size());
  const Place to = d.channels_last ? Place::Span(1) : recipe.Reserve(description.dst_desc().get_size());
  if (!d.channels_last) recipe.AddReorder(source, Place::Span(0), blocked, from);
  recipe.Add(Pooling(description), description.scratchpad_desc(),
             {{DNNL_ARG_SRC, blocked, from}, {DNNL_ARG_DST, description.dst_desc(), to}});
  if (!d.channels_last) recipe.AddReorder(description.dst_desc(), to, output, Place::Span(1));
  return std::move(recipe).Finish(absl::StrCat(d.kind == PoolKind::kMax ? "max pool " : "average pool ",
                                               DimsToString(d.input), " by ", DimsToString(d.kernel), " (oneDNN ",
                                               description.impl_info_str(), ")"));
}

}  // namespace sluice::gpu::host::onednn
