// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "gpu/device.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernel.h"

// What the handles of a host device point to. Everything here is guarded by the mutex of HostStreams, except where a
// comment says otherwise.
namespace sluice::gpu::host {

struct HostStream;

/// A point in a stream: reached when `position` entries of it are over. A null stream is "never recorded".
struct HostMark {
  HostStream* stream = nullptr;
  uint64_t position = 0;
  friend bool operator==(HostMark, HostMark) = default;
};

struct HostEvent {
  explicit HostEvent(WaitMode wait_mode) : mode(wait_mode) {}
  const WaitMode mode;
  HostMark mark;
};

struct HostTimedEvent {
  HostMark mark;
  Time reached_at;
  int pending = 0;  ///< Records queued and not yet reached.
};

/// One piece of work for an engine.
struct HostNode {
  enum class Kind : uint8_t { kKernel, kCopyToDevice, kCopyToHost };
  Kind kind = Kind::kKernel;
  const HostKernel* kernel = nullptr;
  KernelArgs args;
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  size_t size_bytes = 0;
};

struct HostGraph {
  std::vector<HostNode> nodes;  ///< Constant once the capture has ended.
  int pending = 0;              ///< Launches queued and not yet over.
};

/// One entry of a stream's queue.
struct HostEntry {
  enum class Kind : uint8_t { kNode, kGraph, kTimedRecord, kWait };
  Kind kind = Kind::kNode;
  uint64_t sequence = 0;  ///< Order of issue over all streams.
  HostNode node;
  HostGraph* graph = nullptr;
  HostTimedEvent* timed = nullptr;
  HostMark mark;
};

struct HostStream {
  enum class Place : uint8_t { kNowhere, kReady, kRunning, kWaiting };

  HostEntry& head() { return ring[first]; }
  const HostEntry& head() const { return ring[first]; }
  bool Reached(uint64_t position) const { return completed.load(std::memory_order_acquire) >= position; }

  bool live = false;
  StreamPriority priority = StreamPriority::kDefault;
  std::thread::id bound_thread;  ///< A per-thread stream's thread; no thread for others.

  // The queue. `issued` and `completed` never go back, not even when the object is used for another stream.
  std::vector<HostEntry> ring;
  size_t first = 0;
  size_t count = 0;
  size_t graph_cursor = 0;  ///< Next node of the graph at the head.
  uint64_t issued = 0;
  std::atomic<uint64_t> completed = 0;  ///< Written under the mutex, read by spinning threads without it.

  Place place = Place::kNowhere;
  HostStream* next = nullptr;     ///< In the one list the stream is in.
  HostStream* waiters = nullptr;  ///< Streams whose head waits for a mark in this one.

  // Threads that sleep for this stream.
  CondVar space;
  int space_waiter_count = 0;
  CondVar done;
  uint64_t nearest_wanted = kNobody;  ///< Smallest position a thread sleeps for: no wake-up before it is reached.
  static constexpr uint64_t kNobody = std::numeric_limits<uint64_t>::max();

  std::unique_ptr<HostGraph> capture;
  std::thread::id capture_thread;
};

}  // namespace sluice::gpu::host
