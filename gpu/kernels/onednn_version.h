// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

// What differs between versions 2 and 3 of oneDNN's interface, so that nothing else asks for the version.
namespace sluice::gpu::host::onednn {

using Layout = dnnl::memory::desc;

/// What tells a layout of strides and blocks from any other of its type.
struct Blocking {
  dnnl::memory::dims dims, padded, strides, inner_blocks, inner_dims;
};

#if DNNL_VERSION_MAJOR >= 3

using Pooling = dnnl::pooling_forward;

/// The primitive's description from the operation's arguments, which both versions take in the same order.
template <class Primitive, class... Arguments>
typename Primitive::primitive_desc Describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                            const Arguments&... operation) {
  return typename Primitive::primitive_desc(engine, operation..., attributes);
}

inline void AppendEltwise(dnnl::post_ops& after, dnnl::algorithm algorithm, float alpha, float beta) {
  after.append_eltwise(algorithm, alpha, beta);
}

inline const_dnnl_memory_desc_t HandleOf(const Layout& layout) { return layout.get(); }
inline dnnl::memory::dims DimsOf(const Layout& layout) { return layout.get_dims(); }

/// Nothing for a layout that is more than that. Extra data, which version 3 does not show, only integers have.
inline std::optional<Blocking> BlockingOf(const Layout& layout) {
  if (layout.get_format_kind() != dnnl::memory::format_kind::blocked) return std::nullopt;
  return Blocking{layout.get_dims(), layout.get_padded_dims(), layout.get_strides(), layout.get_inner_blks(),
                  layout.get_inner_idxs()};
}

#else

using Pooling = dnnl::pooling_v2_forward;  // The first version knows no dilations.

template <class Primitive, class... Arguments>
typename Primitive::primitive_desc Describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                            const Arguments&... operation) {
  return typename Primitive::primitive_desc(typename Primitive::desc(operation...), attributes, engine);
}

inline void AppendEltwise(dnnl::post_ops& after, dnnl::algorithm algorithm, float alpha, float beta) {
  after.append_eltwise(1.0f, algorithm, alpha, beta);
}

inline const dnnl_memory_desc_t* HandleOf(const Layout& layout) { return &layout.data; }
inline dnnl::memory::dims DimsOf(const Layout& layout) { return layout.dims(); }

inline std::optional<Blocking> BlockingOf(const Layout& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  if (d.format_kind != dnnl_blocked || d.extra.flags != 0) return std::nullopt;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  const auto first = [](const dnnl_dims_t& values, int count) { return dnnl::memory::dims(values, values + count); };
  return Blocking{first(d.dims, d.ndims), first(d.padded_dims, d.ndims), first(b.strides, d.ndims),
                  first(b.inner_blks, b.inner_nblks), first(b.inner_idxs, b.inner_nblks)};
}

#endif

}  // namespace sluice::gpu::host::onednn
