// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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

/// The device's clock along one execution, in pinned memory the device writes. The outer two only where the graph moves
/// inputs and outputs itself; a transfer kernel writes two neighbours (gpu/kernels/transfer.h).
struct alignas(16) StampPage {
  uint64_t copy_in_start = 0;
  uint64_t first_kernel = 0;
  uint64_t last_kernel = 0;
  uint64_t copy_out_end = 0;
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
  // Launches. The first and the last are stamp kernels; with graph_copies they are transfers, which stamp as well.
  std::vector<DeviceSpan> spans;  ///< Backing store of every BoundLaunch's args; never resized after binding.
  std::vector<BoundLaunch> launches;
  std::vector<Unit> units;    ///< Standard and batch.
  bool graph_copies = false;  ///< Latency: inputs and outputs move inside the graph, past the copy engines' queues.
  // Events, made once.
  TimedEvent h2d_start, h2d_end, d2h_start, d2h_end;
  Event inputs_arrived;
  Event kernels_done;              ///< After the last kernel, before the copy out: the gate reopens here.
  Event done;                      ///< After the copy out: the outputs may be read.
  std::vector<Event> unit_done;    ///< One a unit; standard and batch lanes only.
  std::vector<Event> copy_done;    ///< One a chunk in flight; the same lanes, and only where copies are real.
  Stream capture_stream;           ///< Graphs are captured here, so that library handles bound to it are the slot's.
  Graph graph;                     ///< The whole plan; latency lane only.
  std::vector<Graph> unit_graphs;  ///< One a unit; empty ones where units are launched kernel by kernel.

  const StampPage& stamps() const { return *reinterpret_cast<const StampPage*>(stamp_memory.view().data); }
  /// The stamp of the last byte that graph_copies moves, which the device writes while the host looks.
  std::atomic_ref<uint64_t> end_stamp() const {
    return std::atomic_ref(reinterpret_cast<StampPage*>(stamp_memory.view().data)->copy_out_end);
  }
};

/// Makes the slot's events and graphs, so that a request creates nothing: for the latency class one graph of the whole
/// plan, for the others one of each unit where those are graphs.
/// `slot` has its device, memory, launches and, unless it is a latency slot, units. Load time only: allocates and
/// captures. On error the slot is to be dropped; what was made goes with it. `wait` is how its events are waited for:
/// one that blocks makes a GPU interrupt the host at each record, which is not for tens of thousands of units a second.
absl::Status PrepareSlot(Slot& slot, RequestClass request_class, WaitMode wait = WaitMode::kBlock);

/// Captures `count` launches from `first` on as one graph, on slot.capture_stream, which is made on first use.
absl::StatusOr<Graph> CaptureLaunches(Slot& slot, size_t first, size_t count);
/// True where units are launched as graphs: on a GPU, always. One thread launches all batch work of a device, and a
/// call of cuBLASLt costs it 12 us (of cuDNN 200) where a graph of that call costs 3.
bool UnitsAreGraphs(const Device& device);

}  // namespace sluice::gpu
