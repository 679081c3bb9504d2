// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"
#include "gpu/kernels/host_row.h"

namespace sluice::gpu::host {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// Queries and keys whose scores are held at once, on the stack, and values of a head that keys are turned round by.
constexpr int64_t kQueries = 16, kKeys = 64, kDepth = 64;

/// to += a b for matrices with rows some way apart; four rows of a share one pass over b.
void AddProduct(const float* a, int64_t a_row, int64_t rows, int64_t depth, const float* b, int64_t b_row,
                int64_t width, float* to, int64_t to_row) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    float* __restrict to0 = to + r * to_row;
    float* __restrict to1 = to0 + to_row;
    float* __restrict to2 = to1 + to_row;
    float* __restrict to3 = to2 + to_row;
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = a + r * a_row + k;
      const float* row = b + k * b_row;
      const float w0 = from[0], w1 = from[a_row], w2 = from[2 * a_row], w3 = from[3 * a_row];
      for (int64_t i = 0; i < width; ++i) {
        to0[i] += w0 * row[i];
        to1[i] += w1 * row[i];
        to2[i] += w2 * row[i];
        to3[i] += w3 * row[i];
      }
    }
  }
  for (; r < rows; ++r) {
    for (int64_t k = 0; k < depth; ++k) {
      const float weight = a[r * a_row + k];
      for (int64_t i = 0; i < width; ++i) to[r * to_row + i] += weight * b[k * b_row + i];
    }
  }
}

/// A block of one head's queries, over its keys block by block. What a query has so far is relative to the largest
/// score so far, and is scaled down when a larger one comes.
class PlainAttentionKernel final : public HostKernel {
 public:
  PlainAttentionKernel(std::string name, const AttentionDescription& d, const AttentionGeometry& geometry)
      : HostKernel(std::move(name), /*workspace_bytes=*/0), d_(d), geometry_(geometry) {}

