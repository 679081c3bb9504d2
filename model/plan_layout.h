// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "model/constant_pool.h"
#include "model/graph.h"

namespace sluice::model {

/// The areas of a slot's memory, and the constants, which are no slot's.
enum class Area : uint8_t { kInput, kOutput, kActivation, kConstant };

/// Where one span of a launch lies in every slot of a plan.
struct SpanPlace {
  Area area = Area::kActivation;
  size_t offset_bytes = 0;
  size_t size_bytes = 0;
  gpu::DeviceSpan constant;  ///< kConstant only: the bytes themselves.
};

struct PlannedLaunch {
  std::unique_ptr<gpu::Kernel> kernel;
  std::vector<SpanPlace> spans;
  SpanPlace workspace;
};

/// Kernels in order and where everything lies; the same for every slot.
struct PlanLayout {
  std::vector<PlannedLaunch> launches;
  std::vector<SpanPlace> inputs;   ///< In the order of the signature.
  std::vector<SpanPlace> outputs;  ///< Likewise.
  size_t input_bytes = 0;
  size_t output_bytes = 0;
  size_t activation_bytes = 0;
};

/// More launches than this are refused: planning memory is quadratic in them.
inline constexpr size_t kMaxLaunches = 16'384;

/// Lowers every node of a simplified graph and places its values: inputs and outputs in areas of their own, views with
/// what they view, results of in-place kernels with their input, everything else by lifetime. Constants go into `pool`.
absl::StatusOr<PlanLayout> BuildPlanLayout(Graph& graph, gpu::Device& device, ConstantPool& pool);

}  // namespace sluice::model
