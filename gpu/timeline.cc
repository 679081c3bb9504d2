// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/timeline.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <thread>

// Memory order. A writer takes a place by a compare-and-swap of its sequence to an odd number and stores each word with
// release; a reader loads each word with acquire and then the sequence again. Whoever read a word of a newer record
// therefore sees that record's sequence, or a later one, and drops what it read.

namespace sluice::gpu {

Timeline::Timeline(size_t capacity, const Clock& clock)
    : clock_(clock), places_(capacity == 0 ? 0 : std::bit_ceil(capacity)) {}

void Timeline::Start() {
  if (places_.empty()) return;
  // Sequences go on from where they are: a writer of before cannot be mistaken for one of now.
  first_.store(next_.load(std::memory_order_acquire), std::memory_order_release);
  started_ns_.store(clock_.Now().nanoseconds(), std::memory_order_relaxed);
  recording_.store(true, std::memory_order_release);
}

Timeline::Words Timeline::Pack(const TimelineRecord& record) {
  const uint64_t small = uint64_t{record.index} << 32 | static_cast<uint64_t>(record.kind) << 24 |
                         static_cast<uint64_t>(record.request_class) << 16 | static_cast<uint64_t>(record.clock) << 8 |
                         static_cast<uint8_t>(record.status);
  return {static_cast<uint64_t>(record.start.nanoseconds()),
          static_cast<uint64_t>(record.end.nanoseconds()),
          record.request,
          record.model,
          record.track,
          static_cast<uint64_t>(absl::ToInt64Nanoseconds(record.predicted)),
          static_cast<uint64_t>(absl::ToInt64Nanoseconds(record.measured)),
          record.amount,
          small};
}

TimelineRecord Timeline::Unpack(const Words& words) {
  TimelineRecord record;
  record.start = Time::FromNanoseconds(static_cast<int64_t>(words[0]));
  record.end = Time::FromNanoseconds(static_cast<int64_t>(words[1]));
  record.request = words[2];
  record.model = words[3];
  record.track = words[4];
  record.predicted = absl::Nanoseconds(static_cast<int64_t>(words[5]));
  record.measured = absl::Nanoseconds(static_cast<int64_t>(words[6]));
  record.amount = words[7];
  record.index = static_cast<uint32_t>(words[8] >> 32);
  record.kind = static_cast<SpanKind>(words[8] >> 24 & 0xff);
  record.request_class = static_cast<RequestClass>(words[8] >> 16 & 0xff);
  record.clock = static_cast<SpanClock>(words[8] >> 8 & 0xff);
  record.status = static_cast<absl::StatusCode>(words[8] & 0xff);
  return record;
}

void Timeline::Add(const TimelineRecord& record) {
  if (!recording()) return;
  const uint64_t number = next_.fetch_add(1, std::memory_order_acq_rel);
  Place& place = places_[number & (places_.size() - 1)];
  uint64_t sequence = place.sequence.load(std::memory_order_relaxed);
  // Odd: a writer was overtaken by a whole ring and is still at it. Larger: it was this thread that was overtaken.
  if ((sequence & 1) != 0 || sequence > 2 * number) return;
  if (!place.sequence.compare_exchange_strong(sequence, 2 * number + 1, std::memory_order_acq_rel)) return;
  const Words words = Pack(record);
  for (size_t i = 0; i < kWords; ++i) place.words[i].store(words[i], std::memory_order_release);
  place.sequence.store(2 * number + 2, std::memory_order_release);
}

TimelineSnapshot Timeline::Read() const {
  TimelineSnapshot snapshot;
  snapshot.started = started();
  const uint64_t first = first_.load(std::memory_order_acquire);
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t held = std::min<uint64_t>(end - first, places_.size());
  snapshot.records.reserve(held);
  for (uint64_t number = end - held; number < end; ++number) {
    const Place& place = places_[number & (places_.size() - 1)];
    if (place.sequence.load(std::memory_order_acquire) != 2 * number + 2) continue;
    Words words;
    for (size_t i = 0; i < kWords; ++i) words[i] = place.words[i].load(std::memory_order_acquire);
    if (place.sequence.load(std::memory_order_acquire) != 2 * number + 2) continue;
    snapshot.records.push_back(Unpack(words));
  }
  // Those whose place was empty or held another record are lost as well.
  snapshot.lost_count = end - first - snapshot.records.size();
  return snapshot;
}

uint64_t TrackOf(const void* stream_handle) {
  const uint64_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  return std::bit_cast<uint64_t>(stream_handle) * 0x9e3779b97f4a7c15u ^ thread;
}

}  // namespace sluice::gpu
