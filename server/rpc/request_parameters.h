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

namespace sluice::rpc {

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

/// Parameters of one input or output; `where` names it ("input 'x'"). UNIMPLEMENTED for shared memory and
/// classification.
absl::Status CheckTensorParameters(const Parameters& parameters, absl::string_view where);

}  // namespace sluice::rpc
