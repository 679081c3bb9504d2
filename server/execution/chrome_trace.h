// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gpu/timeline.h"

namespace sluice::server {

/// What one device's timeline held.
struct DeviceTrace {
  std::string name;  ///< "cuda:0"
  gpu::TimelineSnapshot snapshot;
};

/// Writes timelines in Chrome's trace event format, for chrome://tracing and ui.perfetto.dev. A device is a process
/// (`pid`); its threads (`tid`) are the gate, rows of requests for each class (as many as were there at once), and for
/// each stream its units or graphs, its copies in and its copies out. Every span is a complete event ("X") in
/// microseconds since the earliest; on one thread spans are apart or inside each other, never across. `args.clock` says
/// who measured: "device" (stamps), "device length" (events; placed by the host), "mixed" (from the host's clock to a
/// stamp), "host". `otherData` has the counts. `model_names` is keyed by ModelId's value. Allocates some 300 bytes a
/// span.
std::string ToChromeTrace(const std::vector<DeviceTrace>& devices,
                          const absl::flat_hash_map<uint64_t, std::string>& model_names);

}  // namespace sluice::server
