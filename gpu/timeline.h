// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"

namespace sluice::gpu {

/// What a record's time was spent on. First a request's stages, then what ran on a stream, then the gate.
enum class SpanKind : uint8_t {
  kQueue,
  kCopyIn,
  kGpuWait,
  kH2d,
  kCompute,
  kD2h,
  kRespond,
  kGraph,     ///< A latency execution on its stream, copies included where the graph has them.
  kUnit,      ///< A run of kernels that the gate granted as one.
  kChunkIn,   ///< A piece of an input.
  kChunkOut,  ///< A piece of an output.
  kGateClosed,
};
inline constexpr bool IsStage(SpanKind kind) { return kind <= SpanKind::kRespond; }

/// Whose clock a span was measured with.
enum class SpanClock : uint8_t {
  kHost,          ///< Both ends are what a thread of the host saw: a unit's end is when it was looked at.
  kDeviceLength,  ///< The length is the device's, between two events; where it lies is the host's observation.
  kMixed,         ///< From what the host saw to a stamp of the device.
  kDevice,        ///< Both ends are the device's stamps, converted to the process's clock (some microseconds).
};

/// One span. Plain data of fixed size: adding one copies it and allocates nothing.
struct TimelineRecord {
  Time start, end;
  uint64_t request = 0;      ///< RequestId's value; 0: none. On streams: the execution's first request.
  uint64_t model = 0;        ///< ModelId's value; 0: not said.
  uint64_t track = 0;        ///< On streams: equal for spans that ran one after another, else meaningless.
  absl::Duration predicted;  ///< Units and chunks: what the gate was told.
  absl::Duration measured;   ///< Units and chunks: as counted in averages; zero when latency work disturbed it.
  uint64_t amount = 0;       ///< Rows of a stage, bytes of a chunk.
  uint32_t index = 0;        ///< The micro-batch of a stage, the unit's or chunk's number in its execution.
  SpanKind kind = SpanKind::kQueue;
  RequestClass request_class = RequestClass::kStandard;
  SpanClock clock = SpanClock::kHost;
  absl::StatusCode status = absl::StatusCode::kOk;  ///< kQueue and kRespond: how the request was answered.
  friend bool operator==(const TimelineRecord&, const TimelineRecord&) = default;
};

/// What a timeline held when it was read.
struct TimelineSnapshot {
  std::vector<TimelineRecord> records;  ///< In the order they were added.
  uint64_t lost_count = 0;              ///< Added since Start, but overwritten by newer ones or met while written.
  Time started = Time::Zero();
};

/// The newest records of what happened on one device. Purpose: answer "where did this request's time go" without
/// slowing requests down. Bounds: `capacity` records, made at construction; newer ones overwrite the oldest, which is
/// counted. Threads: Add from any, without a lock: a thread claims a place by a counter, and one that meets a place
/// still being written a whole ring later gives its record up. Start, Stop and Read: one caller at a time. Cost while
/// off: recording() is one relaxed load, and callers ask it before they make a record.
class Timeline {
 public:
  /// `capacity` is rounded up to a power of two; 0 makes a timeline that never records. `clock` must outlive it.
  Timeline(size_t capacity, const Clock& clock);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  /// Forgets what is held and records from here on.
  void Start();
  void Stop() { recording_.store(false, std::memory_order_release); }
  /// Does nothing while off.
  void Add(const TimelineRecord& record);
  Time Now() const { return clock_.Now(); }
  /// Of the latest Start; zero before the first.
  Time started() const { return Time::FromNanoseconds(started_ns_.load(std::memory_order_relaxed)); }
  size_t capacity() const { return places_.size(); }
  /// Everything since Start that is still there. Allocates; also while recording.
  TimelineSnapshot Read() const;

 private:
  static constexpr size_t kWords = 9;
  using Words = std::array<uint64_t, kWords>;
  /// `sequence` is 2n+2 while record n is there, 2n+1 while it is written. The words are atomics, so that a reader that
  /// meets a writer reads garbage it then throws away, not undefined behaviour.
  struct Place {
    std::atomic<uint64_t> sequence = 0;
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  static Words Pack(const TimelineRecord& record);
  static TimelineRecord Unpack(const Words& words);

  const Clock& clock_;
  std::vector<Place> places_;
  std::atomic<bool> recording_ = false;
  std::atomic<int64_t> started_ns_ = 0;
  std::atomic<uint64_t> first_ = 0;  ///< Number of the first record since Start.
  alignas(64) std::atomic<uint64_t> next_ = 0;
};

/// A number that is equal for everything one thread issues to one stream, and different for other pairs: the per-thread
/// default streams of all threads have one handle.
uint64_t TrackOf(const void* stream_handle);

}  // namespace sluice::gpu
