// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "model/attribute.h"
#include "model/model.h"
#include "model/wire.h"

namespace sluice::model {

struct OperatorEntry;  // model/ops/registry.h

/// Position of a value in Graph::values.
using ValueIndex = int32_t;
inline constexpr ValueIndex kNoValue = -1;  ///< An optional input or output that is left out.

/// One tensor of a graph. A constant has type, dims and bytes; others get type and dims when shapes are bound.
struct Value {
  std::string name = {};
  DataType type = DataType::kInvalid;
  std::optional<Shape> dims = {};
  bool is_constant = false;
  ByteSpan bytes = {};             ///< Constants: unaligned, of exactly the size that `dims` needs.
  std::string constant_name = {};  ///< Constants: equal names have equal bytes within one model, across its plans.
  /// [N, C, spatial...] with the channels behind the spatial dimensions in memory. Set by passes/assign_layouts alone;
  /// `dims` keep their order.
  bool channels_last = false;
};

/// One operator applied. Inputs beyond what the file's operator has, and attributes beginning with "sluice.", are made
/// by passes (fused residuals and activations); files cannot contain them, nor the operator "Elementwise".
struct Node {
  std::string name = {};
  const OperatorEntry* entry = nullptr;
  std::vector<ValueIndex> inputs = {};
  std::vector<ValueIndex> outputs = {};
  std::vector<Attribute> attributes = {};

  const Attribute* FindAttribute(absl::string_view attribute_name) const;
  void SetAttribute(absl::string_view attribute_name, decltype(Attribute::value) value);
};

/// What a file says, typed: values, and nodes in an order in which every node comes after those it needs. Every value
/// has at most one producer. Purpose: what passes rewrite. Bounds: those of the reader. Ownership: bytes of constants
/// belong to the file, to the graph this one was cloned from, or to this graph; the former two must outlive it.
/// Threads: none of its own; const use from any thread. Errors: none, it is data; Check() is for tests.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  /// A graph of its own over the same constants' bytes.
  Graph Clone() const;

  int64_t opset = 0;  ///< Of domain ai.onnx.
  bool tf32 = false;  ///< Products and convolutions of FP32 may round their factors; set by passes/lower_precision.
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueIndex> inputs;
  std::vector<ValueIndex> outputs;

  Value& value(ValueIndex index) { return values[static_cast<size_t>(index)]; }
  const Value& value(ValueIndex index) const { return values[static_cast<size_t>(index)]; }
  ValueIndex AddValue(Value value);
  /// A constant with bytes that the graph owns from now on, named by content.
  ValueIndex AddConstant(std::string name, DataType type, Shape dims, std::vector<std::byte> bytes);
  /// Makes `index` a constant. `bytes` as above.
  void SetConstant(ValueIndex index, DataType type, Shape dims, std::vector<std::byte> bytes);

  bool IsOutput(ValueIndex index) const;
  /// How many node inputs and graph outputs read each value.
  std::vector<int> UseCounts() const;
  /// Position in `nodes` of each value's producer; -1 for inputs and constants.
  std::vector<int> Producers() const;
  /// Lets every reader of `from`, graph outputs included, read `to`.
  void ReplaceUses(ValueIndex from, ValueIndex to);
  /// Removes the nodes whose flag is set.
  void EraseNodes(const std::vector<bool>& erased);

 private:
  std::deque<std::vector<std::byte>> owned_;
};

/// "content:<128-bit hash>" of type, dims and bytes: the same for equal constants of different plans. Not for
/// adversaries: a model's author could only confuse their own constants.
std::string ContentName(DataType type, const Shape& dims, ByteSpan bytes);

/// "[1,3,224,224]", open dimensions as -1.
std::string ShapeToString(const Shape& dims);

}  // namespace sluice::model
