// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"
#include "gpu/kernels/host_math.h"

namespace sluice::gpu::host {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kLanes = 16;  // independent partial sums of a dot product, so that its loop vectorises

float Dot(const float* a, const float* b, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) lanes[i % kLanes] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

/// One query after the other: its scores, their softmax, and the sum of values by it. The scores of one query are all
/// that is kept.
class PlainAttentionKernel final : public HostKernel {
 public:
  PlainAttentionKernel(std::string name, const AttentionDescription& d, const AttentionGeometry& geometry)
      : HostKernel(std::move(name), /*workspace_bytes=*/0), d_(d), geometry_(geometry) {}

  absl::Status Run(const KernelArgs& args) const override {
    SLUICE_RETURN_IF_ERROR(CheckSpans(args));
    // Pieces of one head's queries read the same keys.
    ParallelRanges(d_.batch * d_.heads * d_.queries, 2 * d_.keys * d_.head_size, [&](int64_t begin, int64_t end) {
      std::vector<float> scores(static_cast<size_t>(d_.keys));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t query = i % d_.queries, head = i / d_.queries % d_.heads, batch = i / d_.queries / d_.heads;
        Attend(args, {batch, head, query}, scores.data());
      }
    });
    return absl::OkStatus();
  }

 private:
  struct Place {
    int64_t batch, head, query;
  };

  absl::Status CheckSpans(const KernelArgs& args) const {
    const size_t element = sizeof(float);
    std::vector<size_t> bytes = {static_cast<size_t>(geometry_.q_count) * element,
                                 static_cast<size_t>(geometry_.k_count) * element,
                                 static_cast<size_t>(geometry_.v_count) * element};
    if (d_.mask.has_value()) bytes.push_back(static_cast<size_t>(geometry_.mask_count) * ElementBytes(d_.mask_type));
    bytes.push_back(static_cast<size_t>(geometry_.output_count) * element);
    if (args.spans.size() != bytes.size()) {
      return absl::InternalError(
          absl::StrCat("kernel ", name(), " takes ", bytes.size(), " spans and got ", args.spans.size()));
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (args.spans[i].size_bytes >= bytes[i]) continue;
      return absl::InternalError(absl::StrCat("kernel ", name(), ": span ", i, " needs ", bytes[i], " bytes and has ",
                                              args.spans[i].size_bytes));
    }
    return absl::OkStatus();
  }

  void Attend(const KernelArgs& args, const Place& at, float* scores) const {
    const int64_t size = d_.head_size, column = at.head * size;
    const float* q = Elements<float>(args, 0) + d_.q_offset + (at.batch * d_.queries + at.query) * d_.q_row + column;
    const float* k = Elements<float>(args, 1) + d_.k_offset + at.batch * d_.keys * d_.k_row + column;
    const float* v = Elements<float>(args, 2) + d_.v_offset + at.batch * d_.keys * d_.v_row + column;
    float* output = Elements<float>(args, d_.mask.has_value() ? 4 : 3) +
                    ((at.batch * d_.queries + at.query) * d_.heads + at.head) * size;
    const int64_t keys = d_.causal ? std::min(at.query + 1, d_.keys) : d_.keys;
    for (int64_t j = 0; j < keys; ++j) scores[j] = d_.scale * Dot(q, k + j * d_.k_row, size);
    if (d_.mask.has_value()) Mask(args, at, keys, scores);
    std::fill(output, output + size, 0.0f);
    float largest = scores[0];
    for (int64_t j = 1; j < keys; ++j) largest = Larger(largest, scores[j]);
    if (largest == kNever) return;  // sees no key
    SLUICE_INDEPENDENT_LOOP
    for (int64_t j = 0; j < keys; ++j) scores[j] = Exp(scores[j] - largest);
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) sum += static_cast<double>(scores[j]);
    const float factor = static_cast<float>(1.0 / sum);
    for (int64_t j = 0; j < keys; ++j) {
      const float weight = scores[j] * factor;
      const float* value = v + j * d_.v_row;
      for (int64_t i = 0; i < size; ++i) output[i] += weight * value[i];
    }
  }

  void Mask(const KernelArgs& args, const Place& at, int64_t keys, float* scores) const {
    const auto& [of_batch, of_head, of_query, of_key] = geometry_.mask_strides;
    const int64_t first = at.batch * of_batch + at.head * of_head + at.query * of_query;
    if (d_.mask_type == DataType::kBool) {
      const uint8_t* mask = Elements<uint8_t>(args, 3) + first;
      for (int64_t j = 0; j < keys; ++j) scores[j] = mask[j * of_key] != 0 ? scores[j] : kNever;
    } else {
      const float* mask = Elements<float>(args, 3) + first;
      for (int64_t j = 0; j < keys; ++j) scores[j] += mask[j * of_key];
    }
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
