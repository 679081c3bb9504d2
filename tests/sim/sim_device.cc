// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_device.h"

#include <algorithm>
#include <utility>

namespace sluice::sim {

void SimDevice::Launch(int stream, Unit unit) {
  Stream& target = streams_[static_cast<size_t>(stream)];
  if (target.units.empty()) target.ready_at = std::max(target.ready_at, loop_.now());
  target.units.push_back(std::move(unit));
  if (!busy_) RunNext();
}

void SimDevice::Copy(gpu::Engine engine, Unit chunk) {
  Time& free_at = copy_free_at_[static_cast<size_t>(engine)];
  free_at = std::max(free_at, loop_.now()) + chunk.duration;
  loop_.At(free_at + chunk.seen_after, [this, chunk = std::move(chunk)]() mutable {
    if (!hung_) chunk.on_done(chunk.duration);
  });
}

void SimDevice::RunNext() {
  if (hung_) return;
  Stream* next = nullptr;
  Time earliest = Time::Infinite();
  for (Stream& stream : streams_) {
    if (stream.units.empty()) continue;
    earliest = std::min(earliest, stream.ready_at);
    if (stream.ready_at > loop_.now()) continue;
    const auto rank = [](const Stream& s) { return std::pair(!s.high_priority, s.ready_at); };
    if (next == nullptr || rank(stream) < rank(*next)) next = &stream;
  }
  if (next == nullptr) {
    if (earliest.is_infinite()) return;
    loop_.At(earliest, [this] {
      if (!busy_) RunNext();
    });
    return;
  }
  busy_ = true;
  Unit unit = std::move(next->units.front());
  next->units.pop_front();
  next->ready_at = loop_.now() + unit.duration + kLaunchGap;
  const bool lower = unit.request_class != RequestClass::kLatency && !unit.owed;
  lower_runs_ = lower;
  if (lower) {
    lower_running_ = unit.predicted;
    lower_started_.predicted += unit.predicted;
    ++lower_started_.unit_count;
  }
  unit.on_start();
  const absl::Duration duration = unit.duration;
  loop_.After(duration, [this, unit = std::move(unit)]() mutable { Finish(std::move(unit)); });
}

void SimDevice::Finish(Unit unit) {
  if (hung_) return;
  busy_ = false;
  lower_runs_ = false;
  computed_[static_cast<size_t>(unit.request_class)] += unit.duration;
  const absl::Duration seen_after = unit.seen_after;
  if (seen_after > absl::ZeroDuration()) {
    loop_.After(seen_after, [this, unit = std::move(unit)]() mutable {
      if (!hung_) unit.on_done(unit.duration);
    });
    RunNext();
    return;
  }
  // The next unit first: the device does not wait for the host.
  RunNext();
  unit.on_done(unit.duration);
}

}  // namespace sluice::sim
