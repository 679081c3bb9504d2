// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "gpu/lane.h"
#include "gpu/timeline.h"
#include "server/infer_request.h"

namespace sluice::server {

/// When one micro-batch was where.
struct PartTimes {
  Time copy_in_start, copy_in_end;  ///< Into pinned memory, on the request thread.
  gpu::StageTimes device;
};

// A request's stages for the timeline. All do nothing while it is off, allocate nothing, and may be called from any
// thread. Within one part spans follow each other: clocks of host and device agree to some microseconds only, so what
// would begin before its predecessor ended is cut.

/// From arrival to `until`, when an execution took it; or, with an error, when it was answered in the queue.
void RecordQueue(gpu::Timeline& timeline, const InferRequest& request, Time until,
                 absl::StatusCode status = absl::StatusCode::kOk);
/// Copy in, wait, copies and compute of `rows` of its rows, in micro-batch `part` of the execution.
void RecordPart(gpu::Timeline& timeline, const InferRequest& request, uint32_t part, int64_t rows,
                const PartTimes& times);
/// From the end of the device's work to now, when it has been answered.
void RecordRespond(gpu::Timeline& timeline, const InferRequest& request, Time since, absl::StatusCode status);

}  // namespace sluice::server
