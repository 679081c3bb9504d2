// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/rpc/infer_parser.h"
#include "server/shared_memory.h"

namespace sluice::rpc {

// Parameters of inputs and outputs, and of the response's outputs, that say where in shared memory a tensor lies.
inline constexpr absl::string_view kSharedMemoryRegion = "shared_memory_region";
inline constexpr absl::string_view kSharedMemoryByteSize = "shared_memory_byte_size";
inline constexpr absl::string_view kSharedMemoryOffset = "shared_memory_offset";

/// The parameters of a request that mean something here.
struct RequestParameters {
  std::optional<uint64_t> priority;
  std::optional<absl::Duration> timeout;  ///< Limit of the time in the queue; 0 is as if it were absent.
  bool timings = false;                   ///< sluice_timings
};

/// INVALID_ARGUMENT naming the key, the type that was expected and the one that came; UNIMPLEMENTED for what the
/// protocol has and this server does not (sequences). Keys that mean nothing here are accepted, unless they are
/// reserved or begin with triton_ or sluice_.
absl::StatusOr<RequestParameters> ReadRequestParameters(const Parameters& parameters);

/// Parameters of one input or output: where in shared memory it lies, if there. `where` names it ("input 'x'");
/// `regions` is null where shared memory is not served. UNIMPLEMENTED for classification, and then for shared memory;
/// INVALID_ARGUMENT as above, and for a place that is half said or not inside its region; NOT_FOUND for a region that
/// is not registered.
absl::StatusOr<server::SharedMemorySlice> ReadTensorParameters(const Parameters& parameters,
                                                               const server::SharedMemoryRegions* regions,
                                                               absl::string_view where);

}  // namespace sluice::rpc
