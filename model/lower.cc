// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/lower.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/onnx_reader.h"
#include "model/ops/registry.h"

namespace sluice::model {
namespace {

absl::StatusOr<size_t> SizeBytes(const Value& value) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(*value.dims));
  return static_cast<size_t>(count) * ElementBytes(value.type);
}

/// The memory of one evaluation: a pinned buffer for every value, which the host device's kernels can use as it is.
class Evaluation {
 public:
  Evaluation(Graph& graph, gpu::Device& host) : graph_(graph), host_(host) {}

  /// The value's memory, made on first use and filled when it is a constant.
  absl::StatusOr<gpu::DeviceSpan> SpanOf(ValueIndex index) {
    while (sources_.count(index) > 0) index = sources_.at(index);
    const Value& value = graph_.value(index);
    auto known = buffers_.find(index);
    if (known == buffers_.end()) {
      SLUICE_ASSIGN_OR_RETURN(const size_t size_bytes, SizeBytes(value));
      SLUICE_ASSIGN_OR_RETURN(gpu::PinnedBuffer buffer, host_.AllocatePinned(std::max<size_t>(size_bytes, 1)));
      if (value.is_constant && size_bytes > 0) std::memcpy(buffer.view().data, value.bytes.data(), size_bytes);
      known = buffers_.emplace(index, std::move(buffer)).first;
    }
    SLUICE_ASSIGN_OR_RETURN(const size_t size_bytes, SizeBytes(value));
    return known->second.view().device_span().subspan(0, size_bytes);
  }

  void AddView(const LoweredView& view) { sources_[view.view] = view.source; }

  absl::Status Run(const LoweredLaunch& launch, gpu::StreamRef stream) {
    std::vector<gpu::DeviceSpan> spans;
    for (const ValueIndex input : launch.inputs) {
      SLUICE_ASSIGN_OR_RETURN(spans.emplace_back(), SpanOf(input));
    }
    for (const ValueIndex output : launch.outputs) {
      SLUICE_ASSIGN_OR_RETURN(spans.emplace_back(), SpanOf(output));
    }
    gpu::KernelArgs args{.spans = spans, .workspace = {}};
    gpu::PinnedBuffer workspace;
    if (launch.kernel->workspace_bytes() > 0) {
      SLUICE_ASSIGN_OR_RETURN(workspace, host_.AllocatePinned(launch.kernel->workspace_bytes()));
      args.workspace = workspace.view().device_span();
    }
    SLUICE_RETURN_IF_ERROR(host_.Launch(stream, *launch.kernel, args));
    return host_.Synchronize(stream);
  }

 private:
  Graph& graph_;
  gpu::Device& host_;
  std::map<ValueIndex, gpu::PinnedBuffer> buffers_;
  std::map<ValueIndex, ValueIndex> sources_;
};

}  // namespace

absl::Status InferNode(Graph& graph, size_t node_index) {
  InferContext context(graph, node_index);
  return AtNode(graph.nodes[node_index], graph.nodes[node_index].entry->infer(context));
}

absl::Status LowerNode(Graph& graph, size_t node_index, gpu::Device& device, gpu::PackedWeights* pool,
                       Lowered& lowered) {
  const Node& node = graph.nodes[node_index];
  if (node.entry->lower == nullptr) {
    return AtNode(node, absl::UnimplementedError("its result depends on data; only constant forms are supported"));
  }
  LowerContext context(graph, node_index, device, pool, lowered);
  return AtNode(node, node.entry->lower(context));
}

absl::Status EvaluateNode(Graph& graph, size_t node_index, gpu::Device& host) {
  Lowered lowered;
  SLUICE_RETURN_IF_ERROR(LowerNode(graph, node_index, host, nullptr, lowered));
  Evaluation evaluation(graph, host);
  for (const LoweredView& view : lowered.views) evaluation.AddView(view);
  SLUICE_ASSIGN_OR_RETURN(const gpu::Stream stream, host.CreateStream(gpu::StreamPriority::kLow));
  for (const LoweredLaunch& launch : lowered.launches) SLUICE_RETURN_IF_ERROR(evaluation.Run(launch, stream));
  for (const ValueIndex output : graph.nodes[node_index].outputs) {
    if (output == kNoValue) continue;
    SLUICE_ASSIGN_OR_RETURN(const gpu::DeviceSpan span, evaluation.SpanOf(output));
    const Value& value = graph.value(output);
    graph.SetConstant(output, value.type, *value.dims, std::vector<std::byte>(span.data, span.data + span.size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sluice::model
