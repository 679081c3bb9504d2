// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/stage_records.h"

#include <algorithm>

namespace sluice::server {
namespace {

using gpu::SpanClock;
using gpu::SpanKind;
using gpu::TimelineRecord;

TimelineRecord RecordOf(const InferRequest& request, SpanKind kind, Time start, Time end) {
  TimelineRecord record;
  record.start = start;
  record.end = std::max(start, end);
  record.request = request.id.value();
  record.model = request.model->id.value();
  record.amount = static_cast<uint64_t>(request.rows);
  record.kind = kind;
  record.request_class = request.request_class;
  return record;
}

}  // namespace

void RecordQueue(gpu::Timeline& timeline, const InferRequest& request, Time until, absl::StatusCode status) {
  if (!timeline.recording()) return;
  TimelineRecord record = RecordOf(request, SpanKind::kQueue, request.arrival, until);
  record.status = status;
  timeline.Add(record);
}

void RecordPart(gpu::Timeline& timeline, const InferRequest& request, uint32_t part, int64_t rows,
                const PartTimes& times) {
  if (!timeline.recording()) return;
  Time last = times.copy_in_start;
  const auto add = [&](SpanKind kind, SpanClock clock, Time start, Time end) {
    TimelineRecord record = RecordOf(request, kind, std::max(start, last), std::max(end, last));
    record.amount = static_cast<uint64_t>(rows);
    record.index = part;
    record.clock = clock;
    last = record.end;
    timeline.Add(record);
  };
  const gpu::StageTimes& device = times.device;
  const Time h2d_end = device.h2d_start + device.h2d;
  add(SpanKind::kCopyIn, SpanClock::kHost, times.copy_in_start, times.copy_in_end);
  // The copy in lies inside the wait: before it a stream or the engine was waited for, after it the gate.
  const bool stamped = device.copy_clock == SpanClock::kDevice;
  add(SpanKind::kGpuWait, stamped ? SpanClock::kMixed : SpanClock::kHost, device.submitted, device.h2d_start);
  add(SpanKind::kH2d, device.copy_clock, device.h2d_start, h2d_end);
  if (device.compute_start > last) add(SpanKind::kGpuWait, SpanClock::kMixed, last, device.compute_start);
  add(SpanKind::kCompute, SpanClock::kDevice, device.compute_start, device.compute_start + device.compute);
  add(SpanKind::kD2h, device.copy_clock, device.d2h_start, device.d2h_start + device.d2h);
}

void RecordRespond(gpu::Timeline& timeline, const InferRequest& request, Time since, absl::StatusCode status) {
  if (!timeline.recording()) return;
  TimelineRecord record = RecordOf(request, SpanKind::kRespond, since, timeline.Now());
  record.status = status;
  timeline.Add(record);
}

}  // namespace sluice::server
