// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/passes/strided_view.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"
#include "model/ops/context.h"
#include "model/ops/registry.h"

namespace sluice::model {

StridedView::StridedView(const Shape& dims) {
  int64_t stride = 1;
  dims_.resize(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1) dims_[i] = {{dims[i], stride}};
    stride *= dims[i];
  }
}

bool StridedView::Reshape(const Shape& dims) {
  Parts rest;  // What is left to hand out, innermost first.
  for (auto parts = dims_.rbegin(); parts != dims_.rend(); ++parts)
    rest.insert(rest.end(), parts->rbegin(), parts->rend());
  std::reverse(rest.begin(), rest.end());
  std::vector<Parts> result(dims.size());
  size_t next = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t missing = dims[i];
    if (missing < 1) return false;
    while (missing > 1) {
      if (next == rest.size()) return false;
      Part& part = rest[next];
      if (missing % part.size == 0) {
        result[i].push_back(part);
        missing /= part.size;
        ++next;
      } else if (part.size % missing == 0) {
        part.size /= missing;
        result[i].push_back({missing, part.stride * part.size});
        missing = 1;
      } else {
        return false;
      }
    }
  }
  if (next != rest.size()) return false;
  dims_ = std::move(result);
  return true;
}

bool StridedView::Transpose(const std::vector<int64_t>& permutation) {
  if (permutation.size() != dims_.size()) return false;
  std::vector<Parts> result;
  for (const int64_t axis : permutation) {
    if (axis < 0 || axis >= static_cast<int64_t>(dims_.size())) return false;
    result.push_back(dims_[static_cast<size_t>(axis)]);
  }
  dims_ = std::move(result);
  return true;
}

bool StridedView::Narrow(size_t axis, int64_t start, int64_t length) {
  if (axis >= dims_.size()) return false;
  Parts& parts = dims_[axis];
  int64_t size = 1;
  for (const Part& part : parts) size *= part.size;
  if (start < 0 || length < 1 || start + length > size) return false;
  if (length == size) return true;
  if (length == 1) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      offset_ += start % part->size * part->stride;
      start /= part->size;
    }
    parts.clear();
    return true;
  }
  if (parts.size() != 1) return false;
  offset_ += start * parts[0].stride;
  parts[0].size = length;
  return true;
}

bool StridedView::HasStrides(const Shape& strides) const {
  if (strides.size() != dims_.size()) return false;
  for (size_t i = 0; i < dims_.size(); ++i) {
    int64_t stride = strides[i];
    for (auto part = dims_[i].rbegin(); part != dims_[i].rend(); ++part) {
      if (part->stride != stride) return false;
      stride *= part->size;
    }
  }
  return true;
}

namespace {

bool IsReshape(absl::string_view name) {
  return name == "Reshape" || name == "Flatten" || name == "Squeeze" || name == "Unsqueeze";
}

bool ApplyTranspose(const NodeContext& node, StridedView& view) {
  auto permutation = node.Ints("perm");
  if (!permutation.ok()) return false;
  for (size_t i = view.rank(); permutation->size() < view.rank() && i-- > 0;) {
    permutation->push_back(static_cast<int64_t>(i));  // Left out: all dimensions turned round.
  }
  return view.Transpose(*permutation);
}

/// A Gather of one index, the same always.
bool ApplyGather(const NodeContext& node, StridedView& view) {
  const auto axis = node.Int("axis", 0);
  const auto index = node.ConstantNumber(1);
  if (!axis.ok() || !index.ok()) return false;
  const auto place = gpu::NormalizeAxis(*axis, view.rank());
  if (!place.ok()) return false;
  const int64_t size = node.dims(0)[static_cast<size_t>(*place)];
  const auto number = static_cast<int64_t>(*index);
  const int64_t start = number < 0 ? number + size : number;
  return start >= 0 && start < size && view.Narrow(static_cast<size_t>(*place), start, 1) &&
         view.Reshape(node.output_dims(0));
}

bool ApplySplit(const NodeContext& node, ValueIndex output, StridedView& view) {
  const auto axis = node.Int("axis", 0);
  if (!axis.ok()) return false;
  const auto place = gpu::NormalizeAxis(*axis, view.rank());
  if (!place.ok()) return false;
  const auto dim = static_cast<size_t>(*place);
  int64_t start = 0;
  for (size_t i = 0; i < node.output_count(); ++i) {
    if (!node.has_output(i)) return false;  // How long it is, nobody says.
    const int64_t length = node.output_dims(i)[dim];
    if (node.output_index(i) == output) return view.Narrow(dim, start, length);
    start += length;
  }
  return false;
}

}  // namespace

bool IsMovement(const Node& node) {
  const absl::string_view name = node.entry->name;
  return IsReshape(name) || name == "Transpose" || name == "Gather" || name == "Split";
}

bool ApplyMovement(Graph& graph, size_t node_index, ValueIndex output, StridedView& view) {
  const NodeContext node(graph, node_index);
  const absl::string_view name = node.node().entry->name;
  if (IsReshape(name)) return view.Reshape(node.output_dims(0));
  if (name == "Transpose") return ApplyTranspose(node, view);
  if (name == "Gather") return ApplyGather(node, view);
  if (name == "Split") return ApplySplit(node, output, view);
  return false;
}

}  // namespace sluice::model
