// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/slot.h"

#include "base/status_macros.h"

namespace sluice::gpu {
namespace {

// Chunks of one slot in flight per direction. A gate window above it is shared by several slots.
constexpr size_t kChunksInFlight = 2;

absl::Status CaptureGraph(Slot& slot) {
  Device& device = *slot.device;
  SLUICE_ASSIGN_OR_RETURN(const Stream stream, device.CreateStream(StreamPriority::kHigh));
  SLUICE_RETURN_IF_ERROR(device.BeginCapture(stream));
  absl::Status launched;
  for (const BoundLaunch& launch : slot.launches) {
    launched = device.Launch(stream, *launch.kernel, launch.args);
    if (!launched.ok()) break;
  }
  // A capture that was begun is ended even when a launch failed, or the stream could not be destroyed.
  absl::StatusOr<Graph> graph = device.EndCapture(stream);
  SLUICE_RETURN_IF_ERROR(launched);
  if (!graph.ok()) return graph.status();
  slot.graph = *std::move(graph);
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareSlot(Slot& slot, RequestClass request_class) {
  Device& device = *slot.device;
  const bool latency = request_class == RequestClass::kLatency;
  const WaitMode wait = latency ? WaitMode::kSpin : WaitMode::kBlock;
  for (TimedEvent* event : {&slot.h2d_start, &slot.h2d_end, &slot.d2h_start, &slot.d2h_end}) {
    SLUICE_ASSIGN_OR_RETURN(*event, device.CreateTimedEvent());
  }
  for (Event* event : {&slot.inputs_arrived, &slot.kernels_done, &slot.done}) {
    SLUICE_ASSIGN_OR_RETURN(*event, device.CreateEvent(wait));
  }
  if (latency) return CaptureGraph(slot);
  const size_t copy_events = device.info().unified_memory ? 0 : kChunksInFlight;
  for (const auto& [events, count] : {std::pair(&slot.unit_done, slot.units.size()), {&slot.copy_done, copy_events}}) {
    events->reserve(count);
    while (events->size() < count) {
      SLUICE_ASSIGN_OR_RETURN(Event event, device.CreateEvent(wait));
      events->push_back(std::move(event));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::gpu
