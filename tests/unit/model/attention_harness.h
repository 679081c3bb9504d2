// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gpu/kernels/host_library.h"
#include "model/constant_pool.h"
#include "model/graph_builder.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"
#include "model/plan.h"
#include "model_harness.h"

namespace sluice::model {

/// A host device of plain loops, which has attention in one kernel, and the way of a file to its outputs with and
/// without the passes that use it.
class AttentionPassTest : public ModelTest {
 protected:
  void SetUp() override {
    auto device = gpu::CreateHostDevice({}, clock_, gpu::MakeHostKernelLibrary(clock_, {.use_onednn = false}));
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    ASSERT_TRUE(gpu::KernelFeaturesOf(*device_).attention);
  }

  /// The graph after all passes, for a device that has attention or has not.
  absl::StatusOr<Graph> Simplified(const std::string& file, const std::vector<Shape>& shapes, bool attention) {
    SLUICE_ASSIGN_OR_RETURN(Graph graph, BuildGraphOf(file));
    const Signature signature = ReadSignature(*files_.back(), graph);
    SLUICE_RETURN_IF_ERROR(SimplifyUnbound(graph, *device_));
    SLUICE_RETURN_IF_ERROR(
        SimplifyBound(graph, signature, {shapes}, *device_, {.attention = attention}, Precision::kFp32));
    return graph;
  }

  /// Runs such a graph.
  absl::StatusOr<std::vector<std::string>> Outputs(const std::string& file, const std::vector<Shape>& shapes,
                                                   const std::vector<std::string>& inputs, bool attention) {
    SLUICE_ASSIGN_OR_RETURN(Graph graph, Simplified(file, shapes, attention));
    ConstantPool pool(*device_);
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                            BuildPlanFromGraph(std::move(graph), {shapes}, *device_, pool, {}));
    return Run(*plan, RequestClass::kStandard, inputs, *device_);
  }

  /// Expects the same FP32 outputs with attention as without; a NaN without may be anything with.
  void ExpectSameOutputs(const std::string& file, const std::vector<Shape>& shapes,
                         const std::vector<std::string>& inputs, const std::string& what) {
    const auto plain = Outputs(file, shapes, inputs, false), fused = Outputs(file, shapes, inputs, true);
    ASSERT_TRUE(plain.ok()) << what << ": " << plain.status();
    ASSERT_TRUE(fused.ok()) << what << ": " << fused.status();
    ASSERT_EQ(plain->size(), fused->size()) << what;
    for (size_t output = 0; output < plain->size(); ++output) {
      const std::vector<float> expected = FromBytes<float>((*plain)[output]);
      const std::vector<float> actual = FromBytes<float>((*fused)[output]);
      ASSERT_EQ(actual.size(), expected.size()) << what;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != expected[i]) continue;
        ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << what << ", element " << i;
      }
    }
  }

  static int CountOf(const Graph& graph, absl::string_view name) {
    int count = 0;
    for (const Node& node : graph.nodes) count += node.entry->name == name ? 1 : 0;
    return count;
  }

  /// Values in [-2, 2) that repeat late.
  static std::vector<float> Numbers(size_t count, uint32_t seed) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((static_cast<uint32_t>(i + 1) * 2654435761u + seed * 40503u) >> 16) * 0x1p-14f - 2;
    }
    return values;
  }
};

}  // namespace sluice::model
