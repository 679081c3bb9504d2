// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "gpu/kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu {

/// Attention, head by head, without the scores ever standing in memory:
///
///   output = softmax(scale * Q K' + mask) V
///
/// Token t of batch element b has its head h at `offset + (b * length + t) * row + h * head_size` of its span; so Q, K
/// and V may be parts of one packed tensor [batch, length, 3 * heads * head_size]. A mask of numbers is added to the
/// scaled scores, a mask of BOOL lets a query see the keys where it is true. A query that sees no key, as all of its
/// scores are minus infinity, gets zeros (where the formula has 0/0), whether or not that is the mask's doing.
///
/// Spans: q, k, v, [mask, when `mask` is set], output, contiguous as [batch, queries, heads * head_size]. q, k and v
/// may be the same memory or parts of it; the output overlaps nothing. Types: FP32; every backend may say UNIMPLEMENTED
/// for types, head sizes or masks of its choice.
struct AttentionDescription {
  DataType type = DataType::kFp32;
  int64_t batch = 1;  ///< This and the next four are positive.
  int64_t heads = 1;
  int64_t queries = 0;    ///< Length of Q and of the output.
  int64_t keys = 0;       ///< Length of K and of V.
  int64_t head_size = 0;  ///< Of Q, K and V alike.
  float scale = 1.0f;     ///< Finite.
  bool causal = false;    ///< Query i sees keys 0 to i only, as is_causal of ONNX's Attention says.
  int64_t q_row = 0;  ///< Elements from one token to the next; heads * head_size at least. Likewise k_row and v_row.
  int64_t k_row = 0;
  int64_t v_row = 0;
  int64_t q_offset = 0;  ///< Elements before the first token; not negative. Likewise k_offset and v_offset.
  int64_t k_offset = 0;
  int64_t v_offset = 0;
  std::optional<Dims> mask = {};            ///< Broadcasts to [batch, heads, queries, keys].
  DataType mask_type = DataType::kInvalid;  ///< Of the mask if there is one: `type`, or BOOL.
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttention(Device& device, const AttentionDescription& description);

}  // namespace sluice::gpu
