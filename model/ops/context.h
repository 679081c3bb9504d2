// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "gpu/kernels/packed_weights.h"
#include "gpu/kernels/tensor.h"
#include "model/graph.h"

namespace sluice::model {

/// A value's dimensions in the order in which they lie in memory.
Shape StoredDims(const Value& value);

/// One node of a graph whose input types and shapes are known: what shape functions and lowering read. Borrowed for one
/// call. Errors do not name the node: whoever calls the operator's function adds that.
class NodeContext {
 public:
  NodeContext(Graph& graph, size_t node_index) : graph_(graph), node_index_(node_index) {}

  int64_t opset() const { return graph_.opset; }  ///< Of domain ai.onnx.
  bool tf32() const { return graph_.tf32; }
  const Node& node() const { return graph_.nodes[node_index_]; }
  size_t input_count() const { return node().inputs.size(); }
  size_t output_count() const { return node().outputs.size(); }
  bool has_input(size_t i) const { return i < input_count() && node().inputs[i] != kNoValue; }
  bool has_output(size_t i) const { return i < output_count() && node().outputs[i] != kNoValue; }
  ValueIndex input_index(size_t i) const { return node().inputs[i]; }
  ValueIndex output_index(size_t i) const { return node().outputs[i]; }
  /// The i-th input, which must be there.
  const Value& input(size_t i) const { return graph_.value(node().inputs[i]); }
  const Value& output(size_t i) const { return graph_.value(node().outputs[i]); }
  const Shape& dims(size_t i) const { return *input(i).dims; }
  const Shape& output_dims(size_t i) const { return *output(i).dims; }
  /// The i-th input's dimensions in the order in which they lie in memory.
  Shape stored_dims(size_t i) const { return StoredDims(input(i)); }
  bool is_constant(size_t i) const { return has_input(i) && input(i).is_constant; }

  // Attributes. INVALID_ARGUMENT when the attribute has another kind.
  bool has_attribute(absl::string_view name) const { return node().FindAttribute(name) != nullptr; }
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t fallback) const;
  absl::StatusOr<float> Float(absl::string_view name, float fallback) const;
  /// Points into the attribute, or is the fallback.
  absl::StatusOr<absl::string_view> String(absl::string_view name, absl::string_view fallback) const;
  /// Empty when the attribute is absent.
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view name) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view name) const;

  /// The values of an INT64 or INT32 input. UNIMPLEMENTED when it is not constant: the result's shape would depend on
  /// data.
  absl::StatusOr<std::vector<int64_t>> ConstantInts(size_t i) const;
  /// The single value of a numeric input, likewise.
  absl::StatusOr<double> ConstantNumber(size_t i) const;

 protected:
  Graph& graph_;
  const size_t node_index_;
};

class InferContext : public NodeContext {
 public:
  using NodeContext::NodeContext;
  /// INVALID_ARGUMENT when the shape is not possible.
  absl::Status SetOutput(size_t i, DataType type, Shape dims);
  absl::Status SetOutputConstant(size_t i, DataType type, Shape dims, std::vector<std::byte> bytes);
  absl::Status SetOutputInts(size_t i, Shape dims, const std::vector<int64_t>& values);
};

/// One kernel of a lowered node, and the values its spans stand for.
struct LoweredLaunch {
  std::unique_ptr<gpu::Kernel> kernel;
  std::vector<ValueIndex> inputs;
  std::vector<ValueIndex> outputs;
  std::vector<size_t> in_place;  ///< Positions in `inputs` whose memory the first output may take.
};

/// A value that is another name for the same bytes.
struct LoweredView {
  ValueIndex view = kNoValue;
  ValueIndex source = kNoValue;
};

struct Lowered {
  std::vector<LoweredLaunch> launches;
  std::vector<LoweredView> views;
};

class LowerContext : public NodeContext {
 public:
  /// `pool` may be null: kernels then keep their own copies of constants.
  LowerContext(Graph& graph, size_t node_index, gpu::Device& device, gpu::PackedWeights* pool, Lowered& lowered)
      : NodeContext(graph, node_index), device_(device), pool_(pool), lowered_(lowered) {}

  gpu::Device& device() { return device_; }
  gpu::PackedWeights* pool() { return pool_; }
  /// A constant input as kernels take it, its data aligned for its type; valid as long as this context.
  gpu::Constant ConstantInput(size_t i);
  /// A value between two launches of this node.
  ValueIndex AddTemporary(DataType type, Shape dims);
  /// A constant that a launch of this node reads, beside the node's own inputs. `what` it is, for its name.
  template <class T>
  ValueIndex AddConstant(absl::string_view what, DataType type, Shape dims, const std::vector<T>& values) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    return AddConstantBytes(what, type, std::move(dims), {bytes, bytes + values.size() * sizeof(T)});
  }
  /// `in_place` names the inputs whose memory the first output may take, as the kernel's header allows.
  void AddLaunch(std::unique_ptr<gpu::Kernel> kernel, std::vector<ValueIndex> inputs, std::vector<ValueIndex> outputs,
                 std::vector<size_t> in_place = {});
  /// Output 0 is input 0 under another shape.
  void AddView() { lowered_.views.push_back({output_index(0), input_index(0)}); }

 private:
  ValueIndex AddConstantBytes(absl::string_view what, DataType type, Shape dims, std::vector<std::byte> bytes);

  gpu::Device& device_;
  gpu::PackedWeights* const pool_;
  Lowered& lowered_;
  std::deque<std::vector<std::byte>> aligned_;  // A file's constants begin at any byte; kernels read whole elements.
};

/// The integers of a constant of type INT64 or INT32; INVALID_ARGUMENT for another type.
absl::StatusOr<std::vector<int64_t>> IntsOf(const Value& constant);
/// `status` with "node 'n' (Operator): " before its message.
absl::Status AtNode(const Node& node, const absl::Status& status);

}  // namespace sluice::model
