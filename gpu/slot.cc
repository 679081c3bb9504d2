// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/slot.h"

#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "gpu/transfer.h"

namespace sluice::gpu {

bool UnitsAreGraphs(const Device& device) { return device.info().backend == Backend::kCuda; }

absl::StatusOr<Graph> CaptureLaunches(Slot& slot, size_t first, size_t count) {
  Device& device = *slot.device;
  if (!slot.capture_stream) {
    // A graph takes the priority of the stream it is launched in, not of this one.
    SLUICE_ASSIGN_OR_RETURN(slot.capture_stream, device.CreateStream(StreamPriority::kLow));
  }
  SLUICE_RETURN_IF_ERROR(device.BeginCapture(slot.capture_stream));
  absl::Status launched;
  for (size_t i = first; i < first + count && launched.ok(); ++i) {
    const BoundLaunch& launch = slot.launches[i];
    launched = device.Launch(slot.capture_stream, *launch.kernel, launch.args);
  }
  // A capture that was begun is ended even when a launch failed.
  absl::StatusOr<Graph> graph = device.EndCapture(slot.capture_stream);
  SLUICE_RETURN_IF_ERROR(launched);
  return graph;
}

absl::Status PrepareSlot(Slot& slot, RequestClass request_class, WaitMode wait) {
  Device& device = *slot.device;
  const bool latency = request_class == RequestClass::kLatency;
  for (TimedEvent* event : {&slot.h2d_start, &slot.h2d_end, &slot.d2h_start, &slot.d2h_end}) {
    SLUICE_ASSIGN_OR_RETURN(*event, device.CreateTimedEvent());
  }
  for (Event* event : {&slot.inputs_arrived, &slot.kernels_done, &slot.done}) {
    SLUICE_ASSIGN_OR_RETURN(*event, device.CreateEvent(wait));
  }
  if (latency) {
    SLUICE_ASSIGN_OR_RETURN(slot.graph, CaptureLaunches(slot, 0, slot.launches.size()));
    return absl::OkStatus();
  }
  slot.unit_graphs.resize(slot.units.size());
  for (size_t i = 0; UnitsAreGraphs(device) && i < slot.units.size(); ++i) {
    const Unit& unit = slot.units[i];
    SLUICE_ASSIGN_OR_RETURN(slot.unit_graphs[i], CaptureLaunches(slot, unit.first_launch, unit.launch_count));
  }
  const size_t copy_events = device.info().unified_memory ? 0 : kMostChunksInFlight;
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
