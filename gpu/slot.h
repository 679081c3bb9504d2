// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/moving_average.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/kernel.h"

namespace sluice::gpu {

/// One kernel with its memory: what a slot launches.
struct BoundLaunch {
  const Kernel* kernel = nullptr;
  KernelArgs args;
};

/// A run of consecutive launches that the gate grants as one. `predicted` is shared by all slots of a plan and
/// corrected by what is measured.
struct Unit {
  size_t first_launch = 0;
  size_t launch_count = 0;
  MovingAverage* predicted = nullptr;
};

/// Where one model input or output lives in a slot. With unified memory both spans are the same bytes.
struct SlotTensor {
  PinnedSpan pinned;
  DeviceSpan device;
};

/// First and last kernel's stamps, in pinned memory the device writes.
struct StampPage {
  uint64_t first_kernel = 0;
  uint64_t last_kernel = 0;
};

/// The buffers, events and graph of one execution in flight of one plan. Built at load time by model/ (memory and
/// launches) and completed by PrepareSlot (events, graph); used by one request thread at a time (and, for batch, the
/// launcher between Begin and Finish). Everything it points to lives as long as the slot: the plan that built it must
/// outlive it.
struct Slot {
  Device* device = nullptr;
  // Memory, owned.
  PinnedBuffer input_memory;
  PinnedBuffer output_memory;
  DeviceBuffer
      device_memory;          ///< Inputs and outputs (unless unified), activations and workspace, planned as one block.
  PinnedBuffer stamp_memory;  ///< One StampPage.
  std::vector<SlotTensor> inputs;  ///< In the order of the model's signature.
  std::vector<SlotTensor> outputs;
  // Launches. The first launch of the first unit and the last of the last unit are stamp kernels.
  std::vector<DeviceSpan> spans;  ///< Backing store of every BoundLaunch's args; never resized after binding.
  std::vector<BoundLaunch> launches;
  std::vector<Unit> units;
  // Events, made once.
  TimedEvent h2d_start, h2d_end, d2h_start, d2h_end;
  Event inputs_arrived;
  Event kernels_done;            ///< After the last kernel, before the copy out: the gate reopens here.
  Event done;                    ///< After the copy out: the outputs may be read.
  std::vector<Event> unit_done;  ///< One a unit; standard and batch lanes only.
  std::vector<Event> copy_done;  ///< One a chunk in flight; the same lanes, and only where copies are real.
  Graph graph;                   ///< The whole plan; latency lane only.

  const StampPage& stamps() const { return *reinterpret_cast<const StampPage*>(stamp_memory.view().data); }
};

/// Makes the slot's events, and for the latency class the graph of the whole plan, so that a request creates nothing.
/// `slot` has its device, memory, launches and units. Load time only: allocates and captures. On error the slot is to
/// be dropped; what was made goes with it.
absl::Status PrepareSlot(Slot& slot, RequestClass request_class);

}  // namespace sluice::gpu
