// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/graph.h"

namespace sluice::model {

/// How a tensor that was made by moving elements of another one lies in the other's memory. Follows the movements one
/// by one, keeping every dimension as parts with a stride each, so that dimensions which are merged and split again are
/// not lost; where that cannot be done, the answer is false and the view no longer says anything.
class StridedView {
 public:
  /// All of a contiguous tensor.
  explicit StridedView(const Shape& dims);

  /// `dims` has as many elements as the view.
  bool Reshape(const Shape& dims);
  /// `permutation` has every dimension once.
  bool Transpose(const std::vector<int64_t>& permutation);
  /// Keeps `length` indices of a dimension from `start` on; both are within bounds.
  bool Narrow(size_t axis, int64_t start, int64_t length);

  size_t rank() const { return dims_.size(); }
  int64_t offset() const { return offset_; }  ///< Of the first element, in elements.
  /// True when element (i, j, ...) is at offset + i * strides[0] + j * strides[1] ...; dimensions of size 1 have any.
  bool HasStrides(const Shape& strides) const;

 private:
  struct Part {
    int64_t size;  ///< Never 1.
    int64_t stride;
  };
  using Parts = std::vector<Part>;  ///< Of one dimension, outermost first; none for size 1.

  int64_t offset_ = 0;
  std::vector<Parts> dims_;
};

/// True for nodes that may do no more than move elements of their first input.
bool IsMovement(const Node& node);

/// Applies node `node_index`, whose first input the view is of, so that the view is of its output `output`; false for
/// nodes that do more than move elements.
bool ApplyMovement(Graph& graph, size_t node_index, ValueIndex output, StridedView& view);

}  // namespace sluice::model
