// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tensor_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

/// A message lists no more buckets than this.
constexpr size_t kListedBuckets = 16;

}  // namespace

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ","), "]");
}

std::optional<int64_t> ElementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    // A later zero would hide the overflow; such a shape is refused all the same.
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return count;
}

absl::Status CheckShape(std::span<const int64_t> shape, const server::ServedTensor& tensor, bool has_batch,
                        absl::string_view where) {
  const auto mismatch = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected shape ", ShapeText(tensor.dims), ", got ", ShapeText(shape)));
  };
  for (const int64_t dimension : shape) {
    if (dimension >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected dimensions of 0 or more, got shape ", ShapeText(shape)));
  }
  if (!ElementCount(shape).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": shape ", ShapeText(shape), " has too many elements"));
  }
  if (shape.size() != tensor.dims.size()) return mismatch();
  for (size_t i = has_batch ? 1 : 0; i < shape.size(); ++i) {
    if (tensor.dims[i] >= 0 && shape[i] != tensor.dims[i]) return mismatch();
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> FindBucket(const server::ServedModel& model, std::span<const std::span<const int64_t>> shapes) {
  const auto same_shape = [](std::span<const int64_t> got, const std::vector<int64_t>& served) {
    return std::equal(got.begin(), got.end(), served.begin(), served.end());
  };
  for (size_t i = 0; i < model.shape_buckets.size(); ++i) {
    const auto& bucket = model.shape_buckets[i];
    if (std::equal(shapes.begin(), shapes.end(), bucket.begin(), bucket.end(), same_shape)) return i;
  }
  const auto shapes_text = [&model](const auto& list) {
    std::string text;
    for (size_t i = 0; i < list.size() && i < model.inputs.size(); ++i) {
      absl::StrAppend(&text, i > 0 ? " " : "", EscapeName(model.inputs[i].name), "=", ShapeText(list[i]));
    }
    return text;
  };
  std::string served;
  for (size_t i = 0; i < std::min(model.shape_buckets.size(), kListedBuckets); ++i) {
    absl::StrAppend(&served, i > 0 ? "; " : "", shapes_text(model.shape_buckets[i]));
  }
  if (model.shape_buckets.size() > kListedBuckets) {
    absl::StrAppend(&served, "; and ", model.shape_buckets.size() - kListedBuckets, " more");
  }
  return absl::InvalidArgumentError(absl::StrCat("model ", Quote(model.name), " does not serve the shapes ",
                                                 shapes_text(shapes),
                                                 model.max_batch_size > 0 ? " (batch dimension left out)" : "",
                                                 "; it serves: ", served.empty() ? "none" : served));
}

absl::Status CheckBytesElements(std::span<const server::Bytes> pieces, int64_t count) {
  size_t piece = 0;
  size_t offset = 0;
  size_t remaining = 0;
  for (const server::Bytes& bytes : pieces) remaining += bytes.size();
  const auto advance = [&](size_t bytes) {
    remaining -= bytes;
    while (bytes > 0 && bytes >= pieces[piece].size() - offset) {
      bytes -= pieces[piece].size() - offset;
      ++piece;
      offset = 0;
    }
    offset += bytes;
  };
  for (int64_t element = 0; element < count; ++element) {
    if (remaining < 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", count, " elements, got ", element, remaining > 0 ? " and a truncated length" : ""));
    }
    uint32_t length = 0;
    for (int i = 0; i < 4; ++i) {
      length |= static_cast<uint32_t>(pieces[piece][offset]) << (8 * i);
      advance(1);
    }
    if (length > remaining) {
      return absl::InvalidArgumentError(
          absl::StrCat("element ", element, " has length ", length, ", but only ", remaining, " bytes follow"));
    }
    advance(length);
  }
  if (remaining == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", count, " elements, got ", remaining, " bytes behind the last one"));
}

}  // namespace sluice::rpc
