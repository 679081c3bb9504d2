// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/trace_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/execution/chrome_trace.h"

namespace sluice::server {

void TraceRecorder::AddDevice(std::string name, gpu::Timeline& timeline) {
  devices_.push_back({.name = std::move(name), .timeline = &timeline});
}

bool TraceRecorder::recording() const {
  return !devices_.empty() && std::all_of(devices_.begin(), devices_.end(),
                                          [](const RecordedDevice& device) { return device.timeline->recording(); });
}

absl::StatusOr<std::string> TraceRecorder::Record(absl::Duration duration, absl::FunctionRef<ModelNames()> names) {
  if (duration < kShortest || duration > kLongest) {
    return absl::InvalidArgumentError(absl::StrCat("seconds: expected ", absl::ToDoubleSeconds(kShortest), " to ",
                                                   absl::ToDoubleSeconds(kLongest), ", got ",
                                                   absl::ToDoubleSeconds(duration)));
  }
  if (std::all_of(devices_.begin(), devices_.end(),
                  [](const RecordedDevice& device) { return device.timeline->capacity() == 0; })) {
    return absl::FailedPreconditionError("the server was started with --trace-records=0");
  }
  {
    MutexLock lock(mutex_);
    if (stopped_) return absl::UnavailableError("the server is shutting down");
    if (busy_) return absl::AbortedError("another trace is being recorded; one at a time");
    busy_ = true;
  }
  for (const RecordedDevice& device : devices_) device.timeline->Start();
  Wait(clock_.Now() + duration);
  for (const RecordedDevice& device : devices_) device.timeline->Stop();
  std::vector<DeviceTrace> traces;
  size_t records = 0;
  uint64_t lost = 0;
  for (const RecordedDevice& device : devices_) {
    const DeviceTrace& trace = traces.emplace_back(DeviceTrace{device.name, device.timeline->Read()});
    records += trace.snapshot.records.size();
    lost += trace.snapshot.lost_count;
  }
  std::string text = ToChromeTrace(traces, names());
  Log(Severity::kInfo, "trace recorded",
      {{"seconds", absl::ToDoubleSeconds(duration)}, {"records", records}, {"lost", lost}, {"bytes", text.size()}});
  MutexLock lock(mutex_);
  busy_ = false;
  return text;
}

void TraceRecorder::Wait(Time until) {
  MutexLock lock(mutex_);
  while (!stopped_ && clock_.Now() < until) stop_.WaitUntil(mutex_, until);
}

void TraceRecorder::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  stop_.NotifyAll();
}

}  // namespace sluice::server