  absl::Status Run(const KernelArgs& args) const override {
    SLUICE_RETURN_IF_ERROR(CheckSpans(args));
    const int64_t blocks = (d_.queries + kQueries - 1) / kQueries;
    ParallelRanges(d_.batch * d_.heads * blocks, kQueries * d_.keys * d_.head_size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Attend(args, {i / blocks / d_.heads, i / blocks % d_.heads, i % blocks * kQueries});
      }
    });
    return absl::OkStatus();
  }

 private:
  struct Place {
    int64_t batch, head, query;  ///< The first of the block.
  };
  using Scores = float[kQueries][kKeys];

  absl::Status CheckSpans(const KernelArgs& args) const {
    const size_t element = sizeof(float);
    std::array<size_t, 5> bytes;
    size_t count = 0;
    for (const int64_t elements : {geometry_.q_count, geometry_.k_count, geometry_.v_count}) {
      bytes[count++] = static_cast<size_t>(elements) * element;
    }
    if (d_.mask.has_value()) bytes[count++] = static_cast<size_t>(geometry_.mask_count) * ElementBytes(d_.mask_type);
    bytes[count++] = static_cast<size_t>(geometry_.output_count) * element;
    if (args.spans.size() != count) {
      return absl::InternalError(
          absl::StrCat("kernel ", name(), " takes ", count, " spans and got ", args.spans.size()));
    }
    for (size_t i = 0; i < count; ++i) {
      if (args.spans[i].size_bytes >= bytes[i]) continue;
      return absl::InternalError(absl::StrCat("kernel ", name(), ": span ", i, " needs ", bytes[i], " bytes and has ",
                                              args.spans[i].size_bytes));
    }
    return absl::OkStatus();
  }

  void Attend(const KernelArgs& args, const Place& at) const {
    const int64_t size = d_.head_size, column = at.head * size, row = d_.heads * size;
    const float* q = Elements<float>(args, 0) + d_.q_offset + (at.batch * d_.queries + at.query) * d_.q_row + column;
    const float* k = Elements<float>(args, 1) + d_.k_offset + at.batch * d_.keys * d_.k_row + column;
    const float* v = Elements<float>(args, 2) + d_.v_offset + at.batch * d_.keys * d_.v_row + column;
    float* output =
        Elements<float>(args, d_.mask.has_value() ? 4 : 3) + (at.batch * d_.queries + at.query) * row + column;
    const int64_t rows = std::min(kQueries, d_.queries - at.query);
    const int64_t keys = d_.causal ? std::min(at.query + rows, d_.keys) : d_.keys;
    float largest[kQueries];
    double sums[kQueries] = {};
    std::fill(largest, largest + kQueries, kNever);
    for (int64_t r = 0; r < rows; ++r) std::fill(output + r * row, output + r * row + size, 0.0f);
    for (int64_t first = 0; first < keys; first += kKeys) {
      const int64_t count = std::min(kKeys, keys - first);
      Scores scores = {};
      Score(q, k + first * d_.k_row, rows, count, scores);
      Mask(args, at, first, rows, count, scores);
      for (int64_t r = 0; r < rows; ++r) Weigh(scores[r], count, largest[r], sums[r], output + r * row);
      AddProduct(scores[0], kKeys, rows, count, v + first * d_.v_row, d_.v_row, size, output, row);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = sums[r] == 0 ? 0.0f : static_cast<float>(1.0 / sums[r]);  // 0: sees no key
      for (int64_t i = 0; i < size; ++i) output[r * row + i] *= factor;
    }
  }

  void Score(const float* q, const float* k, int64_t rows, int64_t count, Scores& scores) const {
    for (int64_t first = 0; first < d_.head_size; first += kDepth) {
      const int64_t depth = std::min(kDepth, d_.head_size - first);
      float turned[kDepth][kKeys] = {};
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t i = 0; i < depth; ++i) turned[i][j] = k[j * d_.k_row + first + i];
      }
      AddProduct(q + first, d_.q_row, rows, depth, turned[0], kKeys, kKeys, scores[0], kKeys);
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (float& score : scores[r]) score *= d_.scale;
    }
  }

  void Mask(const KernelArgs& args, const Place& at, int64_t first, int64_t rows, int64_t count, Scores& scores) const {
    if (d_.causal) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = std::max<int64_t>(0, at.query + r + 1 - first); j < count; ++j) scores[r][j] = kNever;
      }
    }
    if (!d_.mask.has_value()) return;
    const auto& [of_batch, of_head, of_query, of_key] = geometry_.mask_strides;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t start = at.batch * of_batch + at.head * of_head + (at.query + r) * of_query + first * of_key;
      if (d_.mask_type == DataType::kBool) {
        const uint8_t* mask = Elements<uint8_t>(args, 3) + start;
        for (int64_t j = 0; j < count; ++j) scores[r][j] = mask[j * of_key] != 0 ? scores[r][j] : kNever;
      } else {
        const float* mask = Elements<float>(args, 3) + start;
        for (int64_t j = 0; j < count; ++j) scores[r][j] += mask[j * of_key];
      }
    }
  }

  /// Turns scores to weights relative to the largest score so far.
  void Weigh(float* scores, int64_t count, float& largest, double& sum, float* output) const {
    const float next = Larger(largest, RowMax(scores, count));
    if (next == kNever) {
      std::fill(scores, scores + count, 0.0f);
      return;
    }
    if (next != largest) {
      const float factor = largest == kNever ? 0.0f : Exp(largest - next);
      for (int64_t i = 0; i < d_.head_size; ++i) output[i] *= factor;
      sum *= static_cast<double>(factor);
      largest = next;
    }
    SLUICE_INDEPENDENT_LOOP
    for (int64_t j = 0; j < count; ++j) scores[j] = Exp(scores[j] - next);
    sum += LaneSum(count, [&](int64_t j) { return static_cast<double>(scores[j]); });
  }

  const AttentionDescription d_;
  const AttentionGeometry geometry_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PlainAttention(const AttentionDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const AttentionGeometry geometry, CheckAttention(description));
  if (description.type != DataType::kFp32) return LacksType(Backend::kHost, "attention", description.type);
  const AttentionDescription& d = description;
  return std::make_unique<PlainAttentionKernel>(
      absl::StrCat("attention of ", d.heads, " heads ", DimsToString({d.batch, d.queries, d.heads * d.head_size}),
                   " over ", d.keys, d.causal ? " causal" : "", d.mask.has_value() ? " masked" : ""),
      d, geometry);
}

}  // namespace sluice::gpu::host
